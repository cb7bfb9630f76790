"""`aggregate`: Jet's windows over the in-band rows, results in the micro-batch that carried their watermark.

Rule: everything that can be wrong with a call is told here, before a row is read. The plan is rows → partials by bucket
(`stage_one`) → one group per bucket (`bucket`) → result columns (`unpack`); what crosses between is few big rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from keyedwm.arrow.schema import CONTROL_TYPE, axis_column
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.late import LateRule
from keyedwm.core.options import choice, duration_ms, nearest, whole
from keyedwm.core.rows import AXIS_KEY, CONTROL, CONTROL_FIELDS, EVENT_TIME, WATERMARK
from keyedwm.spark.buckets import bucket_ids
from keyedwm.spark.conf import PARTITIONS, check_provider
from keyedwm.spark.stage_one import CONTROL_TEXT, SHIPPED, StageOne
from keyedwm.windows.aggregates import AggregateSpec
from keyedwm.windows.plan import Early, LatePolicy, Plan, Session, Sliding

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

TIME = "__time"
ORDER = ("topic", "partition", "offset")
_TAKEN = (EVENT_TIME, WATERMARK)


def aggregate(
    df: DataFrame,
    by: str | Sequence[str],
    window: Sliding | Session,
    aggs: Mapping[str, AggregateSpec],
    *,
    early: Early | None = None,
    late: str = "drop",
    lateness: str | None = None,
    late_rule: str = "window",
    accumulating: bool = True,
    axis: str = "",
    buckets: int | None = None,
    name: str | None = None,
) -> DataFrame:
    """Aggregate the event rows of `df` by key and window; a window leaves in the batch that carried its watermark.

    df: rows of the keyedwm source, or of another aggregate, control rows included. by: key columns, none for all rows
    together. aggs: result column → aggregate. late: what becomes of late rows (`drop`, `emit`, `fail`). lateness: how
    long closed windows still take them. late_rule: `window`, `frame` or `event` (DESIGN rule 11). early: see
    `keyedwm.spark.early`. accumulating: whether each pane holds the window's whole total or what is new. axis: the
    time axis, when several are configured. buckets: how many groups the keys are spread over, by default
    spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's channels (`NAME#BUCKET`) and metrics.

    Returns the `by` columns, `window`, one column per aggregate, `pane`, and `event_time` (the window's last
    millisecond), `watermark`, `control` as the source has them, so that results can be sunk or aggregated again.
    Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    _check_rows(df, axis)
    _check_columns(df, keys, aggs)
    timed = _timed(df, axis)
    order = ORDER if set(ORDER) <= set(df.columns) else ()
    plan = Plan(
        schema=_arrow_schema(_columns(timed, [*_used(keys, aggs), *order, TIME])),
        by=keys,
        window=window,
        aggregates=tuple(aggs.items()),
        time=TIME,
        order=order,
        late=choice("late", late, LatePolicy),
        late_rule=choice("late_rule", late_rule, LateRule),
        lateness_ms=0 if lateness is None else duration_ms("lateness", lateness),
        early=early,
        accumulating=accumulating,
    )
    if not any(getattr(kind, "order", ()) for kind in plan.kinds):
        plan = replace(plan, order=())  # a column that decides nothing need not cross into Python
    check_provider(df.sparkSession, "aggregate")
    ids = bucket_ids(_bucket_count(df, keys, buckets))
    return _wired(_columns(timed, [*plan.columns, CONTROL_TEXT]), plan, ids, name or _name(plan), _key(df, axis))


def _wired(staged: DataFrame, plan: Plan, ids: Sequence[int], name: str, key: int) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    from keyedwm.spark.bucket import Bucket
    from keyedwm.spark.round import EMITTED, Placing
    from keyedwm.spark.unpack import Unpack, output_schema

    by_clock = plan.early is not None and plan.early.every_ms is not None
    output = output_schema(plan.result_schema)
    emitted = (
        staged.mapInArrow(StageOne(plan, tuple(ids)), from_arrow_schema(SHIPPED))
        .groupBy("bucket")
        .transformWithStateInPandas(
            Bucket(plan, Placing(name, tuple(ids), key)), EMITTED, "append", "ProcessingTime" if by_clock else "None"
        )
    )
    told = [F.sum(metric).alias(metric) for metric in ("late_rows", "timeless_rows", "frames", "state_bytes")]
    return emitted.observe(name, *told).mapInArrow(Unpack(output), from_arrow_schema(output))


def _timed(df: DataFrame, axis: str) -> DataFrame:
    """The rows with their event time in ms and their control row as text: only what is needed crosses into Python."""
    from pyspark.sql import functions as F

    time = F.unix_millis(F.col(axis_column(EVENT_TIME, axis)))
    return df.withColumns({TIME: time, CONTROL_TEXT: _control_text(df)})


def _columns(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns, each once; a dot in a name is a dot."""
    return df.select(*(f"`{name}`" for name in dict.fromkeys(names)))


def _used(keys: Sequence[str], aggs: Mapping[str, AggregateSpec]) -> list[str]:
    """The columns that the user named, each once."""
    return list(dict.fromkeys([*keys, *(spec.column for spec in aggs.values() if spec.column is not None)]))


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


def _check_columns(df: DataFrame, keys: Sequence[str], aggs: Mapping[str, AggregateSpec]) -> None:
    for column in _used(keys, aggs):
        if column not in df.columns:
            hint = nearest(column, df.columns)
            raise OptionError(
                f"aggregate: the frame has no column {column!r}; "
                + (f"did you mean {hint!r}?" if hint else f"it has {', '.join(df.columns)}")
            )
    for column in (*keys, *aggs):
        if column in _TAKEN:
            raise OptionError(
                f"aggregate: a result column cannot be called {column!r}: results have one of that name already, "
                f"as the source's rows do; rename it first"
            )


def _bucket_count(df: DataFrame, keys: Sequence[str], buckets: int | None) -> int:
    if not keys:
        if buckets not in (None, 1):
            raise OptionError(
                f"aggregate: buckets={buckets} without key columns, one bucket holds it all: leave it out"
            )
        return 1
    return whole("buckets", str(buckets if buckets is not None else df.sparkSession.conf.get(PARTITIONS)))


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


def _name(plan: Plan) -> str:
    kind = "session" if isinstance(plan.window, Session) else "window"
    return f"{kind}-{plan.digest()[:6]}"


def _arrow_schema(df: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(df.schema, timezone="UTC")
