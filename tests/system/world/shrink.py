"""The shortest list of strikes with which a seed still fails: what has to go wrong, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.system.world.faults import Strike
from tests.system.world.simulate import run
from tests.system.world.world import Outcome

MOST_RUNS = 300


def shrink(failed: Outcome, play: Callable[..., Outcome] = run, most_runs: int = MOST_RUNS) -> Outcome:
    """Take strikes out, whole kinds first, then halves, then single ones, as long as the seed fails without them.

    Without some strikes the rest falls on other moments, so each try is played, and its own strikes are what is left.
    """
    best, runs = failed, 0

    def fails_with(kept: Sequence[Strike]) -> bool:
        nonlocal best, runs
        if runs >= most_runs:
            return False
        runs += 1
        outcome = play(failed.seed, only=frozenset(kept))
        if outcome.violation is not None and len(outcome.strikes) < len(best.strikes):
            best = outcome
            return True
        return False

    for kind in sorted({strike.fault for strike in best.strikes}):
        fails_with([strike for strike in best.strikes if strike.fault != kind])
    size = max(len(best.strikes) // 2, 1)
    while best.strikes:
        taken = False
        at = 0
        while at < len(best.strikes):
            if fails_with([*best.strikes[:at], *best.strikes[at + size :]]):
                taken = True
            else:
                at += size
        if size == 1 and not taken:
            break
        size = max(size // 2, 1) if not taken or size > 1 else 1
    return best
