"""Stage one behind the source: a frame of in-band rows becomes what `stage_one` ships.

Rule: only what is needed crosses into Python: the columns in use, event time as ms, the control row as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keyedwm.arrow.schema import CONTROL_TYPE, axis_column
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.options import nearest
from keyedwm.core.rows import AXIS_KEY, CONTROL, CONTROL_FIELDS, EVENT_TIME, WATERMARK
from keyedwm.spark.stage_one import CONTROL_TEXT, StageOne
from keyedwm.windows.plan import Plan
from keyedwm.windows.shipping import ORDER, SHIPPED, TIME

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


def ship_rows(
    df: DataFrame, keys: Sequence[str], asked: Mapping[str, Any], axis: str, ids: Sequence[int]
) -> tuple[DataFrame, Plan, int]:
    """Return what is shipped to the buckets, the plan, and the watermark key of the axis; asked: for the plan."""
    from pyspark.sql.pandas.types import from_arrow_schema

    _check_rows(df, axis)
    used = list(dict.fromkeys([*keys, *(spec.column for _, spec in asked["aggregates"] if spec.column is not None)]))
    _check_columns(df, used)
    timed = _timed(df, axis)
    order = ORDER if set(ORDER) <= set(df.columns) else ()
    schema = _arrow_schema(_columns(timed, [*used, *order, TIME]))
    plan = Plan(schema=schema, by=tuple(keys), order=order, **asked).trimmed()
    rows = _columns(timed, [*plan.columns, CONTROL_TEXT])
    rows = rows.toDF(*map(str, range(len(rows.columns))))  # Spark's mapInArrow takes no names with dots
    return rows.mapInArrow(StageOne(plan, tuple(ids)), from_arrow_schema(SHIPPED)), plan, _key(df, axis)


def _timed(df: DataFrame, axis: str) -> DataFrame:
    """The rows with their event time in ms and their control row as text: only what is needed crosses into Python."""
    from pyspark.sql import functions as F

    time = F.unix_millis(F.col(axis_column(EVENT_TIME, axis)))
    return df.withColumns({TIME: time, CONTROL_TEXT: _control_text(df)})


def _columns(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns, each once; a dot or a backtick in a name is that."""
    return df.select(*(f"`{name.replace('`', '``')}`" for name in dict.fromkeys(names)))


def _control_text(df: DataFrame) -> Column:
    from pyspark.sql import functions as F

    control = F.col(CONTROL)
    fields = [control[name].alias(name) for name in CONTROL_FIELDS if name != "watermark"]
    fields.append(F.unix_millis(control["watermark"]).alias("watermark_ms"))
    if "offset" in df.columns and df.schema["offset"].dataType.typeName() == "long":
        fields.append(F.col("offset"))
    return F.when(control.isNotNull(), F.to_json(F.struct(*fields)))


def _check_rows(df: DataFrame, axis: str) -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    if not df.isStreaming:
        raise InputError(
            "aggregate: the frame is a batch read, which has no watermarks to close windows: read it with "
            "spark.readStream (and trigger(availableNow=True)), or take Spark's own groupBy"
        )
    if CONTROL not in df.columns or df.schema[CONTROL].dataType != from_arrow_type(CONTROL_TYPE):
        raise InputError(
            f"aggregate: the frame has no control rows (columns {', '.join(df.columns)}): it must be rows of the "
            f"keyedwm source, read as a stream with emitControl=true and the column {CONTROL!r} kept"
        )
    for column in (axis_column(EVENT_TIME, axis), axis_column(WATERMARK, axis)):
        if column not in df.columns:
            axes = [c.removeprefix(f"{WATERMARK}_") for c in df.columns if c.startswith(f"{WATERMARK}_")]
            hint = f"axis must be one of {', '.join(axes)}" if axes else "keep it when columns are chosen"
            raise InputError(f"aggregate: the frame has no column {column!r}; {hint}")
    found = df.schema[axis_column(EVENT_TIME, axis)].dataType.typeName()
    if found != "timestamp":
        raise InputError(
            f"aggregate: the column {axis_column(EVENT_TIME, axis)!r} is of type {found}, it must be a timestamp, as "
            f"the source has it"
        )


def _check_columns(df: DataFrame, used: Sequence[str]) -> None:
    for column in used:
        if column not in df.columns:
            hint = nearest(column, df.columns)
            raise OptionError(
                f"aggregate: the frame has no column {column!r}; "
                + (f"did you mean {hint!r}?" if hint else f"it has {', '.join(df.columns)}")
            )


def _key(df: DataFrame, axis: str) -> int:
    """The watermark key of the axis, which the source writes into the metadata of the axis's watermark column."""
    column = axis_column(WATERMARK, axis)
    metadata = df.schema[column].metadata
    if axis and AXIS_KEY not in metadata:
        raise InputError(
            f"aggregate: column {column!r} does not know its watermark key: keep the source's own column, not a copy "
            f"or an expression"
        )
    return metadata.get(AXIS_KEY, 0)


def _arrow_schema(df: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(df.schema, timezone="UTC")
