"""Late panes by count: after so many late messages of a key and window, and before the window goes."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.retention import Retention
from tests.operators.stored import Message, Restarted, plan_of, table

FOR_TWENTY = Retention(time_ms=20)


def late(*rows: tuple[int, int, str]):
    """Messages of one partition as (offset, time, key)."""
    return table([Message(key, 1, time, "t", 0, offset) for offset, time, key in rows])


def panes(pane_tuples: list) -> list[tuple]:
    return [(start, key, record_text.count(":"), timing) for start, _, key, record_text, timing, _, _ in pane_tuples]


@pytest.mark.parametrize("always", [False, True])
def test_late_messages_are_shown_when_they_are_enough_and_the_rest_when_the_window_goes(always):
    player = Restarted(plan_of(tumbling(10), retention=FOR_TWENTY, late_rows=2), always=always)
    player.step("add_message", late((0, 1, "x"), (1, 2, "y")))
    assert panes(player.step("watermark", 10)) == [(0, "x", 1, "on_time"), (0, "y", 1, "on_time")]
    assert panes(player.step("add_message", late((2, 3, "x"), (3, 4, "y")))) == []
    assert panes(player.step("add_message", late((4, 5, "x")))) == [(0, "x", 3, "late")]
    assert panes(player.step("add_message", late((5, 6, "z")))) == []
    assert panes(player.step("watermark", 29)) == []
    assert panes(player.step("watermark", 30)) == [(0, "y", 2, "late"), (0, "z", 1, "late")]
    assert panes(player.step("watermark", 90)) == []


def test_what_was_not_enough_is_shown_at_the_end_of_the_input_or_when_a_limit_drops_the_window():
    player = Restarted(plan_of(tumbling(10), retention=Retention(max_windows=2), late_rows=5))
    player.step("add_message", late((0, 1, "x"), (1, 12, "x")))
    player.step("watermark", 20)
    assert player.step("add_message", late((2, 2, "x"), (3, 13, "x"))) == []
    assert panes(player.step("add_message", late((4, 31, "x")))) == [(0, "x", 2, "late")]
    assert panes(player.step("finish")) == [(30, "x", 1, "on_time"), (10, "x", 2, "late")]


@pytest.mark.parametrize("wrong", [{"late_rows": 0}, {"late_rows": 2, "late_every_ms": 5}])
def test_a_count_below_one_or_beside_an_interval_is_refused(wrong):
    with pytest.raises(OptionError, match=r"1 or more is expected, or an interval in its place"):
        plan_of(tumbling(10), **wrong)
