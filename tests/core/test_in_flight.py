"""Calls and the control rows between them: what may leave, and when."""

from __future__ import annotations

import random

import pytest

from keyedwm.core.errors import OutOfTurnError
from keyedwm.core.in_flight import Call, ControlEntry, InFlight


def numbers_and_rows(entries: list) -> list:
    return [entry.number if isinstance(entry, Call) else entry.row for entry in entries]


def test_a_full_flight_takes_no_call_and_every_control_row():
    flight: InFlight[str] = InFlight(ordered=False, capacity=1)
    flight.start(Call(1))
    assert flight.is_full
    assert flight.control(ControlEntry("barrier")) == []
    with pytest.raises(OutOfTurnError, match="call 2 was started while 1 are in flight"):
        flight.start(Call(2))
    assert numbers_and_rows(flight.finish(Call(1))) == [1, "barrier"]
    assert flight.is_empty


def test_an_ordered_result_that_waits_takes_up_room_and_an_unordered_one_does_not():
    for ordered in (True, False):
        flight: InFlight[str] = InFlight(ordered=ordered, capacity=2)
        flight.start(Call(1))
        flight.start(Call(2))
        assert numbers_and_rows(flight.finish(Call(2))) == ([] if ordered else [2])
        assert flight.is_full is ordered


def test_only_rows_that_stand_for_the_same_and_are_neighbours_are_left_out():
    flight: InFlight[str] = InFlight(ordered=True, capacity=2)
    flight.start(Call(1))
    for row, subject in (("w1", "a"), ("w2", "a"), ("barrier", None), ("barrier", None), ("w3", "a"), ("v1", "b")):
        assert flight.control(ControlEntry(row, subject)) == []
    flight.start(Call(2))
    flight.control(ControlEntry("v2", "b"))
    assert numbers_and_rows(flight.finish(Call(1))) == [1, "w2", "barrier", "barrier", "w3", "v1"]
    assert numbers_and_rows(flight.finish(Call(2))) == [2, "v2"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("case", range(100))
def test_no_control_row_leaves_before_what_was_before_it(ordered, case, seed):
    chance = random.Random(f"{seed}-{case}")
    flight: InFlight[str] = InFlight(ordered=ordered, capacity=chance.randint(1, 5))
    inputs, running, left, ended = [], [], [], []
    for number in range(60):
        if chance.random() < 0.4:
            inputs.append(f"c{number}")
            left += numbers_and_rows(flight.control(ControlEntry(f"c{number}")))
            continue
        while flight.is_full:
            finished = running.pop(chance.randrange(len(running)))
            ended.append(finished)
            left += numbers_and_rows(flight.finish(Call(finished)))
        inputs.append(number)
        flight.start(Call(number))
        running.append(number)
    for finished in chance.sample(running, len(running)):
        ended.append(finished)
        left += numbers_and_rows(flight.finish(Call(finished)))
    assert flight.is_empty
    if ordered:
        assert left == inputs
        return
    assert sorted(map(str, left)) == sorted(map(str, inputs))
    assert [one for one in left if isinstance(one, int)] == ended
    assert [one for one in left if isinstance(one, str)] == [one for one in inputs if isinstance(one, str)]
    for row in (one for one in inputs if isinstance(one, str)):
        assert set(inputs[: inputs.index(row)]) <= set(left[: left.index(row)])
