"""The laws of operators over kept messages for as many seeds as are asked for.

    python -m tests.operators.laws 10000 [FIRST] [KIND]

Each seed has messages, a cut, limits and settings of its own; the windows of all kinds take turns.
"""

from __future__ import annotations

import sys

from tests.operators.laws.kinds import CASES
from tests.operators.laws.laws import LAWS

_SHOWN_EVERY = 500


def main(seeds: int, first: int = 0, name: str = "") -> None:
    """Play the seeds; a difference ends it with the seed's number."""
    cases = [case for case in CASES if name in ("", case[0].name)]
    panes = 0
    for seed in range(first, first + seeds):
        kind, window, full = cases[seed % len(cases)]
        law = LAWS[0] if seed % 4 else LAWS[1 + seed // 4 % (len(LAWS) - 1)]
        try:
            panes += law(kind, window, full, seed)
        except AssertionError:
            print(f"seed {seed} differs: {kind.name}, {window}, {full}, {law.__name__}")
            raise
        if (seed - first + 1) % _SHOWN_EVERY == 0:
            print(f"{seed - first + 1} seeds, {panes} panes", flush=True)
    print(f"{seeds} seeds, {panes} panes, no difference")


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:4])
