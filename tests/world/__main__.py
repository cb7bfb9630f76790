"""`python -m tests.world --seeds N --from S`: plays seeds, prints failing ones with a trace, and seeds per second."""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter

from tests.world.faults import Strike
from tests.world.planted import BUGS, falls_at
from tests.world.shrink import shrink
from tests.world.simulate import quiet, run
from tests.world.world import Outcome


def main() -> int:
    """Play; exit code 1 if the invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--most", type=int, default=5, help="failing seeds that are printed in full")
    parser.add_argument("--trace", action="store_true", help="print the trace of every seed")
    parser.add_argument("--only", nargs="*", metavar="FAULT:N", help="no other strikes than these, as shrinking tells")
    parser.add_argument(
        "--planted", nargs="*", metavar="WORD", help="plant bugs (whose names have a word): when found?"
    )
    args = parser.parse_args()
    gc.disable()  # between seeds is soon enough
    with quiet():
        return _play(args) if args.planted is None else _planted(args.first, args.seeds, args.planted)


def _play(args: argparse.Namespace) -> int:
    only = None if args.only is None else frozenset(map(Strike.parse, args.only))
    failed, stopped, batches, struck = [], 0, 0, Counter[str]()
    started, worked = time.perf_counter(), time.process_time()
    for seed in range(args.first, args.first + args.seeds):
        outcome = run(seed, only=only)
        if seed % 50 == 0:
            gc.collect()
        batches += outcome.batches
        stopped += outcome.stopped is not None
        struck.update({strike.fault for strike in outcome.strikes})
        if outcome.violation is not None:
            failed.append(seed)
            if len(failed) <= args.most:
                print(_report(outcome, is_shrunk=only is not None), flush=True)
        elif args.trace:
            print("\n".join(outcome.trace))
    seconds, worked = time.perf_counter() - started, time.process_time() - worked
    print(f"seeds by fault: {dict(struck.most_common())}")
    print(
        f"{args.seeds} seeds from {args.first}: {len(failed)} violations {failed[:20]}, {stopped} stopped by a fact, "
        f"{batches} batches, {args.seeds / seconds:.1f} seeds/s, {args.seeds / worked:.1f} per second of processor time"
    )
    return 1 if failed else 0


def _report(outcome: Outcome, *, is_shrunk: bool) -> str:
    """The trace of a failing seed with as few strikes as it takes."""
    least = outcome if is_shrunk else shrink(outcome)
    strikes = " ".join(f"'{strike}'" for strike in least.strikes)
    return (
        f"seed {outcome.seed}: {outcome.violation}\n  with {len(least.strikes)} of {len(outcome.strikes)} strikes: "
        f"{least.violation}\n{least.told()}\n"
        f"  replay: python -m tests.world --seeds 1 --from {outcome.seed} --only {strikes}"
    )


def _planted(first: int, seeds: int, words: list[str]) -> int:
    missed = 0
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    for bug in chosen:
        found = falls_at(bug, first, seeds)
        missed += found is None
        print(f"{'missed' if found is None else f'seed {found.seed}':>10}  {bug.name}", flush=True)
        if found is not None:
            print(f"{'':12}{str(found.violation)[:150]}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs fell within {seeds} seeds from {first}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
