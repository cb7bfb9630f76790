"""`window_join`: messages of two streams in one window with equal keys (docs/reference/window-join.md).

Rule: every fault of a call is an error here, before a row is read. The plan is that of `aggregate` with
a store: whole messages of both sides by bucket → one group per bucket, which joins them → result columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keyedwm.arrow.schema import axis_column
from keyedwm.config.validation import choice
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import CONTROL, EVENT_TIME, WATERMARK
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.frames.zoned import refuse_zoned
from keyedwm.operators.join.plan import HOW_INSTEAD, How
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import LEFT, OUTER, RIGHT, Emit, Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow, RowKind, RowWindow
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.spark.api.common_arguments import CommonArguments
from keyedwm.spark.api.store import Store, check_one_source
from keyedwm.spark.api.two_sides import check_names, keys_of
from keyedwm.spark.hosting.handed_on import once_each
from keyedwm.spark.hosting.source_description import Source, fields_read, stream_of
from keyedwm.spark.hosting.staged_rows import axis_key, check_keys, check_rows, message_columns, ship_inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ASKED_BY = "window_join"
_ADDED = (EVENT_TIME, WATERMARK, CONTROL)


def window_join(
    left: DataFrame | Source,
    right: DataFrame | Source,
    on: str | Sequence[str] | Mapping[str, str],
    window: SlidingWindow | HoppingWindow | SessionWindow | RowWindow,
    *,
    store: Store,
    how: str = "inner",
    keep: str = "all",
    emit: str = "final",
    early: Early | None = None,
    unbounded: str | None = None,
    late: str = "drop",
    axis: str | tuple[str, str] = "",
    names: tuple[str, str] = ("left", "right"),
    buckets: int | None = None,
    name: str | None = None,
    continue_from: str | None = None,
) -> DataFrame:
    """Join the messages of two streams that lie in one window and have equal keys; each pair comes once.

    left, right: rows of the keyedwm source, control rows included, with their topic, partition and offset, or a
    `keyedwm.spark.source`, which is not loaded: then the reading tasks divide its messages. on: key columns, or left
    column → right column; null equals nothing. window: `tumbling`, `sliding`, `hopping`, `session` (of both sides
    together), or one of rows. store: how long each side's messages are kept. how: `inner`, or `left`, `right`, `full`:
    a message of that side without a match is emitted alone, once both sides have completed its windows. keep: `all`
    emits pairs at once. `first` and `last` emit one row of such messages for each key and window, once both sides have
    completed it. emit: when the rows of a session are emitted: `final`, once both sides have completed it; `paired`,
    once both sides have a message; `running`, with each message. early: `early(every=...)` emits pairs at this interval
    of the clock instead of at once. unbounded: the name of a side whose messages join every window of the other side.
    late: what becomes of messages that no window accepts (`drop`, `emit`, `fail`). axis: the time axis, if several are
    configured, or one for each side. names: names of the sides, for columns of equal names. buckets: how many groups of
    keys, by default spark.sql.shuffle.partitions; fixed in a checkpoint. name: of the result's channels (`NAME#BUCKET`)
    and metrics. continue_from: a savepoint, as for `join`; the number of buckets must be the same.

    Returns the columns of both sides (those joined on once), `window`, `timing`, with `late="emit"` also `rejected`.
    `event_time` (the window's last millisecond), `watermark` and `control` follow, so that results can be sunk or
    aggregated. Raises OptionError and InputError for what is wrong with the call, in one sentence.
    """
    common = CommonArguments(_ASKED_BY, buckets, name, continue_from)
    check_names(names, _ASKED_BY)
    join_kind, policy = _how(how), choice("late", late, LatePolicy)
    _check_settings(window, store, unbounded, names)
    axes, keys = _axes(axis), _keys(on)
    streams = [stream_of(one, called, _ASKED_BY) for one, called in zip((left, right), names, strict=True)]
    frames = [one.load() if isinstance(one, Source) else one for one in streams]
    each = zip(frames, names, keys, axes, strict=True)
    sides = [_side(*one, window, is_unbounded=one[1] == unbounded) for one in each]
    meets_all = isinstance(window, RowKind) and unbounded is not None  # a message meets those of all partitions
    ids = common.bucket_ids(frames[LEFT], one=meets_all, why_one="of windows of rows with an unbounded side")
    plan = WindowJoinPlan(
        left=sides[LEFT], right=sides[RIGHT], window=window, retention=store.limits(len(ids)), how=join_kind,
        keep=choice("keep", keep, Keep), emit=choice("emit", emit, Emit), full=choice("full", store.full, CompletedBy),
        late_every_ms=store.late_every_ms(), early_every_ms=_early_every_ms(early),
    )  # fmt: skip
    _check_columns(plan)
    spec = BucketWindowJoin(plan=plan, late=policy, read_from=_read_from(streams, names))
    followed = tuple((axis_key(frames[at], axes[at], _who(names[at])),) for at in (LEFT, RIGHT))
    shipped = ship_inputs(once_each(streams), spec.inputs, ({}, {}), ids)
    return common.results(shipped, spec, ids, followed, streams, called=tuple(f"{one} side" for one in names))


def _read_from(streams: Sequence[DataFrame | Source], names: tuple[str, str]) -> tuple[str, ...]:
    sides = zip(streams, names, strict=True)
    return tuple(f"{called} {place}" for one, called in sides if isinstance(one, Source) for place in fields_read(one))


def _who(called: str) -> str:
    return f"{_ASKED_BY}, {called} side"


def _side(
    frame: DataFrame, called: str, on: tuple[str, ...], axis: str, window: object, *, is_unbounded: bool
) -> WindowJoinSide:
    who = _who(called)
    check_rows(frame, axis, who)
    check_one_source(frame, window, who)
    check_keys(frame, on, who)
    schema = message_columns(frame, who)
    for one in on:
        if one not in schema.names:
            raise OptionError(f"{who}: {one!r} is a watermark or control column, which cannot be a key")
    return WindowJoinSide(name=called, schema=schema, on=on, unbounded=is_unbounded, time=axis_column(EVENT_TIME, axis))


def _keys(on: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    keys = keys_of(on, _ASKED_BY)
    if not keys[LEFT]:
        raise OptionError("window_join: on=(): the columns to join on are expected, one at least")
    return keys


def _how(how: str) -> How:
    known = {text: one for text, one in HOW_INSTEAD.items() if one in {kind.value for kind in OUTER}}
    return choice("how", how, OUTER, known)


def _axes(axis: object) -> tuple[str, str]:
    """The time axis of each side."""
    axes = (axis, axis) if isinstance(axis, str) else tuple(axis) if isinstance(axis, (tuple, list)) else ()
    if len(axes) != 2 or not all(isinstance(one, str) for one in axes):
        raise OptionError(f"window_join: axis={axis!r}: the name of a time axis is expected, or one for each side")
    return axes


def _early_every_ms(early: object) -> int | None:
    if early is None:
        return None
    if not isinstance(early, Early) or early.every_ms is None or early.rows is not None:
        raise OptionError(
            f"window_join: early={early!r}: keyedwm.spark.early(every=...) is expected; without it pairs come at once"
        )
    if early.by_event:
        raise OptionError(
            "window_join: pairs of open windows come at once or by the clock: leave early(by='event') out"
        )
    return early.every_ms


def _check_settings(window: object, store: object, unbounded: str | None, names: tuple[str, str]) -> None:
    if unbounded is not None and unbounded not in names:
        raise OptionError(f"window_join: unbounded={unbounded!r}: the name of a side is expected, one of {names}")
    refuse_zoned(window, "window_join")
    if not isinstance(window, (SlidingWindow, HoppingWindow, SessionWindow, RowKind)):
        raise OptionError(
            f"window_join: window={window!r}: keyedwm.spark's tumbling, sliding, hopping, session, tumbling_rows or "
            "hopping_rows is expected"
        )
    _check_store(store)


def _check_store(store: object) -> None:
    if not isinstance(store, Store):
        raise OptionError(f"window_join: store={store!r}: keyedwm.spark.Store(retention=...) is expected")
    if store.late_rows is not None or store.late_by != EveryBy.CLOCK.value:
        raise OptionError(
            "window_join: late pairs come at once, or late_every of the clock: leave late_rows and late_by out"
        )


def _check_columns(plan: WindowJoinPlan) -> None:
    for one, number, came_from in plan.columns:
        if one.name.lower() in _ADDED:
            raise OptionError(
                f"window_join: the column {came_from!r} of {plan.sides[number].name} cannot be called {one.name!r}: "
                "results have one of that name already; rename it or leave it out"
            )
