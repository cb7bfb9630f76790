"""`source`: a read that is described and not loaded, so that `aggregate` can run its stage one in the reading tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keyedwm.core.errors import InputError, OptionError
from keyedwm.operators.aggregates.functions import Aggregate
from keyedwm.operators.aggregates.spec import is_simple
from keyedwm.operators.frames.plan import RowGapWindow, WindowPlan
from keyedwm.spark.arguments import require_session
from keyedwm.spark.hosting.source_description import Source, named_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def source(spark: SparkSession) -> Source:
    """Describe a read of the keyedwm source: what `aggregate` and joins do before the shuffle runs in the tasks that
    read.

    Then frames, or few big blobs of messages, and not events cross into the JVM, and only what is needed is decoded.
    """
    require_session(spark, "source")
    return Source(spark)


def ship_source(
    read: Source, by: Mapping[str, str] | Sequence[str], settings: Mapping[str, Any], axis: str, buckets: int
) -> tuple[DataFrame, WindowPlan, int]:
    """Return the shipped rows, the plan, and the watermark key of the axis; settings: for the plan."""
    from pyspark_wm_source.options.frame_stage import HIDDEN_ORDER, FrameSpec, plan_readers, plan_schema
    from pyspark_wm_source.options.source_options import SourceOptions

    if isinstance(settings["window"], RowGapWindow):
        gap = settings["window"].gap_column
        raise OptionError(f"aggregate: session(gap_column={gap!r}) needs a column of rows: load() the source")
    for name, spec in settings["aggregates"]:
        if isinstance(spec, Aggregate):
            raise OptionError(f"aggregate: {name!r} is an Aggregate of your own, it runs over rows: load() the source")
        if not is_simple(spec):
            raise OptionError(f"aggregate: {name!r} is {spec.describe()}, which runs over rows: load() the source")
    options = SourceOptions.parse(read.set_options)
    if axis not in options.axes:
        axes = ", ".join(filter(None, options.axes))
        hint = f"axis must be one of {axes}" if axes else "leave it out"
        raise InputError(f"aggregate: the source has no time axis {axis!r}; {hint}")
    columns = options.every_column
    fields = named_fields(by, columns.names)
    fields_by_name = options.selection.fields
    readers = plan_readers(fields, [spec for _, spec in settings["aggregates"]], columns, fields_by_name)
    read_from = (
        *(f"{name} {readers[name].field}" for name in fields),
        *(f"{name} {fields_by_name[name].text}" for name in readers if name in fields_by_name and name not in fields),
        f"event time {options.axes[axis].where}",
    )
    plan = WindowPlan(
        schema=plan_schema(readers), by=tuple(fields), order=HIDDEN_ORDER, read_from=read_from, **settings
    ).trimmed()
    spec = FrameSpec(
        window=plan.window,
        late_rule=plan.late_rule,
        key_watermark=plan.key_watermark,
        by=fields,
        aggregates=dict(plan.aggregates),
        axis=axis,
        buckets=buckets,
    )
    return read.options(**spec.as_options()).load(), plan, options.axes[axis].config.key
