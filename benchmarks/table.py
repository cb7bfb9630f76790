"""Writes docs/reference/performance.md and its plots out of the result files.

Rule: the page never says what no run has shown.

Run: python -m benchmarks.table
Prints the targets and what became of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.measure import KEPT, RESULTS, median, thousands
from benchmarks.plots import plots

DOCS = Path(__file__).parents[1] / "docs"
RATES = ("rate", "steady", "cpu_s")
HEAD = """# Performance

Each comparison runs our job and its rival in turn on one machine, one broker and the same rows (`make bench`, or one
of them with `make bench ONLY=source`); outputs are checked before a figure is shown. Ratios are ours divided by the
rival's of the same round: median (least to most). *Whole* is from `start()` to the end of the query; *in full batches*
leaves the start and the first micro-batch out; CPU is seconds per million rows of all processes but the broker, so
less than 1 is better there. The rules: ten full batches a side, the same batches on both sides, rounds that warm up
until two agree, and five rounds that count. How a figure is taken: `benchmarks/README.md`. Lost comparisons stay in.

**Some ratios below are too good, and are being measured again.** Results that say nothing of warming up are from before
these rules, most of them of versions before 0.3.0; where a side had few full batches that stands beside the verdict.
Two are taken out until then, as they had one or two: sessions, and exactly-once Kafka in batches of two million.

## Targets

Ratios are of whole runs where nothing else is said; windows are compared with Spark's own over its default state store
(its RocksDB stands beside it below). Where a side ran fewer than ten full batches that stands beside the verdict: such
a figure says more of the start than of the rest.

"""
FIGURES = {
    "overlap.svg": "Throughput of windows against their overlap",
    "state.svg": "What a batch costs against open state, keys and rows",
    "state-day.svg": "What a batch writes and reads, hour by hour",
    "latency-at-once.svg": "Latency, each micro-batch right after the one before",
    "latency-2-seconds.svg": "Latency, a micro-batch every two seconds",
}


def main() -> None:
    """Write the page and its plots, those of a trial run beside its results, and print the targets."""
    write(RESULTS, DOCS if RESULTS == KEPT else RESULTS)


def write(results: Path, docs: Path) -> None:
    """Write the page of some result files into a directory, plots into `figures` below it."""
    read = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    found = {name: one for name, one in read.items() if "runs" in one}  # an experiment's figures are not a comparison
    drawn = plots(found)
    for below in ("figures", "reference"):
        (docs / below).mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        (docs / "figures" / name).write_text(svg, encoding="utf-8")
    shown = "".join(f"![{FIGURES[name]}](../figures/{name})\n\n" for name in drawn)
    asked = targets.table(found)
    sections = "\n".join(_section(one) for one in found.values())
    (docs / "reference" / "performance.md").write_text(f"{HEAD}{asked}\n{shown}{sections}", encoding="utf-8")
    print(asked)


def _section(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    on = f"{machine['cores']} cores, Python {machine['python']}, PySpark {machine['pyspark']}"
    rounds = len(next(iter(found["runs"].values())))
    head = f"## {found['name']}\n\n{_setting(found['setting'])}; {on}; {rounds} rounds{_warming(found)}.\n"
    return head + "\n" + (_rates if "rate" in _figures(found) else _others)(found)


def _warming(found: Mapping[str, Any]) -> str:
    """What came before the rounds that count; results from before that rule say nothing."""
    if "warmed" not in found:
        return ""
    agreed = "" if found["is_warm"] else ", whose last two do not agree within a tenth"
    return f" after {found['warmed']} that warmed up{agreed}"


def _rates(found: Mapping[str, Any]) -> str:
    lines = [
        f"| side | thousand rows/s | CPU s per M | whole, of {found['rival']} | in full batches | CPU |",
        "|---|---|---|---|---|---|",
    ]
    for side, runs in found["runs"].items():
        ratios = found["ratios"].get(side, {})
        rate, cpu_s = (median(run[what] for run in runs) for what in ("rate", "cpu_s"))
        shown = " | ".join(_summary(ratios.get(what)) for what in RATES)
        lines.append(f"| {side} | {thousands(rate)} | {cpu_s:,.2f} | {shown} |")
    return "\n".join(lines) + "\n"


def _others(found: Mapping[str, Any]) -> str:
    figures = _figures(found)
    lines = ["| side | " + " | ".join(figures) + " |", "|---" * (len(figures) + 1) + "|"]
    for side, runs in found["runs"].items():
        values = [[run[what] for run in runs] for what in figures]
        shown = " | ".join(_summary({"median": median(one), "min": min(one), "max": max(one)}) for one in values)
        lines.append(f"| {side} | {shown} |")
    return "\n".join(lines) + "\n"


def _figures(found: Mapping[str, Any]) -> list[str]:
    return list(next(iter(found["runs"].values()))[0])


def _setting(setting: Mapping[str, Any]) -> str:
    """Name and value; what each side is given stands behind its name."""
    common = [f"{name} {_number(value)}" for name, value in setting.items() if name != "sides" and value is not None]
    own = [f"{side}: {_setting(given)}" for side, given in setting.get("sides", {}).items()]
    return "; ".join([", ".join(common), *own] if common else own)


def _summary(summary: Mapping[str, float] | None) -> str:
    if summary is None:
        return "-"
    middle, least, most = (f"{summary[what]:,.{_decimals(summary[what])}f}" for what in ("median", "min", "max"))
    return middle if least == most == middle else f"{middle} ({least} to {most})"


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
