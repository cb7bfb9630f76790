"""`python -m tests.system.world --seeds N --from S`: plays seeds, prints failing ones with a trace."""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from tests.system.world.faults import Strike
from tests.system.world.planted import BUGS, falls_at
from tests.system.world.planted_week import WEEKLY
from tests.system.world.shrink import shrink
from tests.system.world.simulate import quiet, run
from tests.system.world.week import Week
from tests.system.world.world import TARGETS, Outcome, World

_TOLD_EVERY = {False: 250, True: 10}  # seeds; of weeks fewer


def main() -> int:
    """Play; exit code 1 if the invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--target", choices=sorted(TARGETS), help="of each seed; else they take turns")
    parser.add_argument("--week", action="store_true", help="play a week of each seed, not a short history")
    parser.add_argument("--most", type=int, default=5, help="failing seeds that are printed in full")
    parser.add_argument("--trace", action="store_true", help="print the trace of every seed")
    parser.add_argument("--only", nargs="*", metavar="FAULT:N", help="no other strikes than these, as shrinking tells")
    parser.add_argument(
        "--planted", nargs="*", metavar="WORD", help="plant bugs (whose names have a word): when found?"
    )
    args = parser.parse_args()
    gc.disable()  # between seeds is soon enough
    with quiet():
        return _play(args) if args.planted is None else _planted(args)


def _play(args: argparse.Namespace) -> int:
    only = None if args.only is None else frozenset(map(Strike.parse, args.only))
    tally, kind = _Tally(args.first), Week if args.week else World
    for seed in range(args.first, args.first + args.seeds):
        outcome = run(seed, only=only, target=args.target, kind=kind)
        if seed % 50 == 0:
            gc.collect()
        tally.add(outcome)
        if outcome.violation is not None and len(tally.failed) <= args.most:
            print(_report(outcome, args, is_shrunk=only is not None), flush=True)
        elif args.trace:
            print("\n".join((*outcome.trace, *outcome.days)))
        if tally.seeds % _TOLD_EVERY[args.week] == 0 and tally.seeds < args.seeds:
            print(tally.told(), flush=True)
    print(f"seeds by fault: {dict(tally.struck.most_common())}")
    print(tally.told())
    return 1 if tally.failed else 0


@dataclass(slots=True)
class _Tally:
    """What has been played so far, so that a run of hours that is broken off leaves its figures."""

    first: int
    seeds: int = 0
    facts: Counter[str] = field(default_factory=Counter)
    days: int = 0
    batches: int = 0
    failed: list[int] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    _started_s: float = field(default_factory=time.perf_counter)
    _worked_s: float = field(default_factory=time.process_time)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.batches += outcome.batches
        self.days += max(len(outcome.days) - 1, 0)  # the first line has the names
        if outcome.stopped is not None:
            self.facts[outcome.stopped.partition(":")[0]] += 1
        self.struck.update({strike.fault for strike in outcome.strikes})
        if outcome.violation is not None:
            self.failed.append(outcome.seed)

    def told(self) -> str:
        """What the seeds came to; days: how many of the weeks' days were played."""
        seconds, worked_s = time.perf_counter() - self._started_s, time.process_time() - self._worked_s
        return (
            f"{self.seeds} seeds from {self.first}: {len(self.failed)} violations {self.failed[:20]}, "
            f"{self.facts.total()} stopped by a fact {dict(self.facts)}, {self.batches} batches, {self.days} days, "
            f"{self.seeds / seconds:.1f} seeds/s, "
            f"{self.seeds / worked_s:.1f} per second of processor time"
        )


def _report(outcome: Outcome, args: argparse.Namespace, *, is_shrunk: bool) -> str:
    """The trace of a failing seed with as few strikes as it takes."""
    play = partial(run, target=args.target, kind=Week if args.week else World)
    least = outcome if is_shrunk else shrink(outcome, play)
    of_target = (f" --target {args.target}" if args.target else "") + (" --week" if args.week else "")
    strikes = " ".join(f"'{strike}'" for strike in least.strikes)
    return (
        f"seed {outcome.seed}: {outcome.violation}\n  with {len(least.strikes)} of {len(outcome.strikes)} strikes: "
        f"{least.violation}\n{least.told()}\n"
        f"  replay: python -m tests.system.world --seeds 1 --from {outcome.seed}{of_target} --only {strikes}"
    )


def _planted(args: argparse.Namespace) -> int:
    missed, (bugs, kind) = 0, (WEEKLY, Week) if args.week else (BUGS, World)
    chosen = [bug for bug in bugs if not args.planted or any(word in bug.name for word in args.planted)]
    for bug in chosen:
        found = falls_at(bug, args.first, args.seeds, kind)
        missed += found is None
        print(f"{'missed' if found is None else f'seed {found.seed}':>10}  {bug.name}", flush=True)
        if found is not None:
            print(f"{'':12}{str(found.violation)[:150]}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs fell within {args.seeds} seeds from {args.first}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
