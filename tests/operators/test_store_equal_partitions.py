"""Partitions that hold equally much: their topic and number decide, not a restart and not which was read first."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import hopping_rows, tumbling_rows
from keyedwm.operators.panes import Early
from tests.operators import window_joins
from tests.operators.stored import Message, Restarted, plan_of, table

# More than ten, since numbers of one digit have the same order as texts.
PARTITIONS = 12
FULLEST, OTHERS = (10, 2, 11), range(3, 7)
LIMITS = [Retention(max_messages=3 * PARTITIONS), Retention(max_bytes=3 * PARTITIONS * 36)]
restarts = pytest.mark.parametrize("restarts", [False, True], ids=["one instance", "restarted"])


def of_partition(partition: int, *offsets: int) -> list[Message]:
    return [Message("k", 1, 1, "t", partition, offset) for offset in offsets]


def of_partitions(partitions: Iterable[int], *offsets: int) -> list[Message]:
    return [one for partition in partitions for one in of_partition(partition, *offsets)]


def dropped_partitions(panes: list[tuple]) -> list[str]:
    """The topic and partition of each dropped window, in the order of their last panes."""
    return [pane[3].split(":")[0] for pane in panes if pane[6]]


@restarts
@pytest.mark.parametrize("limit", LIMITS, ids=["max_messages", "max_bytes"])
def test_of_equally_full_partitions_the_lowest_one_drops_its_window_also_after_a_restart(limit, restarts):
    operator = Restarted(plan_of(tumbling_rows(20), retention=limit), always=restarts)
    operator.step("add_message", table(of_partitions(range(PARTITIONS), 0, 1)))
    for partition in FULLEST:
        operator.step("add_message", table(of_partition(partition, 2, 3, 4)))
    operator.step("add_message", table(of_partitions(OTHERS, 2)))
    assert dropped_partitions(operator.results) == ["t2"]


@restarts
def test_of_equally_full_partitions_the_lowest_one_drops_its_window_whichever_was_read_first(restarts):
    operator = Restarted(plan_of(tumbling_rows(20), retention=Retention(max_messages=6)), always=restarts)
    operator.step("add_message", table(of_partition(2, 0, 1, 2)))
    operator.step("add_message", table(of_partition(1, 0, 1, 2)))
    operator.step("add_message", table(of_partition(3, 0)))
    assert dropped_partitions(operator.results) == ["t1"]


@restarts
def test_the_last_panes_of_partitions_come_in_their_order_whichever_was_read_first(restarts):
    operator = Restarted(plan_of(tumbling_rows(20), retention=Retention(max_windows=1)), always=restarts)
    for partition in reversed(range(PARTITIONS)):
        operator.step("add_message", table(of_partition(partition, 0, 1)))
    of_each = [f"t{partition}:0 t{partition}:1" for partition in range(PARTITIONS)]
    assert [pane[3] for pane in operator.step("finish")] == of_each


@restarts
def test_complete_windows_of_partitions_come_in_their_order_in_one_call(restarts):
    operator = Restarted(plan_of(tumbling_rows(2), retention=Retention(max_windows=1)), always=restarts)
    for partition in reversed(range(PARTITIONS)):
        operator.step("add_message", table(of_partition(partition, 0)))
    panes = operator.step("add_message", table(of_partitions(range(PARTITIONS), 1)))
    assert [pane[3] for pane in panes] == [f"t{partition}:0 t{partition}:1" for partition in range(PARTITIONS)]


@restarts
def test_windows_beyond_a_number_of_windows_are_dropped_in_the_order_of_partitions(restarts):
    operator = Restarted(plan_of(hopping_rows(9, 1), retention=Retention(max_windows=1)), always=restarts)
    for partition in reversed(range(PARTITIONS)):
        operator.step("add_message", table(of_partition(partition, 0)))
    panes = operator.step("add_message", table(of_partitions(range(PARTITIONS), 1)))
    assert dropped_partitions(panes) == [f"t{partition}" for partition in range(PARTITIONS)]


@restarts
def test_early_panes_by_the_clock_come_in_the_order_of_partitions(restarts):
    plan = plan_of(tumbling_rows(20), retention=Retention(max_windows=1), early=Early(every_ms=5))
    operator = Restarted(plan, always=restarts)
    for partition in reversed(range(PARTITIONS)):
        operator.step("add_message", table(of_partition(partition, 0)), 0)
    assert [pane[3] for pane in operator.step("timeout", 5)] == [f"t{partition}:0" for partition in range(PARTITIONS)]


@pytest.mark.parametrize("limit", LIMITS, ids=["max_messages", "max_bytes"])
def test_of_equally_full_partitions_of_a_join_the_lowest_one_drops_its_window_also_after_a_restart(limit):
    plan = window_joins.plan_of(tumbling_rows(20), retention=limit)
    for keeps_instance in (True, False):
        player = window_joins.PlayedWindowJoin(plan)
        first = player.operator
        for messages in (
            of_partitions(range(PARTITIONS), 0, 1),
            *(of_partition(partition, 2, 3, 4) for partition in FULLEST),
            of_partitions(OTHERS, 2),
        ):
            if keeps_instance:
                player.operator = first
            player.step("add_message", "left", table(messages))
        if keeps_instance:
            player.operator = first
        pairs = player.step("add_message", "right", table(of_partitions(range(PARTITIONS), 0)))
        assert {pair[1] for pair in pairs} == set(range(PARTITIONS)) - {2}
