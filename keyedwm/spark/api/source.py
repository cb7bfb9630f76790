"""`source`: a read that is described and not loaded, so that `aggregate` can run its stage one in the reading tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.places import FieldReader
from keyedwm.config.places import field_of
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.places import Field
from keyedwm.operators.aggregates.functions import Aggregate
from keyedwm.operators.aggregates.spec import AggregateSpec, is_simple
from keyedwm.operators.frames.partials import ExchangePartials
from keyedwm.operators.frames.plan import RowGapWindow, WindowPlan
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.shuffle import ORDER, TIME
from keyedwm.spark.arguments import require_session
from keyedwm.spark.hosting.source_description import Source, named_fields
from keyedwm.spark.hosting.staged_rows import ship

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Hidden names, since a result column may be called `topic`.
HIDDEN_ORDER = tuple(HIDDEN_PREFIX + name for name in ORDER)


def source(spark: SparkSession) -> Source:
    """Describe a read of the keyedwm source: what `aggregate` and joins do before the shuffle runs in the tasks that
    read.

    Then frames, or few big blobs of messages, and not events cross into the JVM, and only what is needed is decoded.
    """
    require_session(spark, "source")
    return Source(spark)


def ship_source(
    read: Source, by: Mapping[str, str] | Sequence[str], settings: Mapping[str, Any], axis: str, ids: Sequence[int]
) -> tuple[DataFrame, WindowPlan, int]:
    """Return the shipped rows, the plan, and the watermark key of the axis; settings: the plan's other fields."""
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
    if options.selection.names is not None and not options.selection.fields:
        raise OptionError(
            "option columns has no effect on windows over a source that is not loaded, which reads the fields of by "
            "and aggregates: remove the option"
        )
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
    shipped = ship(read, ExchangePartials(plan), {TIME: axis}, ids, fields=field_texts(plan, fields))
    return shipped, plan, options.axes[axis].config.key


def field_texts(plan: WindowPlan, by: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that a plan uses, and the field of each; by: result column → field."""
    return {name: by.get(name, name.removeprefix(HIDDEN_PREFIX)) for name in plan.columns if name != plan.time}


def plan_readers(
    by: Mapping[str, str], aggregates: Iterable[AggregateSpec], columns: pa.Schema, selected: Mapping[str, Field]
) -> dict[str, FieldReader]:
    """Return the readers of a plan's input columns.

    by: result column → field. columns: the source's columns. selected: the source's columns that the option `columns`
    defines by a field.
    """
    fields = {name: Field(name.removeprefix(HIDDEN_PREFIX)) for name in HIDDEN_ORDER}
    fields |= {name: field_of("by", text, columns.names, selected) for name, text in by.items()}
    for text in [name for spec in aggregates for name in spec.inputs(())]:
        field = field_of("aggregates", text, columns.names, selected)
        if fields.setdefault(text, field) != field:
            raise OptionError(
                f"option by: a result column cannot be called {text!r}, which is a column of the source that the "
                f"aggregates read; give it another name"
            )
    return {name: FieldReader(field, columns) for name, field in fields.items()}


def plan_schema(readers: Mapping[str, FieldReader]) -> pa.Schema:
    """Return the columns of the rows that become partials: the fields, and the event time in ms."""
    fields = [pa.field(name, reader.type) for name, reader in readers.items()]
    return pa.schema([*fields, pa.field(TIME, pa.int64())])
