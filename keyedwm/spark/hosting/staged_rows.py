"""Stage one over a frame of the source's rows: the rows that `stage_one` ships to the buckets.

Rule: only needed columns are sent to Python: the columns in use, event times in ms, the control row as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from keyedwm.arrow.schema import CONTROL_TYPE, CONTROL_TYPE_1, REJECTED_TYPE, axis_column, is_rejected_type, nullable
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import AXIS_KEY, CONTROL, CONTROL_FIELDS, CONTROL_FIELDS_1, EVENT_TIME, REJECTED, WATERMARK
from keyedwm.core.text import nearest
from keyedwm.operators.exchange_input import ExchangeInput
from keyedwm.operators.frames.partials import ExchangePartials
from keyedwm.operators.frames.plan import RowGapWindow, WindowPlan
from keyedwm.operators.plan_checks import not_a_gap
from keyedwm.operators.shuffle import EXCHANGE_SCHEMA, ORDER, TIME
from keyedwm.spark.arguments import analysed
from keyedwm.spark.hosting.lineage import check_lineage, refuse_several_rows
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def ship_rows(
    df: DataFrame, keys: Sequence[str], settings: Mapping[str, Any], axis: str, ids: Sequence[int]
) -> tuple[DataFrame, WindowPlan, int]:
    """Return the shipped rows, the plan, and the axis's watermark key. settings: the plan's. ids: the buckets'."""
    check_rows(df, axis)
    gap = [settings["window"].gap_column] if isinstance(settings["window"], RowGapWindow) else []
    read = [name for _, spec in settings["aggregates"] for name in spec.inputs(df.columns)]
    columns = list(dict.fromkeys([*keys, *gap, *read]))
    check_columns(df, columns)
    check_free(columns, "aggregate")
    check_keys(df, keys)
    for column in gap:  # Spark has no Arrow type for a calendar interval: its own error would not name the column
        if df.schema[column].dataType.typeName() == "interval":
            raise not_a_gap(column, "calendar interval")
    timed = timed_rows(df, {TIME: axis})
    order = ORDER if set(ORDER) <= set(df.columns) else ()
    per_key = settings.get("key_watermark")
    if per_key is not None and per_key.slowest and not order:
        raise OptionError(
            f"aggregate: key_watermark separates the partitions of a key, and the frame has not all of "
            f"{', '.join(ORDER)}: keep them as the source has them, or give per_key(..., partitions='fastest')"
        )
    schema = arrow_schema(columns_of(timed, [*columns, *order, TIME]))
    plan = WindowPlan(schema=schema, by=tuple(keys), order=order, **settings).trimmed()
    return ship(df, ExchangePartials(plan), {TIME: axis}, ids), plan, axis_key(df, axis)


def ship_inputs(
    rows: Sequence[DataFrame | Source],
    inputs: Sequence[ExchangeInput],
    times: Sequence[Mapping[str, str]],
    ids: Sequence[int],
) -> DataFrame:
    """Return the shipped rows of all inputs. rows, inputs, times: the arguments of `ship` for each input."""
    each = zip(rows, inputs, times, strict=True)
    shipped = [ship(*one, ids, number=number) for number, one in enumerate(each)]
    return reduce(lambda one, other: one.unionAll(other), shipped)


def ship(
    rows: DataFrame | Source,
    exchange: ExchangeInput,
    times: Mapping[str, str],
    ids: Sequence[int],
    *,
    number: int = 0,
    fields: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the shipped rows of an input: the tasks of a read ship their rows, or other tasks the rows of a frame.

    times: column of event times in ms -> its axis. ids: the buckets'. number: the input's. fields: column -> field of
    a source, by default the same name.
    """
    if isinstance(rows, Source):
        from pyspark_wm_source.options.stage import StageSpec

        fields = fields or {name: name for name in exchange.columns if name not in times}
        description = exchange.description()
        spec = StageSpec(fields=fields, times=times, exchange=description, number=number, buckets=len(ids))
        return rows.options(**spec.as_options()).load()
    from pyspark.sql.pandas.types import from_arrow_schema

    back = [REJECTED] if rejected_type(rows) else []
    unnamed_rows = unnamed(timed_rows(rows, times), [*exchange.columns, *back, CONTROL_TEXT])
    stage = StageOne({number: exchange}, tuple(ids), bool(back))
    return unnamed_rows.mapInArrow(stage, from_arrow_schema(EXCHANGE_SCHEMA))


def unnamed(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return these columns, named by their places: Spark's mapInArrow accepts no names with dots."""
    rows = columns_of(df, names)
    return rows.toDF(*map(str, range(len(rows.columns))))


def message_columns(df: DataFrame, asked_by: str) -> pa.Schema:
    """Return the schema of the messages that a store keeps. asked_by: the operator, for errors."""
    missing = [name for name in ORDER if name not in df.columns]
    if missing:
        raise InputError(
            f"{asked_by}: the frame has no column {missing[0]!r}: a store knows a message by its topic, partition and "
            "offset, as the source's rows have them; keep them when columns are chosen"
        )
    refuse_several_rows(df, asked_by)
    check_free(payload_columns(df), asked_by)
    # A row of results has no message, and an unmatched message has no partner: so every column can be null.
    return pa.schema([nullable(one) for one in arrow_schema(columns_of(df, payload_columns(df)))])


def payload_columns(df: DataFrame) -> list[str]:
    """Return the columns of event rows without control, watermarks and rejected records."""
    excluded = {CONTROL, REJECTED} if rejected_type(df) else {CONTROL}
    return [column for column in df.columns if column not in excluded and not _is_watermark(df, column)]


def _is_watermark(df: DataFrame, column: str) -> bool:
    """Return whether a column contains the watermark of a time axis: a user's column may have a similar name."""
    axis = column.removeprefix(f"{WATERMARK}_")
    if axis == column:
        return column == WATERMARK
    return axis_column(EVENT_TIME, axis) in df.columns or AXIS_KEY in df.schema[column].metadata


def control_columns(df: DataFrame) -> list[str]:
    """Return the source's column of control rows, if the frame has one. SQL may have spelled its name in capitals.

    A column of this name and another type is the user's own.
    """
    return [field.name for field in df.schema.fields if field.name.lower() == CONTROL and is_control(field.dataType)]


def is_control(kind: DataType) -> bool:
    """Whether a type is that of the source's control rows, also of version 1."""
    from pyspark.sql.types import StructType

    return isinstance(kind, StructType) and tuple(kind.fieldNames()) in (CONTROL_FIELDS, CONTROL_FIELDS_1)


def rejected_type(one: DataFrame | Source) -> pa.StructType | None:
    """Return the type of the column of rejected records, None without one."""
    if isinstance(one, Source):
        from pyspark_wm_source.options.source_options import SourceOptions

        return REJECTED_TYPE if SourceOptions.parse(one.set_options).has_rejected_column else None
    from pyspark.sql.types import StructType

    for name in one.columns:  # SQL may have spelled the name in capitals
        if name.lower() == REJECTED and isinstance(one.schema[name].dataType, StructType):
            kind = _in_arrow(StructType([one.schema[name]])).field(0).type
            return kind if is_rejected_type(kind) else None
    return None


def timed_rows(df: DataFrame, times: Mapping[str, str]) -> DataFrame:
    """Return the rows with event times in ms and the control row as text. times: column to add -> its axis."""
    from pyspark.sql import functions as F

    added = {name: F.unix_millis(F.col(f"`{axis_column(EVENT_TIME, axis)}`")) for name, axis in times.items()}
    return df.withColumns({**added, CONTROL_TEXT: control_text(df)})


def columns_of(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return these columns, each once; a dot or a backtick in a name is literal. Raise OptionError for a duplicate."""
    check_doubled(df, names)
    return df.select(*(f"`{name.replace('`', '``')}`" for name in dict.fromkeys(names)))


def check_doubled(df: DataFrame, names: Iterable[str]) -> None:
    """Raise OptionError if the frame has several columns of one of these names, as after a join."""
    spelled = str if df.sparkSession.conf.get("spark.sql.caseSensitive") == "true" else str.lower
    count = Counter(map(spelled, df.columns))
    for name in names:
        if count[spelled(name)] > 1:
            raise OptionError(
                f"the frame has {count[spelled(name)]} columns called {name!r}: rename all but one, or leave them out"
            )


def control_text(df: DataFrame) -> Column:
    """Return a control row as the text that `keyedwm.core.control_row` reads; null for an event row."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_type

    control = F.col(CONTROL)
    names = CONTROL_FIELDS if df.schema[CONTROL].dataType == from_arrow_type(CONTROL_TYPE) else CONTROL_FIELDS_1
    fields = [control[name].alias(name) for name in names if name != "watermark"]
    fields.append(F.unix_millis(control["watermark"]).alias("watermark_ms"))
    if "offset" in df.columns and df.schema["offset"].dataType.typeName() == "long":
        fields.append(F.col("offset"))
    return F.when(control.isNotNull(), F.to_json(F.struct(*fields)))


def check_rows(df: DataFrame, axis: str, asked_by: str = "aggregate", *, takes_panes: bool = False) -> None:
    """Raise InputError for a frame without control rows or event times, OptionError for panes unless `takes_panes`."""
    from pyspark.sql.pandas.types import from_arrow_type

    if not analysed(lambda: df.isStreaming, asked_by):
        raise InputError(
            f"{asked_by}: the frame is a batch read, which has no watermarks to close windows: read it with "
            "spark.readStream (and trigger(availableNow=True)), or take Spark's own groupBy"
        )
    known = [from_arrow_type(kind) for kind in (CONTROL_TYPE, CONTROL_TYPE_1)]
    if CONTROL not in df.columns or df.schema[CONTROL].dataType not in known:
        raise InputError(
            f"{asked_by}: the frame has no control rows (columns {', '.join(df.columns)}): it must be rows of the "
            f"keyedwm source, read as a stream with emitControl=true and the column {CONTROL!r} kept"
        )
    for column in (axis_column(EVENT_TIME, axis), axis_column(WATERMARK, axis)):
        if column not in df.columns:
            check_lineage(df, asked_by, takes_panes=takes_panes)  # the error if with_watermark dropped it
            axes = [c.removeprefix(f"{WATERMARK}_") for c in df.columns if c.startswith(f"{WATERMARK}_")]
            hint = f"axis must be one of {', '.join(axes)}" if axes else "keep it when columns are chosen"
            raise InputError(f"{asked_by}: the frame has no column {column!r}; {hint}")
    check_doubled(df, (CONTROL, axis_column(EVENT_TIME, axis), axis_column(WATERMARK, axis)))
    type_name = df.schema[axis_column(EVENT_TIME, axis)].dataType.typeName()
    if type_name != "timestamp":
        raise InputError(
            f"{asked_by}: the column {axis_column(EVENT_TIME, axis)!r} is of type {type_name}, it must be a timestamp, "
            "as the source has it"
        )
    check_lineage(df, asked_by, takes_panes=takes_panes)


def check_columns(df: DataFrame, columns: Sequence[str], asked_by: str = "aggregate") -> None:
    """Raise OptionError for columns that the frame does not have."""
    for column in columns:
        if column not in df.columns:
            hint = nearest(column, df.columns)
            raise OptionError(
                f"{asked_by}: the frame has no column {column!r}; "
                + (f"did you mean {hint!r}?" if hint else f"it has {', '.join(df.columns)}")
            )


def check_free(columns: Iterable[str], asked_by: str) -> None:
    """Raise OptionError for columns with the names that `timed_rows` adds: it would replace them."""
    reserved = next((column for column in columns if column.lower() in (TIME, CONTROL_TEXT)), None)
    if reserved is not None:
        raise OptionError(
            f"{asked_by}: a column cannot be called {reserved!r}, as operators add one of that name: rename it"
        )


def check_keys(df: DataFrame, keys: Sequence[str], asked_by: str = "aggregate") -> None:
    """Raise OptionError for keys that the frame does not have, or that Spark does not compare byte by byte."""
    check_columns(df, keys, asked_by)
    for key in keys:
        check_collation(df, key, f"{asked_by}: the key {key!r}")


def check_collation(df: DataFrame, column: str, expects: str) -> None:
    """Raise OptionError for a key that Spark does not compare byte by byte. expects: the start of the message."""
    collation = getattr(df.schema[column].dataType, "collation", "UTF8_BINARY")
    if collation != "UTF8_BINARY":
        raise OptionError(
            f"{expects} has the collation {collation}, but keys are compared byte by byte: take "
            f"collation_key({column}), or lower({column}) collate UTF8_BINARY"
        )


def axis_key(df: DataFrame, axis: str, asked_by: str = "aggregate") -> int:
    """Return the axis's watermark key, which the source writes into the metadata of the watermark column."""
    column = axis_column(WATERMARK, axis)
    metadata = df.schema[column].metadata
    if axis and AXIS_KEY not in metadata:
        raise InputError(
            f"{asked_by}: column {column!r} does not know its watermark key: keep the source's own column, not a copy "
            f"or an expression"
        )
    return metadata.get(AXIS_KEY, 0)


def arrow_schema(df: DataFrame) -> pa.Schema:
    """Return the columns in Arrow, timestamps in UTC. Raises OptionError for a type that Arrow does not have."""
    return _in_arrow(df.schema)


def _in_arrow(schema: StructType) -> pa.Schema:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        users = [column for column in schema.names if column not in (TIME, CONTROL_TEXT)]
        raise OptionError(
            f"a column among {', '.join(users)} has a type that Spark cannot hand to Python, so leave it out or "
            f"cast it: {error}"
        ) from error
