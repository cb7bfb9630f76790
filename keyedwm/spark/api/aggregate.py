"""`aggregate`: Jet's windows over the in-band rows, results in the micro-batch that carried their watermark.

Rule: every fault of a call is an error here, before a row is read. The plan is rows → partials by bucket
(`staged_rows`, or `source`) → one group per bucket (`bucket`) → result columns (`unpack`); what crosses between is few
big rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keyedwm.config.validation import choice, duration_ms, whole
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME, WATERMARK
from keyedwm.core.window_rules import LatePolicy, LateRule
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.plan import FrameWindow, SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import WindowFunction
from keyedwm.operators.messages.windows import WindowKind
from keyedwm.operators.panes import Early
from keyedwm.operators.shuffle import ORDER, TIME
from keyedwm.spark.api.source import ship_source
from keyedwm.spark.api.store import Store, check_store, ship_messages
from keyedwm.spark.api.window_specs import window_key_watermark
from keyedwm.spark.arguments import argument_text, check_own_aggregates
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.build_plan import build_results
from keyedwm.spark.hosting.source_description import Source
from keyedwm.spark.hosting.staged_rows import ship_rows
from keyedwm.spark.setup.conf import PARTITIONS, check_provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESERVED = (EVENT_TIME, WATERMARK)


def aggregate(
    df: DataFrame | Source,
    by: str | Sequence[str] | Mapping[str, str],
    window: FrameWindow | SessionWindow | WindowKind,
    aggs: Mapping[str, AggregateSpec | WindowFunction],
    *,
    early: Early | None = None,
    late: str = "drop",
    lateness: str | None = None,
    late_rule: str = "window",
    accumulating: bool = True,
    axis: str = "",
    buckets: int | None = None,
    name: str | None = None,
    max_rows_per_batch: int | None = None,
    continue_from: str | None = None,
    store: Store | None = None,
    key_watermark: PerKey | None = None,
) -> DataFrame:
    """Aggregate the event rows of `df` by key and window; a window leaves in the batch that carried its watermark.

    df: rows of the keyedwm source, or of another aggregate, control rows included; or a `keyedwm.spark.source`, which
    is not loaded: then events become frames in the tasks that read them, and `by` and the aggregates name fields (such
    as `key::string`, `json:$.amount::double`, see docs/reference/windows.md). by: key columns, none for all rows
    together; over a source also result column → field. aggs: result column → aggregate. late: what becomes of late rows
    (`drop`, `emit`, `fail`). lateness: how long closed windows still take them. late_rule: `window`, `frame` or `event`
    (rule 11). early: see `keyedwm.spark.early`. accumulating: whether each pane holds the window's whole total or what
    is new. axis: the time axis, when several are configured. buckets: how many groups the keys are spread over, by
    default spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's channels (`NAME#BUCKET`) and
    metrics. max_rows_per_batch: about so many windows of all keys close in one batch at most, the others in the next
    ones; the result's watermark follows what has left. By default all that a watermark closes leaves in its batch.
    continue_from: a savepoint, whose windows are open at the start of a new checkpoint. store: keep the messages of
    windows, and compute each result again over all of them (docs/reference/window-store.md). key_watermark: windows of
    a key close by a watermark of its own (`keyedwm.spark.per_key`).

    Returns the `by` columns, `window`, one column per aggregate, `pane`, and `event_time` (the window's last
    millisecond). `watermark` and `control` are as the source has them, so that results can be sunk or aggregated again.
    Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    keys = _keys(by)
    _check_kinds(df, window, aggs, early)
    _check_settings(accumulating, axis, name, max_rows_per_batch, continue_from)
    _check_names((*keys, *aggs))
    settings: dict[str, Any] = {
        "window": window,
        "aggregates": tuple(aggs.items()),
        "time": TIME,
        "late": choice("late", late, LatePolicy),
        "late_rule": choice("late_rule", late_rule, LateRule),
        "lateness_ms": 0 if lateness is None else duration_ms("lateness", lateness),
        "early": early,
        "accumulating": accumulating,
        "most_rows": max_rows_per_batch,
    }
    settings |= window_key_watermark(key_watermark, window, store)
    check_store(store, settings)
    ids = bucket_ids(_bucket_count(_session_of(df), _spread_by(window, keys), buckets))
    settings["most_rows"] = None if max_rows_per_batch is None else -(-max_rows_per_batch // len(ids))
    shipped, plan, key = _shipped(df, by if isinstance(by, Mapping) else keys, settings, axis, ids, store=store)
    return build_results(shipped, plan, BucketLayout(name or _name(plan), tuple(ids), ((key,),)), continue_from, [df])


def _session_of(df: DataFrame | Source) -> SparkSession:
    """The session of the rows, whose state store fits."""
    spark = df.spark if isinstance(df, Source) else df.sparkSession
    check_provider(spark, "aggregate")
    return spark


def _spread_by(window: object, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns by which rows are spread: the keys, or what a window that counts rows says."""
    return window.spread_by(keys, ORDER) if isinstance(window, WindowKind) else keys


def _shipped(
    df: DataFrame | Source,
    by: Mapping[str, str] | tuple[str, ...],
    settings: Mapping[str, Any],
    axis: str,
    ids: Sequence[int],
    *,
    store: Store | None,
) -> tuple[DataFrame, WindowPlan | BucketStore, int]:
    """The shipped rows, the plan, and the watermark key of the axis."""
    if isinstance(by, Mapping) and not isinstance(df, Source):
        raise OptionError(f"aggregate: by={dict(by)!r} names fields of a source, this is a frame: rename its columns")
    if store is not None:
        return ship_messages(df, {**settings, "by": by, "store": store}, axis, ids)
    if isinstance(df, Source):
        return ship_source(df, by, settings, axis, len(ids))
    return ship_rows(df, tuple(by), settings, axis, ids)


def _keys(by: object) -> tuple[str, ...]:
    """The names of the key columns in the result."""
    keys = tuple(by) if isinstance(by, (Sequence, Mapping)) and not isinstance(by, str) else (by,)
    for key in (*keys, *(by.values() if isinstance(by, Mapping) else ())):
        if not isinstance(key, str):
            raise OptionError(f"aggregate: by={key!r}: the names of columns are expected; compute others before")
    return keys


def _check_kinds(df: object, window: object, aggs: object, early: object) -> None:
    """Raise OptionError for Spark's functions of the same names: they make columns, not windows and aggregates."""
    from pyspark.sql import DataFrame

    if not isinstance(df, (DataFrame, Source)):
        raise OptionError(
            f"aggregate: df={argument_text(df)}: a frame, or keyedwm.spark.kafka(...), is expected; load() a reader"
        )
    if not isinstance(aggs, Mapping) or not all(isinstance(name, str) for name in aggs):
        raise OptionError(f"aggregate: aggs={aggs!r}: a mapping is expected, such as {{'orders': count()}}")
    check_own_aggregates(aggs, "aggregate")
    if not isinstance(window, (SlidingWindow, ZonedWindow, SessionWindow, WindowKind)):
        raise OptionError(
            f"aggregate: window={window!r}: a window of keyedwm.spark is expected, such as tumbling('1 minute')"
        )
    if early is not None and not isinstance(early, Early):
        raise OptionError(f"aggregate: early={early!r}: keyedwm.spark.early(rows=..., every=...) is expected")


def _check_settings(accumulating: object, axis: object, name: object, most: object, savepoint: object) -> None:
    if not isinstance(accumulating, bool):
        raise OptionError(f"aggregate: accumulating={accumulating!r}: True or False is expected")
    if not isinstance(axis, str):
        raise OptionError(f"aggregate: axis={axis!r}: the name of a time axis is expected, or leave it out")
    if name is not None and not (isinstance(name, str) and name):
        raise OptionError(f"aggregate: name={name!r}: a text is expected, or leave it out")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise OptionError(f"aggregate: max_rows_per_batch={most!r}: a whole number of at least 1 is expected, or none")
    if savepoint is not None and not isinstance(savepoint, str):
        raise OptionError(
            f"aggregate: continue_from={savepoint!r}: the place of a savepoint is expected, or leave it out"
        )


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name.lower() in _RESERVED:
            raise OptionError(
                f"aggregate: a result column cannot be called {name!r}: results have one of that name already, "
                f"as the source's rows do; rename it first"
            )


def _bucket_count(spark: SparkSession, keys: Sequence[str], buckets: int | None) -> int:
    if not keys:
        if buckets not in (None, 1):
            raise OptionError(f"aggregate: buckets={buckets} without key columns, there is one bucket: remove it")
        return 1
    return whole("buckets", str(buckets if buckets is not None else spark.conf.get(PARTITIONS)))


def _name(plan: WindowPlan | BucketStore) -> str:
    if isinstance(plan, BucketStore):
        return f"store-{plan.digest()[:6]}"
    kind = "session" if isinstance(plan.window, SessionWindow) else "window"
    return f"{kind}-{plan.digest()[:6]}"
