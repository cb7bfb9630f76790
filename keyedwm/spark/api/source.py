"""`source`: a read that is described and not loaded, so that `aggregate` can run its stage one in the reading tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keyedwm.arrow.schema import row_schema
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.field import Field
from keyedwm.operators.aggregates.functions import Aggregate, is_simple
from keyedwm.operators.frames.plan import RowGapWindow, WindowPlan
from keyedwm.plugin import FORMAT
from keyedwm.spark.hosting.frames import named, require_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Value = bool | float | int | str


@dataclass(frozen=True, slots=True)
class Source:
    """What `spark.readStream.format("keyedwm")` is told; each call returns a new description."""

    spark: SparkSession = field(repr=False)
    given: Mapping[str, str] = field(default_factory=dict, repr=False)  # values may be secrets

    def option(self, key: str, value: _Value) -> Source:
        """Set an option of the source, as DataStreamReader does: names are case-insensitive, the last one counts."""
        if not isinstance(value, (bool, float, int, str)):
            raise OptionError(f"option {key}: a text, number or boolean is expected, not {type(value).__name__}")
        others = {name: text for name, text in self.given.items() if name.lower() != key.lower()}
        return Source(self.spark, others | {key: str(value).lower() if isinstance(value, bool) else str(value)})

    def options(self, **options: _Value) -> Source:
        """Set several options."""
        told = self
        for key, value in options.items():
            told = told.option(key, value)
        return told

    def load(self) -> DataFrame:
        """Return the source's rows, as `spark.readStream` does. Raises OptionError, in one sentence."""
        from pyspark_wm_source.options.source_options import SourceOptions

        SourceOptions.parse(self.given).for_stream()  # Spark would say it in many lines
        return self.spark.readStream.format(FORMAT).options(**self.given).load()


def source(spark: SparkSession) -> Source:
    """Describe a read of the keyedwm source: what `aggregate` and joins do before the shuffle runs in the tasks that
    read.

    Then frames, or few big blobs of messages, and not events cross into the JVM, and only what is needed is decoded.
    """
    require_session(spark, "source")
    return Source(spark)


def frame_of(one: object, called: str, asked_by: str) -> DataFrame:
    """Return the frame of an argument; a described source is loaded."""
    given = stream_of(one, called, asked_by)
    return given.load() if isinstance(given, Source) else given


def stream_of(one: object, called: str, asked_by: str) -> DataFrame | Source:
    """Return an argument that is a frame or a described source; raises OptionError for anything else."""
    from pyspark.sql import DataFrame

    if not isinstance(one, (DataFrame, Source)):
        raise OptionError(
            f"{asked_by}: {called}={named(one)}: a frame, or keyedwm.spark.source(spark), is expected; load() a reader"
        )
    return one


def ship_source(
    read: Source, by: Mapping[str, str] | Sequence[str], asked: Mapping[str, Any], axis: str, buckets: int
) -> tuple[DataFrame, WindowPlan, int]:
    """Return what is shipped to the buckets, the plan, and the watermark key of the axis; asked: for the plan."""
    from pyspark_wm_source.options.source_options import SourceOptions
    from pyspark_wm_source.options.stage import HIDDEN_ORDER, StageSpec, plan_schema, read_fields

    if isinstance(asked["window"], RowGapWindow):
        gap = asked["window"].gap_column
        raise OptionError(f"aggregate: session(gap_column={gap!r}) needs a column of rows: load() the source")
    for name, spec in asked["aggregates"]:
        if isinstance(spec, Aggregate):
            raise OptionError(f"aggregate: {name!r} is an Aggregate of your own, it runs over rows: load() the source")
        if not is_simple(spec):
            raise OptionError(f"aggregate: {name!r} is {spec.describe()}, which runs over rows: load() the source")
    options = SourceOptions.parse(read.given)
    if axis not in options.axes:
        axes = ", ".join(filter(None, options.axes))
        hint = f"axis must be one of {axes}" if axes else "leave it out"
        raise InputError(f"aggregate: the source has no time axis {axis!r}; {hint}")
    columns = row_schema(list(options.axes), headers=options.include_headers, control=False)
    fields = named_fields(by, columns.names)
    readers = read_fields(fields, [spec for _, spec in asked["aggregates"]], columns)
    read_from = (*(f"{name} {readers[name].field}" for name in fields), f"event time {options.axes[axis].where}")
    plan = WindowPlan(
        schema=plan_schema(readers), by=tuple(fields), order=HIDDEN_ORDER, read_from=read_from, **asked
    ).trimmed()
    spec = StageSpec(
        window=plan.window,
        late_rule=plan.late_rule,
        by=fields,
        aggregates=dict(plan.aggregates),
        axis=axis,
        buckets=buckets,
    )
    return read.options(**spec.as_options()).load(), plan, options.axes[axis].config.key


def named_fields(by: Mapping[str, str] | Sequence[str], columns: Sequence[str]) -> Mapping[str, str]:
    """Return result column → field of keys, of which plain fields have a name anyway; columns: of the source."""
    return by if isinstance(by, Mapping) else {_name_of(text, columns): text for text in by}


def _name_of(text: str, columns: Sequence[str]) -> str:
    """The name of a result column that was not named."""
    field = Field.parse("by", text, columns)
    if field.path:
        raise OptionError(f"option by: {text!r} needs a name for its result column: by={{'name': {text!r}}}")
    return field.column
