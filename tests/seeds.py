"""How many seeds a law plays: few in each run, `KEYEDWM_SEEDS` times as many where somebody asks for more.

    KEYEDWM_SEEDS=100 .venv/bin/pytest tests/operators/test_output_law.py

Rule: the first seeds are the same for any number, so that a failing seed is named by the test that fails.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("KEYEDWM_SEEDS") or 1)


def times(few: int) -> int:
    """Return how many seeds, examples or sequences to play where a usual run plays a few."""
    return few * TIMES


def seeds(few: int, first: int = 0) -> range:
    """Return that many seeds."""
    return range(first, first + times(few))
