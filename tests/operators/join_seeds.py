"""Joins of windows against a model in plain Python, for as many seeds as are asked for.

    python -m tests.operators.join_seeds 10000 [FIRST]

Each seed has messages, cuts, a retention and windows of its own, and a restart after each step.
"""

from __future__ import annotations

import sys

from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, RowWindow
from tests.operators.stored import KEEP_ALL
from tests.operators.test_window_join import ROWS, WINDOWS, differential
from tests.operators.window_joins import plan_of

_SHOWN_EVERY = 500
_RETENTIONS = (KEEP_ALL, Retention(time_ms=15), Retention(time_ms=40))


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    pairs = 0
    for seed in range(first, first + seeds):
        window = (*WINDOWS, *ROWS)[seed % 7]
        retention = KEEP_ALL if isinstance(window, RowWindow) else _RETENTIONS[seed // 7 % 3]
        unbounded, full = ("", "left", "right")[seed // 21 % 3], list(CompletedBy)[seed // 63 % 2]
        plan = plan_of(window, unbounded=unbounded, full=full, retention=retention)
        try:
            pairs += differential(seed, plan, 5 + seed % 40)
        except AssertionError:
            print(f"seed {seed} differs: {window}, {full}, {unbounded or 'both windowed'}, {retention}")
            raise
        if (seed - first + 1) % _SHOWN_EVERY == 0:
            print(f"{seed - first + 1} seeds, {pairs} pairs", flush=True)
    print(f"{seeds} seeds, {pairs} pairs, no difference")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
