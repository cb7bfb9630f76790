"""Replays files of vectors and prints what came out: `python -m conformance.replay [-v] PATH...`.

Rule: one line per failure, then as the last line `N match, N decided otherwise, N fail`; the result is 1 on a failure.
"""

from __future__ import annotations

import argparse
import sys
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


def main(argv: Sequence[str] | None = None) -> int:
    """Replay what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or folder of vectors")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list differences that the design decides")
    args = parser.parse_args(argv)
    return replay(args.paths, verbose=args.verbose)


if __name__ == "__main__":
    sys.exit(main())
