"""Whether the comparisons of the page are still as good as they were, in short forms: `make bench-guard`.

Run: python -m benchmarks.guard [--only source] [--pairs 3] [--store]
Each comparison is its own module's, with fewer records: sides in turn in one run (A B A B), after a round that warms
both up. A ratio is ours of Spark's in the same round, the median of the rounds counts, and it fails if that is more
than a tenth worse than the one in `guard.json`, in two runs: a module with such a ratio runs once more. `--store` runs
everything twice and writes that file: the ratio of rates or waiting times where both runs agree within a tenth, else
that of CPU seconds (user and system), which other load on the machine moves less; where not even they agree nothing is
stored, and the guard says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import how_many, machine

STORED_RATIOS = Path(__file__).with_name("guard.json")
# So much of a ratio must be left, and so near must two runs be to each other.
LEAST_LEFT = 0.9
PAIRS = 3
# More of these is better, of all others less.
RATES = ("rate", "steady")


@dataclass(frozen=True, slots=True)
class Guarded:
    """A ratio that is held: of which module with which options, in which result, of which side.

    figures: the one that users feel, and its CPU seconds.
    """

    module: str
    options: tuple[str, ...]
    result: str
    side: str = "keyedwm"
    figures: tuple[str, str] = ("steady", "cpu_s")

    @property
    def name(self) -> str:
        """Its name in `guard.json` and in sentences."""
        return f"{self.result}, {self.side}"


PUSHED = "keyedwm, stage one in the source"
_WINDOWS = ("windows", ("--case", "tumbling", "--records", "2400000"), "windows-tumbling")
_JOIN = ("join", ("--case", "one-to-one", "--records", "400000", "--batches", "4"), "join-one-to-one")
GUARDED = (
    Guarded("source", ("--case", "batches", "--records", "2000000"), "source-batches"),
    Guarded(*_WINDOWS),
    Guarded(*_WINDOWS, PUSHED),
    Guarded(*_JOIN),
    Guarded(*_JOIN, PUSHED),
    Guarded("start", ("--case", "rows"), "start-rows", figures=("first_s", "first_cpu_s")),
    Guarded("start", ("--case", "windows"), "start-windows", figures=("first_s", "first_cpu_s")),
)


@dataclass(frozen=True, slots=True)
class StoredRatio:
    """A stored ratio: of which figure."""

    figure: str
    ratio: float


def measured(guarded: tuple[Guarded, ...], pairs: int) -> dict[str, dict[str, float]]:
    """Run the comparisons; name → figure → median ratio."""
    medians: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as results:
        for module, *options in dict.fromkeys((one.module, *one.options) for one in guarded):
            command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{module}", *options, "--pairs", str(pairs)]
            subprocess.run(command, check=True, env=os.environ | {"BENCH_RESULTS": results})
        for one in guarded:
            of_side = json.loads(Path(results, f"{one.result}.json").read_text(encoding="utf-8"))["ratios"][one.side]
            medians[one.name] = {figure: summary["median"] for figure, summary in of_side.items() if summary}
    return medians


def share_left(stored_ratio: StoredRatio, ratio: float) -> float:
    """How much of a stored ratio is left: less than 1 if the new one is worse."""
    return ratio / stored_ratio.ratio if stored_ratio.figure in RATES else stored_ratio.ratio / ratio


def falls(stored_ratios: Mapping[str, StoredRatio], figures: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return a sentence for the name of each ratio that fell by more than a tenth: what it was and is."""
    sentences = {}
    for name, of_name in figures.items():
        one = stored_ratios.get(name)
        if one is not None and (of_it := share_left(one, of_name[one.figure])) < LEAST_LEFT:
            sentences[name] = (
                f"{name}: {one.figure} is {of_name[one.figure]:.2f} of Spark's, {one.ratio:.2f} is stored: "
                f"{1 - of_it:.0%} worse, {1 - LEAST_LEFT:.0%} is allowed"
            )
    return sentences


def fallen_twice(
    stored_ratios: Mapping[str, StoredRatio],
    guarded: tuple[Guarded, ...],
    first: Mapping[str, Mapping[str, float]],
    measure: Callable[[tuple[Guarded, ...]], Mapping[str, Mapping[str, float]]],
) -> list[str]:
    """Measure the modules once more that have a fallen ratio in `first`; return a sentence for each that fell in both.

    Why: rounds of one run of the join differ by a third on a machine with two cores.
    """
    once = falls(stored_ratios, first)
    if not once:
        return []
    modules = {one.module for one in guarded if one.name in once}
    print("\n".join([*once.values(), f"measured once more: {', '.join(sorted(modules))}"]), flush=True)
    twice = falls(stored_ratios, measure(tuple(one for one in guarded if one.module in modules)))
    return [sentence for name, sentence in twice.items() if name in once]


def agreed(one: Guarded, first: Mapping[str, float], second: Mapping[str, float]) -> StoredRatio | None:
    """Return the ratio to store of two runs: of the first figure in which they agree; None where they do in none."""
    for figure in one.figures:
        low, high = sorted((first[figure], second[figure]))
        if low >= LEAST_LEFT * high:
            return StoredRatio(figure, round((low + high) / 2, 3))
    return None


def read_stored() -> dict[str, StoredRatio]:
    """Read `guard.json`."""
    ratios: dict[str, Any] = json.loads(STORED_RATIOS.read_text(encoding="utf-8"))["ratios"]
    return {name: StoredRatio(**one) for name, one in ratios.items()}


def store(guarded: tuple[Guarded, ...], pairs: int) -> None:
    """Run everything twice, and write what both runs agree in; what is not run now stays."""
    first, second = measured(guarded, pairs), measured(guarded, pairs)
    stored_ratios = read_stored()
    for one in guarded:
        ratio = agreed(one, first[one.name], second[one.name])
        ratios_text = [f"{first[one.name][figure]:.2f} and {second[one.name][figure]:.2f}" for figure in one.figures]
        if ratio is None:
            stored_ratios.pop(one.name, None)
            print(f"{one.name}: two runs do not agree ({'; '.join(ratios_text)}): nothing is stored")
            continue
        stored_ratios[one.name] = ratio
        print(f"{one.name}: {ratio.figure} {ratio.ratio:.2f} of Spark's is stored ({'; '.join(ratios_text)})")
    ratios = {name: {"figure": one.figure, "ratio": one.ratio} for name, one in sorted(stored_ratios.items())}
    STORED_RATIOS.write_text(json.dumps({"machine": machine(), "ratios": ratios}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run, and fail with a sentence for each ratio that fell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted({one.module for one in GUARDED}))
    parser.add_argument("--pairs", type=how_many, default=PAIRS)
    parser.add_argument("--store", action="store_true", help="store the ratios in which two runs agree")
    options = parser.parse_args()
    guarded = tuple(one for one in GUARDED if one.module in (options.only or {one.module for one in GUARDED}))
    if options.store:
        store(guarded, options.pairs)
        return
    stored_ratios, medians = read_stored(), measured(guarded, options.pairs)
    for name in medians.keys() - stored_ratios.keys():
        print(f"{name}: no ratio is stored; python -m benchmarks.guard --store stores those in which two runs agree")
    if fallen := fallen_twice(stored_ratios, guarded, medians, lambda some: measured(some, options.pairs)):
        sys.exit("; ".join(fallen))
    print(
        f"{len(medians.keys() & stored_ratios.keys())} of {len(medians)} ratios are held, "
        "none fell twice by more than a tenth"
    )


if __name__ == "__main__":
    main()
