"""The one rule of lateness: where each kind of operator draws the line, to the millisecond."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from conformance.driver import DrivenOperator
from keyedwm.core.errors import InputError
from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, tumbling
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.messages.driver import message_operator
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.messages.on_demand import on_demand
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.panes import Early
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.running import Running
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.store import MemoryStore
from tests.operators import joins, stored, streams, test_deduplicate, test_running, window_joins
from tests.operators.streams import Event

SLIDING, MERGING, SEPARATE = SlidingWindow(10, 5), SessionWindow(10), SessionWindow(10, Touching.SEPARATE)
RETENTION = Retention(time_ms=12)
OWN = PerKey(lag_ms=0, behind_ms=1_000)


def frames(window: Any, watermark_ms: int, time_ms: int, **settings: Any) -> int:
    """The late rows of an operator of frames, of one row at this time behind the watermark."""
    plan = streams.plan_of(window, streams.AGGREGATES[:1], **settings)
    operator, rows = DrivenOperator(plan), []
    if plan.key_watermark is None:
        operator.advance(watermark_ms)
    else:  # the key's own watermark is its highest event time
        rows = [Event("a", watermark_ms, 1, 1.0, "s", 0)]
    for row in [*rows, Event("a", time_ms, 1, 1.0, "s", 1)]:
        operator.take(combine_rows(plan, streams.table([row])))
    return operator.late_rows


def messages(window: Any, watermark_ms: int, time_ms: int, **settings: Any) -> int:
    """The late messages of an operator that keeps them."""
    plan = stored.plan_of(window, **{"retention": RETENTION, **settings})
    operator = message_operator(plan, MemoryStore({}))
    if plan.full is CompletedBy.MESSAGE:
        list(operator.on_rows(0, message(watermark_ms, 0), None))
    else:
        list(operator.on_watermark(0, 0, watermark_ms))
    list(operator.on_rows(0, message(time_ms, 1), None))
    return operator.late_rows


def message(time_ms: int, offset: int) -> pa.Table:
    return stored.table([stored.Message("a", 1, time_ms, "t", 0, offset)])


def window_join(window: Any, watermark_ms: int, time_ms: int) -> int:
    """The late messages of the right side of a join of windows."""
    operator = join_operator(window_joins.plan_of(window, retention=RETENTION), MemoryStore({}))
    for side in (0, 1):
        list(operator.on_watermark(side, 0, watermark_ms))
    list(operator.on_rows(1, message(time_ms, 1), None))
    return operator.late_rows


def join(watermark_ms: int, time_ms: int, **settings: Any) -> int:
    """The late rows of the right side of a join by event time."""
    plan = joins.plan_of([Bound(0, 0, -3, 0)], **settings)
    operator = operator_of(plan, MemoryStore({}))
    list(operator.on_watermark(1, 0, watermark_ms))
    rows = [joins.Row("a", 1, 1, (None,)), joins.Row("a", 1, 1, (time_ms,))]
    list(operator.on_rows(1, joins.table(plan, 1, rows), None))
    return operator.late_rows


def deduplicate(watermark_ms: int, time_ms: int) -> int:
    player = test_deduplicate.RestartedDeduplication(test_deduplicate.plan_of())
    player.batch([], watermark_ms)
    player.batch([("a", 1.0, time_ms, 0)], None)
    return player.late


def running(watermark_ms: int, time_ms: int, per_key: PerKey | None = None, **settings: Any) -> int:
    plan = test_running.plan_of(**settings)
    takes = ProcessInput(schema=test_running.TIMED, by=plan.by, time="__time")
    operator = operator_of(
        ProcessPlan(
            inputs=(takes,), make=lambda: Running(plan), result=plan.result_schema, called=plan.called, version=1,
            key_watermark=per_key,
        ),
        MemoryStore({}),
    )  # fmt: skip
    first: list[tuple] = [("a", 1.0, watermark_ms, 0, 0)]
    if per_key is None:
        first = []
        list(operator.on_watermark(0, 0, watermark_ms))
    for rows in (first, [("a", 1.0, time_ms, 0, 1)]):
        if rows:
            list(operator.on_rows(0, test_running.table(rows), None))
    return operator.late_rows


# By kind: how many rows are late, the watermark, and the first time that is on time.
CASES: dict[str, tuple[Callable[[int, int], int], int, int]] = {
    "tumbling": (partial(frames, tumbling(10)), 100, 100),
    "tumbling, before its end": (partial(frames, tumbling(10)), 99, 90),
    "tumbling, kept": (partial(frames, tumbling(10), lateness_ms=5), 104, 90),
    "tumbling, kept no longer": (partial(frames, tumbling(10), lateness_ms=5), 105, 100),
    "sliding": (partial(frames, SLIDING), 100, 95),
    "sliding, kept": (partial(frames, SLIDING, lateness_ms=3), 103, 95),
    "sliding, by frame": (partial(frames, SLIDING, late_rule=LateRule.FRAME), 100, 100),
    "sliding, by event": (partial(frames, SLIDING, late_rule=LateRule.EVENT), 98, 98),
    "sliding, discarding": (partial(frames, SLIDING, lateness_ms=3, accumulating=False), 103, 95),
    "sliding, per key": (partial(frames, SLIDING, key_watermark=OWN, lateness_ms=3), 102, 90),
    "sliding, per key, by event": (partial(frames, SLIDING, key_watermark=OWN, late_rule=LateRule.EVENT), 98, 98),
    "session": (partial(frames, MERGING), 100, 90),
    "session, separate": (partial(frames, SEPARATE), 100, 91),
    "session, by event": (partial(frames, MERGING, late_rule=LateRule.EVENT), 98, 98),
    "session, kept": (partial(frames, MERGING, lateness_ms=3), 100, 87),
    "session, kept, separate": (partial(frames, SEPARATE, lateness_ms=3), 100, 88),
    "session, early, by event": (
        partial(frames, MERGING, early=Early(rows=2), late_rule=LateRule.EVENT), 98, 98,
    ),
    "session, per key": (partial(frames, SessionWindow(4), key_watermark=OWN, lateness_ms=3), 100, 93),
    "session, per key, separate": (
        partial(frames, SessionWindow(4, Touching.SEPARATE), key_watermark=OWN, lateness_ms=3), 100, 94,
    ),
    "messages": (partial(messages, tumbling(10)), 111, 90),
    "messages, kept no longer": (partial(messages, tumbling(10)), 112, 100),
    "messages, by message": (partial(messages, tumbling(10), full=CompletedBy.MESSAGE), 112, 100),
    "messages, sliding": (partial(messages, SLIDING), 112, 95),
    "messages, session": (partial(messages, MERGING), 100, 78),
    "messages, session, separate": (partial(messages, SEPARATE), 100, 79),
    "messages, on demand": (partial(messages, on_demand(10, "n > 0")), 100, 79),
    "window join": (partial(window_join, tumbling(10)), 112, 100),
    "window join, kept": (partial(window_join, tumbling(10)), 111, 90),
    "session join": (partial(window_join, MERGING), 100, 78),
    "join": (join, 98, 98),
    "latest join": (partial(join, latest=True), 98, 98),
    "deduplicate": (deduplicate, 98, 98),
    "running": (running, 98, 98),
    "running, per key": (partial(running, per_key=OWN), 98, 98),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_the_first_time_on_time_is_exact_and_one_millisecond_before_it_is_late(kind):
    late_rows, watermark_ms, first_ms = CASES[kind]
    assert [late_rows(watermark_ms, time_ms) for time_ms in (first_ms - 1, first_ms)] == [1, 0]


@pytest.mark.parametrize("kind", ["sliding", "sliding, per key", "session", "session, kept", "join", "running"])
def test_a_late_row_fails_where_late_rows_are_an_error_and_a_row_on_time_does_not(kind):
    late_rows, watermark_ms, first_ms = CASES[kind]
    with pytest.raises(InputError, match=r"1 rows were late \(earliest: \d+ ms\), behind the watermark"):
        late_rows(watermark_ms, first_ms - 1, late=LatePolicy.FAIL)
    assert late_rows(watermark_ms, first_ms, late=LatePolicy.FAIL) == 0
