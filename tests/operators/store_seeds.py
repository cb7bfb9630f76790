"""Windows that keep their messages against a model in plain Python, for as many seeds as are asked for.

    python -m tests.operators.store_seeds 10000 [FIRST]

Each seed has messages, a cut, limits and a window of its own, and a restart after each step; one in four goes on.
"""

from __future__ import annotations

import sys

from keyedwm.operators.messages.plan import Full
from keyedwm.operators.state import store as logs
from tests.operators.test_window_store import WINDOWS, differential

_SHOWN_EVERY = 500


def main(seeds: int, first: int = 0) -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    logs.FAN_OUT = 3  # compaction at every third part
    panes = 0
    for seed in range(first, first + seeds):
        window, full = WINDOWS[seed // 4 % len(WINDOWS)], list(Full)[seed // 20 % 2]
        try:
            panes += differential(seed, window, full, 10 + seed % 40, accumulating=seed % 3 != 0)
        except AssertionError:
            print(f"seed {seed} differs: {window}, {full}")
            raise
        if (seed - first + 1) % _SHOWN_EVERY == 0:
            print(f"{seed - first + 1} seeds, {panes} panes", flush=True)
    print(f"{seeds} seeds, {panes} panes, no difference")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
