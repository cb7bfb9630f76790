"""`keyedwm vectors PATH...`: replays conformance vectors through the event-time core.

Rule: one line per failure, then as the last line `N match, N decided otherwise, N fail`; exit code 1 on a failure.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from keyedwm.cli.conformance.reading import replay_all
from keyedwm.cli.conformance.verdict import Outcome
from keyedwm.core.errors import KeyedwmError

HELP = "replay conformance vectors through the event-time core"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files and folders, and whether to name what the design decides otherwise."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or folder of vectors")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list what the design decides otherwise")


def run(args: argparse.Namespace) -> int:
    """Replay, print, and tell by the exit code."""
    counts: Counter[Outcome] = Counter()
    for replayed in replay_all(args.paths):
        outcome = replayed.verdict.outcome
        counts[outcome] += 1
        if outcome is Outcome.FAIL or (args.verbose and outcome is Outcome.OTHERWISE):
            print(replayed.line())
    print(", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome))
    return 1 if counts[Outcome.FAIL] else 0


def main() -> int:
    """`python -m keyedwm.cli.vectors`."""
    parser = argparse.ArgumentParser(prog="keyedwm vectors", description=HELP)
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except KeyedwmError as error:
        print(f"keyedwm: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
