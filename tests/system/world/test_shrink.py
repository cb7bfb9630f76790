"""Shrinking finds the strikes that a failure needs, and no others; a strike is named so that it can be played alone."""

from __future__ import annotations

from keyedwm.testing.simulated_kafka.brokers import Brokers
from keyedwm.testing.simulated_kafka.log import Clock
from tests.system.world.faults import Faults, Strike
from tests.system.world.shrink import shrink
from tests.system.world.world import Outcome

ALL = tuple(Strike(fault, number) for fault in ("kill driver", "lost answer", "pause") for number in range(1, 9))
NEEDED = {Strike("kill driver", 3), Strike("pause", 7)}


def played(seed: int, *, only: frozenset[Strike]) -> Outcome:
    """Fails if all that is needed strikes."""
    strikes = tuple(strike for strike in ALL if strike in only)
    violation = "lost" if set(strikes) >= NEEDED else None
    return Outcome(seed, violation, None, (), strikes, 1)


def test_what_a_failure_does_not_need_is_taken_out() -> None:
    assert set(shrink(played(1, only=frozenset(ALL)), played).strikes) == NEEDED


def test_shrinking_ends_after_so_many_runs() -> None:
    runs = []

    def counted(seed: int, *, only: frozenset[Strike]) -> Outcome:
        runs.append(seed)
        return played(seed, only=only)

    shrunk = shrink(played(1, only=frozenset(ALL)), counted, most_runs=5)
    assert len(runs) == 5
    assert shrunk.violation == "lost"


def test_a_strike_is_named_so_that_it_can_be_asked_for() -> None:
    assert Strike.parse(str(Strike("lost answer", 12))) == Strike("lost answer", 12)


def test_without_a_strike_the_others_stay_where_they_were() -> None:
    def struck(only: frozenset[Strike] | None) -> list[Strike]:
        faults = Faults(5, Brokers(Clock()), only=only)
        for _ in range(500):
            for name in faults.rates:
                faults.strikes(name)
        return faults.strikes_so_far

    every = struck(None)
    assert len({strike.fault for strike in every}) > 5
    assert struck(frozenset(every[1::2])) == every[1::2]
