"""Panes of the standalone operator that come by a clock: wall-clock time, or event time in intervals."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import SessionWindow, tumbling
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import (
    CompletedBy,
    hopping,
    tumbling_rows,
)
from keyedwm.operators.panes import Early, EveryBy
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator
from tests.operators.stored import Restarted, plan_of, random_messages, split_steps, table
from tests.operators.test_window_operator import messages, operator_of, results


def test_late_messages_are_shown_together_an_interval_after_the_first_of_them():
    operator = operator_of(tumbling(10), ("rows", agg.count()), full=CompletedBy.MESSAGE, late_every_ms=10)
    operator.add_message(messages((0, 1, 1), (1, 12, 1)), now_ms=100)
    assert results(operator, "rows") == [(0, "on_time", 1)]
    operator.add_message(messages((2, 2, 1)), now_ms=102)
    operator.add_message(messages((3, 3, 1)), now_ms=105)
    assert operator.next_timeout_ms == 112
    operator.timeout(111)
    assert results(operator) == []
    operator.timeout(112)
    assert results(operator, "rows") == [(0, "late", 3)]
    assert operator.next_timeout_ms is None


def test_late_messages_of_a_window_wait_from_its_own_first_one_and_so_after_a_restart():
    store, plan = (
        MemoryStore(),
        plan_of(tumbling(10), (("rows", agg.count()),), full=CompletedBy.MESSAGE, late_every_ms=10),
    )
    outcomes = []
    steps = [
        ("add_message", messages((0, 1, 1), (1, 12, 1), (2, 22, 1)), 100),
        ("add_message", messages((3, 2, 1)), 102),
        ("add_message", messages((4, 13, 1)), 107),
        ("timeout", 111),
        ("timeout", 112),
        ("add_message", messages((5, 3, 1)), 115),
        ("timeout", 116),
        ("timeout", 117),
        ("timeout", 125),
    ]
    for name, *arguments in steps:
        operator = WindowOperator(plan, store)
        getattr(operator, name)(*arguments)
        outcomes.append(results(operator, "rows"))
        operator.flush()
    on_time = [(0, "on_time", 1), (10, "on_time", 1)]
    assert outcomes == [on_time, [], [], [], [(0, "late", 2)], [], [], [(10, "late", 2)], [(0, "late", 3)]]
    assert operator.next_timeout_ms is None


def test_a_message_that_comes_when_panes_are_due_brings_them():
    """Step 6 of the design's addMessage (W102): a loop that only adds messages is not held up by them."""
    operator = operator_of(tumbling(10), ("rows", agg.count()), full=CompletedBy.MESSAGE, late_every_ms=10)
    for now_ms, *rows in ((100, (0, 1, 1), (1, 12, 1)), (102, (2, 2, 1)), (111, (3, 13, 1))):
        operator.add_message(messages(*rows), now_ms=now_ms)
    assert results(operator, "rows") == [(0, "on_time", 1)]
    operator.add_message(messages((4, 14, 1)), now_ms=112)
    assert results(operator, "rows") == [(0, "late", 2)]


def test_late_messages_are_shown_together_when_event_time_has_come_an_interval_further():
    plan = plan_of(tumbling(10), aggregates=(("rows", agg.count()),), late_every_ms=15, late_by=EveryBy.EVENT)
    store = MemoryStore()
    outcomes = []
    steps = [
        ("add_message", messages((0, 1, 1), (1, 12, 1))), ("watermark", 20), ("add_message", messages((2, 2, 1))),
        ("watermark", 30), ("add_message", messages((3, 3, 1), (4, 31, 1))), ("watermark", 34), ("watermark", 35),
        ("watermark", 50),
    ]  # fmt: skip
    for name, argument in steps:
        operator = WindowOperator(plan, store)
        getattr(operator, name)(argument)
        assert operator.next_timeout_ms is None
        outcomes.append(results(operator, "rows"))
    on_time = [(0, "on_time", 1), (10, "on_time", 1)]
    assert outcomes == [[], on_time, [], [], [], [], [(0, "late", 3)], [(30, "on_time", 1)]]


@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
def test_late_panes_by_event_time_say_last_what_those_at_once_say(full):
    all_messages, last = random_messages(5, 200), []
    for seed, by in ((1, {}), (1, {"late_every_ms": 25}), (2, {"late_every_ms": 25})):
        settings = {**by, "late_by": EveryBy.EVENT} if by else {}
        player = Restarted(plan_of(hopping(10, 4), full=full, retention=Retention(time_ms=30), **settings))
        for name, piece in (
            split_steps(1, all_messages, watermarks=True)
            if seed == 1
            else split_steps(2, all_messages, watermarks=False)
        ):
            player.step(name, table(piece) if name == "add_message" else piece)
        player.step("finish")
        last.append(({pane[:3]: pane[3] for pane in player.results}, len(player.results)))
    assert last[0][0] == last[1][0]
    assert last[1][1] < last[0][1]
    if full is CompletedBy.MESSAGE:
        assert last[2][0] == last[0][0]  # however it is cut


def test_late_messages_are_shown_before_their_window_goes():
    operator = operator_of(
        tumbling(10),
        ("rows", agg.count()),
        full=CompletedBy.MESSAGE,
        late_every_ms=1_000,
        retention=Retention(time_ms=10),
    )
    operator.add_message(messages((0, 1, 1), (1, 12, 1)), now_ms=0)
    operator.add_message(messages((2, 2, 1)), now_ms=1)
    operator.flush()
    operator.add_message(messages((3, 21, 1)), now_ms=2)
    assert results(operator, "rows") == [(10, "on_time", 1), (0, "late", 2)]
    assert operator.get_messages(0, 9).num_rows == 0


def test_early_panes_by_the_clock_keep_to_their_beat_and_rest_without_news():
    operator = operator_of(tumbling(1_000), ("rows", agg.count()), early=Early(every_ms=60))
    operator.add_message(messages((0, 1, 1)), now_ms=0)
    operator.timeout(60)
    assert results(operator, "rows") == [(0, "early", 1)]
    assert operator.next_timeout_ms is None
    operator.add_message(messages((1, 2, 1)), now_ms=121)
    assert operator.next_timeout_ms == 180
    operator.timeout(180)
    assert results(operator, "rows") == [(0, "early", 2)]
    with pytest.raises(OptionError, match="panes by the clock: give add_message the wall-clock time"):
        operator.add_message(messages((2, 2, 1)))


def test_early_panes_by_event_time_come_when_the_watermark_has_come_to_a_multiple_of_the_interval():
    for window in (tumbling(100), SessionWindow(90)):
        operator = operator_of(window, ("rows", agg.count()), early=Early(every_ms=10, by=EveryBy.EVENT))
        operator.add_message(messages((0, 5, 1)))
        operator.watermark(1)  # the first one passes a multiple of whatever
        assert results(operator, "rows")[0][1:] == ("early", 1)
        operator.watermark(9)
        operator.add_message(messages((1, 6, 1)))
        operator.watermark(9)
        assert results(operator, "rows") == []
        operator = WindowOperator(operator.plan, operator.store)
        operator.watermark(12)
        assert results(operator, "rows")[0][1:] == ("early", 2)
        operator.watermark(50)
        assert results(operator, "rows") == []
        assert operator.next_timeout_ms is None
    with pytest.raises(OptionError, match="windows of rows have no event time: early panes come by the clock"):
        plan_of(tumbling_rows(3), early=Early(every_ms=10, by=EveryBy.EVENT))
    with pytest.raises(OptionError, match="early panes by event time need an interval"):
        Early(rows=3, by=EveryBy.EVENT)
