"""`aggregate`: Jet's windows over the in-band rows, results in the micro-batch that carried their watermark.

Rule: everything that can be wrong with a call is told here, before a row is read. The plan is rows → partials by bucket
(`staged_rows`, or `source`) → one group per bucket (`bucket`) → result columns (`unpack`); what crosses between is few
big rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError
from keyedwm.core.late import LateRule
from keyedwm.core.options import choice, duration_ms, whole
from keyedwm.core.rows import EVENT_TIME, WATERMARK
from keyedwm.spark.conf import PARTITIONS, check_provider
from keyedwm.spark.round import EMITTED, Placing
from keyedwm.spark.source import Source, ship_source
from keyedwm.spark.staged_rows import ship_rows
from keyedwm.windows.aggregates import AggregateSpec, check_aggregate
from keyedwm.windows.buckets import bucket_ids
from keyedwm.windows.plan import Early, LatePolicy, Plan, Session, Sliding
from keyedwm.windows.shipping import TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TAKEN = (EVENT_TIME, WATERMARK)


def aggregate(
    df: DataFrame | Source,
    by: str | Sequence[str] | Mapping[str, str],
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

    df: rows of the keyedwm source, or of another aggregate, control rows included; or a `keyedwm.spark.source`, which
    is not loaded: then events become frames in the tasks that read them, and `by` and the aggregates name fields (such
    as `key::string`, `json:$.amount::double`, see docs/windows.md). by: key columns, none for all rows together; over a
    source also result column → field. aggs: result column → aggregate. late: what becomes of late rows (`drop`, `emit`,
    `fail`). lateness: how long closed windows still take them. late_rule: `window`, `frame` or `event` (DESIGN rule
    11). early: see `keyedwm.spark.early`. accumulating: whether each pane holds the window's whole total or what is
    new. axis: the time axis, when several are configured. buckets: how many groups the keys are spread over, by default
    spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's channels (`NAME#BUCKET`) and metrics.

    Returns the `by` columns, `window`, one column per aggregate, `pane`, and `event_time` (the window's last
    millisecond), `watermark`, `control` as the source has them, so that results can be sunk or aggregated again.
    Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    keys = _keys(by)
    _check_kinds(df, window, aggs, early)
    _check_settings(accumulating, axis, name)
    _check_names((*keys, *aggs))
    asked = {
        "window": window,
        "aggregates": tuple(aggs.items()),
        "time": TIME,
        "late": choice("late", late, LatePolicy),
        "late_rule": choice("late_rule", late_rule, LateRule),
        "lateness_ms": 0 if lateness is None else duration_ms("lateness", lateness),
        "early": early,
        "accumulating": accumulating,
    }
    spark = df.spark if isinstance(df, Source) else df.sparkSession
    check_provider(spark, "aggregate")
    ids = bucket_ids(_bucket_count(spark, keys, buckets))
    if isinstance(df, Source):
        shipped, plan, key = ship_source(df, by if isinstance(by, Mapping) else keys, asked, axis, len(ids))
    elif isinstance(by, Mapping):
        raise OptionError(f"aggregate: by={dict(by)!r} names fields of a source, this is a frame: rename its columns")
    else:
        shipped, plan, key = ship_rows(df, keys, asked, axis, ids)
    return _wired(shipped, plan, Placing(name or _name(plan), tuple(ids), key))


def _wired(shipped: DataFrame, plan: Plan, placing: Placing) -> DataFrame:
    """From what stage one shipped to the results."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    from keyedwm.spark.bucket import Bucket
    from keyedwm.spark.unpack import Unpack, output_schema

    by_clock = plan.early is not None and plan.early.every_ms is not None
    output = output_schema(plan.result_schema)
    emitted = shipped.groupBy("bucket").transformWithStateInPandas(
        Bucket(plan, placing), EMITTED, "append", "ProcessingTime" if by_clock else "None"
    )
    told = [F.sum(metric).alias(metric) for metric in ("late_rows", "timeless_rows", "frames", "state_bytes")]
    return emitted.observe(placing.name, *told).mapInArrow(Unpack(output), from_arrow_schema(output))


def _keys(by: object) -> tuple[str, ...]:
    """The names of the key columns in the result."""
    keys = tuple(by) if isinstance(by, (Sequence, Mapping)) and not isinstance(by, str) else (by,)
    for key in (*keys, *(by.values() if isinstance(by, Mapping) else ())):
        if not isinstance(key, str):
            raise OptionError(f"aggregate: by={key!r}: the names of columns are wanted; compute others before")
    return keys


def _check_kinds(df: object, window: object, aggs: object, early: object) -> None:
    """Refuse what is Spark's: its functions of the same names make columns, not windows and aggregates of ours."""
    from pyspark.sql import DataFrame

    if not isinstance(df, (DataFrame, Source)):
        raise OptionError(f"aggregate: df={df!r}: a frame, or keyedwm.spark.source(spark), is wanted; load() a reader")
    if not isinstance(aggs, Mapping) or not all(isinstance(name, str) for name in aggs):
        raise OptionError(f"aggregate: aggs={aggs!r}: a mapping is wanted, such as {{'orders': count()}}")
    if not isinstance(window, (Sliding, Session)):
        raise OptionError(f"aggregate: window={window!r}: keyedwm.spark's tumbling, sliding or session is wanted")
    for name, spec in aggs.items():
        check_aggregate(name, spec)
    if early is not None and not isinstance(early, Early):
        raise OptionError(f"aggregate: early={early!r}: keyedwm.spark.early(rows=..., every=...) is wanted")


def _check_settings(accumulating: object, axis: object, name: object) -> None:
    if not isinstance(accumulating, bool):
        raise OptionError(f"aggregate: accumulating={accumulating!r}: True or False is wanted")
    if not isinstance(axis, str):
        raise OptionError(f"aggregate: axis={axis!r}: the name of a time axis is wanted, or leave it out")
    if name is not None and not (isinstance(name, str) and name):
        raise OptionError(f"aggregate: name={name!r}: a text is wanted, or leave it out")


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name.lower() in _TAKEN:
            raise OptionError(
                f"aggregate: a result column cannot be called {name!r}: results have one of that name already, "
                f"as the source's rows do; rename it first"
            )


def _bucket_count(spark: SparkSession, keys: Sequence[str], buckets: int | None) -> int:
    if not keys:
        if buckets not in (None, 1):
            raise OptionError(
                f"aggregate: buckets={buckets} without key columns, one bucket holds it all: leave it out"
            )
        return 1
    return whole("buckets", str(buckets if buckets is not None else spark.conf.get(PARTITIONS)))


def _name(plan: Plan) -> str:
    kind = "session" if isinstance(plan.window, Session) else "window"
    return f"{kind}-{plan.digest()[:6]}"
