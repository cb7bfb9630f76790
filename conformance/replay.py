"""Replays files of vectors and prints what came out.

Rule: one line per failure, then as the last line `N match, N decided otherwise, N fail`; the result is 1 on a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from conformance.reading import replay_all
from conformance.verdict import Outcome


def replay(paths: Sequence[Path], *, verbose: bool = False) -> int:
    """Replay every vector under these paths; verbose: also list what the design decides otherwise."""
    counts: Counter[Outcome] = Counter()
    for replayed in replay_all(paths):
        outcome = replayed.verdict.outcome
        counts[outcome] += 1
        if outcome is Outcome.FAIL or (verbose and outcome is Outcome.OTHERWISE):
            print(replayed.line())
    print(", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome))
    return 1 if counts[Outcome.FAIL] else 0
