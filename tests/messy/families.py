"""The families by name: each plays one random case and raises AssertionError, with what differed, if it does."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.messy import joins, panes, pushed, rows, stores, window_joins, windows

FAMILIES: dict[str, Callable[[random.Random], int]] = {
    "windows": windows.play,
    "panes": panes.play,
    "store": stores.play,
    "running": rows.play_running,
    "process": rows.play_process,
    "join": joins.play_join,
    "join_latest": joins.play_latest,
    "window_join": window_joins.play,
    "pushed": pushed.play,
}


def play(family: str, seed: int) -> int:
    """Play a seed of a family; return how many results were compared."""
    return FAMILIES[family](random.Random(f"{family} {seed}"))


def again(family: str, seed: int) -> str:
    """The command that repeats a seed."""
    return f"python -m tests.messy --only {family} --from {seed} --seeds 1"
