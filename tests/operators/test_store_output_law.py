"""Nothing that a store says is behind the watermark that it passed on: also of a bucket that few messages come to."""

from __future__ import annotations

import random

import pytest

from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.driver import message_operator
from keyedwm.operators.messages.join.plan import Keep, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.join.window_join import join_operator
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state.store import MemoryStore
from tests.operators.stored import SCHEMA, Message, plan_of, table
from tests.seeds import seeds

WINDOWS = (HoppingWindow(10, 10), HoppingWindow(10, 3), HoppingWindow(4, 10, 1))
RETENTIONS = (Retention(time_ms=15), Retention(time_ms=30, max_messages=5), Retention(max_windows=2))
PANE_SETTINGS = (
    {},
    {"early": Early(rows=2, every_ms=20), "late_every_ms": 30},
    {"late_every_ms": 8, "late_by": EveryBy.EVENT},
    {"late_rows": 2, "accumulating": False},
    {"early": Early(every_ms=7, by=EveryBy.EVENT), "accumulating": False},
)
JOINS = ({}, {"how": How.FULL}, {"keep": Keep.LAST}, {"early_every_ms": 20, "late_every_ms": 30})


def play_batches(operator, seed: str, inputs: int) -> int:
    """Play messages around a watermark that other buckets move; return how many rows came, none behind it."""
    rng = random.Random(seed)
    now_ms, watermarks_ms, passed_on_ms, row_count = 0, [0] * inputs, None, 0
    for offset in range(80):
        now_ms += rng.randrange(30)
        move, number = rng.random(), rng.randrange(inputs)
        if move < 0.45:
            times = [watermarks_ms[number] + rng.randrange(-25, 30) for _ in range(rng.randrange(1, 4))]
            messages = [Message("x", 1, time, "t", 0, 3 * offset + at) for at, time in enumerate(times)]
            outputs = operator.on_rows(number, table(messages), now_ms)
        elif move < 0.55:
            outputs = operator.on_timer(now_ms)
        elif move < 0.65:
            outputs = operator.on_barrier(0)
        else:
            watermarks_ms[number] += rng.randrange(rng.choice([6, 60]))
            outputs = operator.on_watermark(number, 0, watermarks_ms[number])
        for output in list(outputs):
            row_count += len(output.event_ms)
            assert passed_on_ms is None or output.event_ms.min() >= passed_on_ms
        if move >= 0.65 and (ms := operator.output_watermark_ms(min(watermarks_ms))) is not None:
            passed_on_ms = ms if passed_on_ms is None else max(passed_on_ms, ms)
    return row_count


@pytest.mark.parametrize("settings", PANE_SETTINGS, ids=str)
@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_no_pane_is_behind_the_watermark_that_was_passed_on(window, full, settings, seed):
    first, rows = WINDOWS.index(window) + PANE_SETTINGS.index(settings), 0
    for number in seeds(1, first=first):  # each retention is one of each window and of each kind of panes
        plan = plan_of(window, full=full, retention=RETENTIONS[number % len(RETENTIONS)], **settings)
        rows += play_batches(message_operator(plan, MemoryStore()), f"{seed} {number}", 1)
    assert rows


@pytest.mark.parametrize("join", JOINS, ids=str)
@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
@pytest.mark.parametrize("window", WINDOWS[:2], ids=str)
def test_no_row_of_a_join_is_behind_the_watermark_that_was_passed_on(window, full, join, seed):
    sides = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right")}
    first, rows = WINDOWS.index(window) + JOINS.index(join), 0
    for number in seeds(1, first=first):
        plan = WindowJoinPlan(window=window, full=full, retention=RETENTIONS[number % 2], **sides, **join)
        rows += play_batches(join_operator(plan, MemoryStore()), f"{seed} {number}", 2)
    assert rows


def test_a_window_that_no_message_completes_speaks_before_the_watermark_leaves_it_behind():
    operator = message_operator(
        plan_of(WINDOWS[0], full=CompletedBy.MESSAGE, retention=Retention(time_ms=20)), MemoryStore()
    )
    list(operator.on_rows(0, table([Message("x", 1, 5, "t", 0, 0)]), None))
    assert list(operator.on_watermark(0, 0, 29)) == []
    (pane,) = operator.on_watermark(0, 0, 30)
    assert (pane.rows["pane"][0].as_py()["timing"], operator.output_watermark_ms(30)) == ("on_time", 10)
    assert list(operator.on_rows(0, table([Message("x", 1, 6, "t", 0, 1)]), None)) == []
    assert operator.rejected()["reason"].to_pylist() == ["outside the retention"]


def test_a_bucket_of_a_join_without_a_message_holds_nobodys_watermark():
    sides = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right")}
    plan = WindowJoinPlan(window=WINDOWS[0], full=CompletedBy.MESSAGE, retention=Retention(time_ms=20), **sides)
    operator = join_operator(plan, MemoryStore())
    for number in (0, 1):
        list(operator.on_watermark(number, 0, 1_000))
    assert operator.output_watermark_ms(1_000) == 980
