"""A store goes on with other limits than before: nothing is lost without a word, or behind what was passed on."""

from __future__ import annotations

import dataclasses
import random

import pytest

from keyedwm.core.window_rules import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.driver import message_operator
from keyedwm.operators.messages.join.plan import Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state.store import MemoryStore
from tests import seeds
from tests.operators.stored import SCHEMA, Message, plan_of, table

GRIDS = (HoppingWindow(10, 10), HoppingWindow(10, 3), HoppingWindow(4, 10, 1))
SESSIONS = tuple(SessionWindow(gap, touching) for touching in Touching for gap in (4, 7))
DEMANDED = (OnDemandWindow(10, "n >= 4"), OnDemandWindow(3, "n >= 4"))
BY_TIME = tuple(Retention(time_ms=ms) for ms in (10, 15, 30, 60))
BY_SIZE = (Retention(time_ms=30, max_messages=5), Retention(max_windows=2), Retention(max_bytes=300))
LATE = (
    {}, {"early": Early(rows=2, every_ms=20), "late_every_ms": 30}, {"late_every_ms": 8, "late_by": EveryBy.EVENT},
    {"late_rows": 2},
)  # fmt: skip
NEW = (
    {"accumulating": False},
    {"full": CompletedBy.MESSAGE},
    {"full": CompletedBy.MESSAGE, "late_rows": 2, "accumulating": False},
)
KINDS = (
    *((window, settings, BY_TIME + BY_SIZE) for window in GRIDS for settings in LATE + NEW),
    *((window, settings, BY_TIME + BY_SIZE) for window in SESSIONS for settings in LATE),
    *((window, {}, BY_TIME) for window in DEMANDED),
)
JOINS = ({}, {"how": How.FULL}, {"keep": Keep.LAST}, {"early_every_ms": 20, "late_every_ms": 30})


def play_batches(build, plans: list, seed: str, inputs: int, checked) -> int:
    """Play messages over restarts, each with a plan of its own; return how many rows came, none behind what was passed
    on. checked: is called with the operator after each step, and after each restart.
    """
    rng, store = random.Random(seed), MemoryStore()
    operator = build(plans[0], store)
    now_ms, watermarks_ms, passed_on_ms, row_count = 0, [0] * inputs, None, 0
    for step in range(seeds.times(45)):
        now_ms += rng.randrange(30)
        move, number = rng.random(), rng.randrange(inputs)
        if move < 0.45:
            times = [watermarks_ms[number] + rng.randrange(-35, 30) for _ in range(rng.randrange(1, 4))]
            messages = [
                Message(rng.choice("xy"), rng.randrange(9), time, "t", 0, 3 * step + at)
                for at, time in enumerate(times)
            ]
            outputs = operator.on_rows(number, table(messages), now_ms)
        elif move < 0.55:
            outputs = operator.on_timer(now_ms)
        elif move < 0.65:
            outputs = operator.on_barrier(0)
        else:
            watermarks_ms[number] += rng.randrange(rng.choice([1, 6, 60]))
            outputs = operator.on_watermark(number, 0, watermarks_ms[number])
        for output in list(outputs):
            row_count += len(output.event_ms)
            assert passed_on_ms is None or not len(output.event_ms) or output.event_ms.min() >= passed_on_ms
        if move >= 0.65 and (ms := operator.output_watermark_ms(min(watermarks_ms))) is not None:
            passed_on_ms = ms if passed_on_ms is None else max(passed_on_ms, ms)
        checked(operator)
        if rng.random() < 0.5:
            store.apply(operator.drain())
            operator = build(rng.choice(plans), store)
            checked(operator)
    return row_count


def adds_up(operator) -> None:
    operator.rejected()
    counts = operator.counts
    assert counts.given == counts.taken + counts.rejected + counts.replayed
    assert counts.taken == operator.open_entries + counts.expired + counts.dropped_messages


def sides_add_up(operator) -> None:
    all_counts = [one.counter.counts for one in operator.inputs]
    for counts in all_counts:
        assert counts.given == counts.taken + counts.rejected + counts.replayed
    dropped_count = sum(counts.expired + counts.dropped_messages for counts in all_counts)
    assert sum(counts.taken for counts in all_counts) == operator.open_entries + dropped_count


@pytest.mark.parametrize(("window", "settings", "limits"), KINDS, ids=str)
def test_a_store_whose_limits_change_loses_no_count_and_says_nothing_behind_what_it_passed_on(
    window, settings, limits, seed
):
    plan = plan_of(window, retention=limits[0], **settings)
    plans = [dataclasses.replace(plan, retention=retention) for retention in limits]
    rows = play_batches(message_operator, plans, f"limits {seed}", 1, adds_up)
    assert rows or settings.get("full") is CompletedBy.MESSAGE


@pytest.mark.parametrize(
    ("window", "join"),
    [*((window, join) for window in GRIDS[:2] for join in JOINS),
     *((window, join) for window in SESSIONS for join in JOINS[:3])], ids=str,
)  # fmt: skip
def test_a_join_whose_retention_changes_says_nothing_behind_what_it_passed_on(window, join, seed):
    sides = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right")}
    plans = [WindowJoinPlan(window=window, retention=one, **sides, **join) for one in BY_TIME]
    assert play_batches(join_operator, plans, f"joins {seed}", 2, sides_add_up)


def test_a_shorter_retention_passes_no_watermark_on_beyond_messages_that_are_still_accepted():
    window, store = OnDemandWindow(10, "n >= 4"), MemoryStore()
    before = message_operator(plan_of(window, retention=Retention(time_ms=60)), store)
    list(before.on_watermark(0, 0, 200))
    passed_on_ms = before.output_watermark_ms(200)
    store.apply(before.drain())
    after = message_operator(plan_of(window, retention=Retention(time_ms=20)), store)
    assert after.output_watermark_ms(200) == passed_on_ms == 130
    panes = list(after.on_rows(0, table([Message("x", 4, 131, "t", 0, 0)]), None))
    assert [output.event_ms.tolist() for output in panes] == [[140]]
    list(after.on_watermark(0, 0, 201))
    assert after.output_watermark_ms(201) == 171
