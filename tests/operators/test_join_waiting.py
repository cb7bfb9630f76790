"""Messages of a join that wait: for the clock, or until their window is full."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, RowWindow, tumbling_rows
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin
from tests.operators.test_window_join import ROWS, WINDOWS, messages, new_pairs
from tests.operators.window_joins import NAMES, ClockModel, PlayedWindowJoin, as_table, plan_of, recut, steps
from tests.seeds import seeds


def test_early_pairs_come_on_their_beat_and_late_ones_an_interval_after_the_first_that_waits():
    operator = WindowJoin(plan_of(tumbling(10), full=CompletedBy.MESSAGE, early_every_ms=60, late_every_ms=10))
    operator.add_message("right", messages((0, 1), (1, 12)), 0)
    operator.add_message("left", messages((0, 2)), 30)
    assert (operator.next_timeout_ms, new_pairs(operator)) == (60, [])
    operator.timeout(60)
    assert new_pairs(operator) == [(0, 0, 0, "early")]
    assert operator.next_timeout_ms is None
    operator.add_message("left", messages((1, 13)), 125)
    operator.add_message("left", messages((2, 3)), 131)
    assert operator.next_timeout_ms == 141
    operator.add_message("right", messages((2, 4)), 140)  # waits with the others, and meets them
    operator.timeout(141)
    assert new_pairs(operator) == [(2, 0, 0, "late"), (0, 2, 0, "late"), (2, 2, 0, "late")]
    operator.timeout(180)
    assert new_pairs(operator) == [(1, 1, 10, "early")]


@pytest.mark.parametrize("unbounded", ["", "right"], ids=["both", "right unbounded"])
@pytest.mark.parametrize("window", [*WINDOWS, *ROWS], ids=str)
def test_pairs_that_wait_come_when_the_model_says_so_with_a_restart_after_each_step(window, unbounded):
    is_rows, pairs = isinstance(window, RowWindow), 0
    for seed in seeds(2, first=2 * [*WINDOWS, *ROWS].index(window) + len(unbounded)):
        no_early, no_late = seed % 6 == 5, is_rows or seed % 6 == 4
        intervals = {"early_every_ms": None if no_early else 11, "late_every_ms": None if no_late else 9}
        plan = plan_of(window, unbounded=unbounded, full=list(CompletedBy)[seed % 2], **intervals)
        model, player = ClockModel(plan), PlayedWindowJoin(plan)
        for at, (name, side, argument) in enumerate([*recut(seed, steps(seed, 25)), ("finish", "", None)]):
            before, step_arguments = len(model.pairs), {"finish": ()}.get(name, (side, as_table(name, argument)))
            clock = (3 * at,) if name == "add_message" else ()
            getattr(model, name)(*(() if name == "finish" else (side, argument)), *clock)
            assert sorted(player.step(name, *step_arguments, *clock)) == sorted(model.pairs[before:])
            assert player.operator.next_timeout_ms == model.next_timeout()
            if at % 3 == 2:
                before = len(model.pairs)
                model.timeout(3 * at + 2)
                assert sorted(player.step("timeout", 3 * at + 2)) == sorted(model.pairs[before:])
        pairs += len(model.pairs)
    assert pairs


@pytest.mark.parametrize("window", [tumbling(10), tumbling_rows(1)], ids=["time", "rows"])
def test_what_waits_early_of_a_window_comes_when_its_window_is_full_and_rests_on_an_unbounded_side(window):
    operator = WindowJoin(plan_of(window, unbounded="right", full=CompletedBy.MESSAGE, early_every_ms=1_000))
    operator.add_message("right", messages((0, 1)), 0)
    operator.timeout(1_000)
    operator.add_message("left", messages((0, 2)), 1_001)
    assert new_pairs(operator) == []
    operator.add_message("right", messages((1, 50)), 1_002)
    operator.add_message("left", messages((1, 12)), 1_003)
    assert [row[:2] for row in new_pairs(operator)] == [(0, 0)]
    assert operator.next_timeout_ms == 2_000
    operator.timeout(2_000)
    assert sorted(row[:2] for row in new_pairs(operator)) == [(0, 1), (1, 0), (1, 1)]


def test_a_watermark_that_completes_a_window_shows_what_waits_early_of_it():
    operator = WindowJoin(plan_of(tumbling(10), early_every_ms=1_000))
    operator.add_message("right", messages((0, 1), (1, 12)), 0)
    operator.add_message("left", messages((0, 2), (1, 13)), 0)
    operator.watermark("right", 10)
    assert new_pairs(operator) == []
    operator.watermark("left", 10)
    assert new_pairs(operator) == [(0, 0, 0, "early")]
    operator.timeout(1_000)
    assert new_pairs(operator) == [(1, 1, 10, "early")]


def test_late_messages_of_each_window_wait_from_the_first_of_them():
    plan, store = plan_of(tumbling(10), full=CompletedBy.MESSAGE, late_every_ms=10), MemoryStore()
    operator = WindowJoin(plan, store)
    operator.add_message("right", messages((0, 1), (1, 12), (2, 25)), 0)
    operator.add_message("left", messages((0, 25)), 1)
    assert new_pairs(operator) == [(0, 2, 20, "early")]
    operator.add_message("left", messages((1, 3)), 3)
    operator.add_message("left", messages((2, 14), (3, 4)), 8)
    operator.flush()
    for now_ms, expected_pairs, due_ms in ((12, [], 13), (13, [(1, 0, 0, "late"), (3, 0, 0, "late")], 18), (17, [], 18),
                                 (18, [(2, 1, 10, "late")], None)):  # fmt: skip
        operator = WindowJoin(plan, store)
        operator.timeout(now_ms)
        assert (new_pairs(operator), operator.next_timeout_ms) == (expected_pairs, due_ms)


def test_what_cannot_meet_what_leaves_waits_on():
    operator = WindowJoin(
        plan_of(tumbling(10), early_every_ms=500, late_every_ms=1_000, retention=Retention(time_ms=40))
    )
    for side in ("left", "right"):
        operator.add_message(side, messages((0, 21), (1, 45)), 0)
        operator.watermark(side, 50)
    assert sorted(row[:2] for row in new_pairs(operator)) == [(0, 0), (1, 1)]
    operator.add_message("left", messages((2, 46), (3, 22)), 0)
    for side in ("left", "right"):
        operator.watermark(side, 60)
        operator.add_message(side, messages((9, 75)), 100)
    assert (operator.next_timeout_ms, new_pairs(operator)) == (500, [])
    for side in ("left", "right"):
        operator.watermark(side, 74)  # [20, 30) leaves
    assert new_pairs(operator) == [(3, 0, 20, "late")]
    operator.timeout(500)
    assert new_pairs(operator) == [(9, 9, 70, "early")]
    operator.timeout(1_000)
    assert new_pairs(operator) == [(2, 1, 40, "late")]


def test_a_message_shows_what_is_due_when_it_comes():
    operator = WindowJoin(plan_of(tumbling(10), early_every_ms=60))
    operator.add_message("right", messages((0, 1)), 0)
    operator.add_message("left", messages((0, 2)), 59)
    assert new_pairs(operator) == []
    operator.add_message("left", messages((1, 3)), 60)
    assert new_pairs(operator) == [(0, 0, 0, "early"), (1, 0, 0, "early")]
    assert operator.next_timeout_ms is None


def test_what_waits_is_shown_before_anything_goes_that_it_meets():
    plan = plan_of(tumbling(10), full=CompletedBy.MESSAGE, early_every_ms=1_000, retention=Retention(time_ms=10))
    for last in NAMES:
        operator = WindowJoin(plan)
        for side in NAMES:
            operator.add_message(side, messages((0, 1)), 0)
        assert new_pairs(operator) == []
        operator.add_message(last, messages((1, 50)), 1)
        assert new_pairs(operator) == [(0, 0, 0, "early")]


def test_pairs_by_the_clock_need_the_clock():
    operator = WindowJoin(plan_of(tumbling(10), late_every_ms=10))
    with pytest.raises(OptionError, match="pairs by the clock: give add_message the wall-clock time"):
        operator.add_message("left", messages((0, 1)))
