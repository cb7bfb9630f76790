"""`aggregate`: Jet's windows over the in-band rows, results in the micro-batch that carried their watermark.

Rule: every fault of a call is an error here, before a row is read. The plan is rows → partials by bucket
(`staged_rows`, or `source`) → one group per bucket (`bucket`) → result columns (`unpack`); what crosses between is few
big rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keyedwm.config.validation import choice, duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import EVENT_TIME, WATERMARK
from keyedwm.core.window_rules import LatePolicy, LateRule
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.frames.plan import FrameWindow, SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.frames.zoned import ZonedWindow
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import WindowFunction
from keyedwm.operators.messages.windows import WindowKind
from keyedwm.operators.panes import Early
from keyedwm.operators.shuffle import ORDER, TIME
from keyedwm.spark.api.common_arguments import CommonArguments, check_aggregates, check_axis, check_each
from keyedwm.spark.api.source import ship_source
from keyedwm.spark.api.store import Store, check_store, ship_messages
from keyedwm.spark.api.window_specs import window_key_watermark
from keyedwm.spark.hosting.source_description import Source, stream_of
from keyedwm.spark.hosting.staged_rows import ship_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    """Aggregate the event rows of `df` by key and window; emit a window in the batch whose watermark closes it.

    df: rows of the keyedwm source, or of another aggregate, control rows included; or a `keyedwm.spark.source`, which
    is not loaded: then events become frames in the tasks that read them, and `by` and the aggregates name fields (such
    as `key::string`, `json:$.amount::double`, see docs/reference/windows.md). by: key columns, none for all rows
    together; over a source also result column → field. aggs: result column → aggregate. late: what becomes of late rows
    (`drop`, `emit`, `fail`). lateness: how long a closed window still accepts late rows. late_rule: `window`, `frame`
    or `event` (rule 11). early: see `keyedwm.spark.early`. accumulating: True: a pane holds the window's whole total;
    False: the total of the rows since the previous pane. axis: the time axis, if several are configured. buckets: how
    many groups the keys are spread over, by default spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the
    result's channels (`NAME#BUCKET`) and metrics. max_rows_per_batch: the approximate maximum of windows, over all
    keys, that one batch emits. The next batches emit the others, and the result's watermark rises only with the emitted
    windows. By default a batch emits all windows that its watermark closes. continue_from: a savepoint; a new
    checkpoint starts with its open windows. store: keep the messages of windows, and compute each result from all
    messages of its window (docs/reference/window-store.md). key_watermark: the windows of a key close by the key's own
    watermark (`keyedwm.spark.per_key`).

    Returns the `by` columns, `window`, one column per aggregate, `pane`, and `event_time` (the window's last
    millisecond). `watermark` and `control` are as the source has them, so that results can be sunk or aggregated again.
    Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    common = CommonArguments("aggregate", buckets, name, continue_from)
    keys = _keys(by)
    _check_kinds(df, window, aggs, early)
    check_axis(axis, "aggregate")
    _check_settings(accumulating, max_rows_per_batch)
    _check_names((*keys, *aggs))
    settings: dict[str, Any] = {
        "window": window, "aggregates": tuple(aggs.items()), "time": TIME, "early": early, "accumulating": accumulating,
        "late": choice("late", late, LatePolicy), "late_rule": choice("late_rule", late_rule, LateRule),
        "lateness_ms": 0 if lateness is None else duration_ms("lateness", lateness), "most_rows": max_rows_per_batch,
    }  # fmt: skip
    settings |= window_key_watermark(key_watermark, window, store)
    check_store(store, settings)
    spread_by = window.spread_by(keys, ORDER) if isinstance(window, WindowKind) else keys
    ids = common.bucket_ids(df, one=not spread_by, why_one="without key columns")
    settings["most_rows"] = None if max_rows_per_batch is None else -(-max_rows_per_batch // len(ids))
    shipped, plan, key = _shipped(df, by if isinstance(by, Mapping) else keys, settings, axis, ids, store=store)
    return common.results(shipped, plan, ids, ((key,),), [df])


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
        return ship_source(df, by, settings, axis, ids)
    return ship_rows(df, tuple(by), settings, axis, ids)


def _keys(by: object) -> tuple[str, ...]:
    """The names of the key columns in the result."""
    keys = tuple(by) if isinstance(by, (Sequence, Mapping)) and not isinstance(by, str) else (by,)
    check_each("by", (*keys, *(by.values() if isinstance(by, Mapping) else ())), "aggregate")
    return keys


def _check_kinds(df: object, window: object, aggs: object, early: object) -> None:
    """Raise OptionError for functions of Spark with the same names: they return columns, not windows or aggregates."""
    stream_of(df, "df", "aggregate")
    check_aggregates(aggs, "aggregate")
    if not isinstance(window, (SlidingWindow, ZonedWindow, SessionWindow, WindowKind)):
        raise OptionError(
            f"aggregate: window={window!r}: a window of keyedwm.spark is expected, such as tumbling('1 minute')"
        )
    if early is not None and not isinstance(early, Early):
        raise OptionError(f"aggregate: early={early!r}: keyedwm.spark.early(rows=..., every=...) is expected")


def _check_settings(accumulating: object, most: object) -> None:
    if not isinstance(accumulating, bool):
        raise OptionError(f"aggregate: accumulating={accumulating!r}: True or False is expected")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise OptionError(f"aggregate: max_rows_per_batch={most!r}: a whole number of at least 1 is expected, or none")


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name.lower() in _RESERVED:
            raise OptionError(
                f"aggregate: a result column cannot be called {name!r}: results have one of that name already, "
                f"as the source's rows do; rename it first"
            )
