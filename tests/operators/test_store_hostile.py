"""Messages that are made to cost much: their times are a producer's choice, the windows they touch are not bounded."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator

import pytest

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.grid import HIGHEST, LOWEST, Grid
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, hopping
from keyedwm.windows import WindowOperator
from tests.operators.stored import Message, plan_of, table


def operator_of(window: object, **settings: object) -> WindowOperator:
    return WindowOperator(plan_of(window, aggregates=(("rows", agg.count()),), **settings))


def at_times(times: list[int], first: int = 0) -> object:
    return table([Message("k", 1, time, "t", 0, offset) for offset, time in enumerate(times, first)])


@pytest.fixture
def shallow() -> Iterator[None]:
    """Little room for calls inside calls, so that what nests with the input shows with a small one."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 90)
    yield
    sys.setrecursionlimit(before)


def restless(pairs: int) -> list[int]:
    """Times of which every second one is late for one window of its own, by the time right before it."""
    return [time for number in range(1, pairs + 1) for time in (1_000 * number, 1_000 * number - 25)]


def counted_windows(operator: WindowOperator) -> list[tuple]:
    return sorted((row["window"]["start"], row["rows"]) for row in operator.flush().to_pylist())


def test_messages_that_go_back_and_forth_nest_no_calls(request: pytest.FixtureRequest) -> None:
    plan = {"retention": Retention(time_ms=20), "full": CompletedBy.MESSAGE}
    one_by_one = operator_of(hopping(20, 7), **plan)
    for offset, time in enumerate(restless(60)):
        one_by_one.add_message(at_times([time], offset))
    expected = counted_windows(one_by_one)  # and compiles
    at_once = operator_of(hopping(20, 7), **plan)
    request.getfixturevalue("shallow")
    at_once.add_message(at_times(restless(60)))
    assert counted_windows(at_once) == expected
    assert at_once.counts == one_by_one.counts


def test_windows_that_wait_cost_a_watermark_no_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operator_of(hopping(1_000, 10), retention=Retention(time_ms=86_400_000))
    operator.add_message(at_times([10_000_000 + 1_000 * number for number in range(300)]))
    looks = 0
    ends_of = Grid.ends_of

    def count_ends(grid: Grid, start: int) -> range:
        nonlocal looks
        looks += 1
        return ends_of(grid, start)

    monkeypatch.setattr(Grid, "ends_of", count_ends)
    for time in range(50):
        operator.watermark(time)
    assert looks == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_ends_of_held_windows_are_those_of_their_slices(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.randint(1, 40)
    window = hopping(size, chance.randint(1, size)) if chance.random() < 0.8 else tumbling(size)
    operator = operator_of(window, retention=Retention(time_ms=10_000))
    operator.add_message(at_times([chance.randint(-200, 200) for _ in range(chance.randint(1, 30))]))
    axis = operator._operator.content.timelines[0]
    all_ends = {end for start in axis.store.slices.tolist() for end in axis.grid.ends_of(start)}
    for _ in range(20):
        above, by = (
            chance.choice([LOWEST, chance.randint(-250, 250)]),
            chance.choice([HIGHEST, chance.randint(-250, 250)]),
        )
        assert axis.held_ends(above, by) == sorted(end for end in all_ends if above < end <= by)
        open_ends = sorted(end for end in all_ends if end > above)
        assert axis.oldest_held(above) == (len(open_ends), open_ends[0] if open_ends else HIGHEST)
