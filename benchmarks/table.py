"""Writes docs/reference/performance.md, the pages of figures below it and the plots, out of the result files.

Rule: the page never says what no run has shown.

Run: python -m benchmarks.table
Prints the targets and what became of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
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
*Stage one in the source*: the operator was given `kafka(...)` or `source(...)` itself and not loaded rows, so the tasks
that read aggregate, too ([windows](windows.md#stage-one-inside-the-source)).

Starts, the small batch, latency with each batch at once, idle queries, `source-batches`, `sink-kafka-500k`,
`windows-tumbling`, the skewed windows and Nexmark ran with `session_conf`, as users do. The other comparisons are
older: their Python processes loaded each for itself, which costs our side some seconds of every whole run. CPU is left
out where the time of processes that had ended was not counted.

All figures, by what was measured:

"""
TARGETS = """
## Targets

Ratios are of whole runs where nothing else is said; windows are compared with Spark's own over its default state store
(its RocksDB stands beside it on their page). Where a side ran fewer than ten full batches, nothing warmed up, or fewer
than five rounds count, that stands beside the verdict: such a figure says more of the start than of the rest. So does
that the last two of four warming rounds still differed by more than a tenth, as on a busy machine.

"""
PEERS = """## Flink and Jet on the same work

November 2026, two cores, the broker on the same two, parallelism 2; Flink 2.2.1 with a checkpoint a second, Hazelcast
Jet 5.5.0 with an exactly-once snapshot a second, in memory. 4,000,000 records of 100 bytes, 4 partitions, 1,000 keys,
one record a millisecond of event time (sessions: 2,000,000 records, 100,000 keys); counts and sums, checked. Thousand
records a second; CPU seconds per million. They ran in another run than the comparisons above, with Spark in turn: read
each beside its Spark.

| work | Spark, default store | Spark, RocksDB | Flink | Flink, RocksDB | Flink SQL | Jet |
|---|---|---|---|---|---|---|
| read and discard | 625; 1.5 | | 1,715; 1.4 | | | 1,787; 1.0 |
| tumbling 10 s | 394; 2.9 | 225; 4.6 | 1,288; 1.6 | 143; 9.1 | 518; 3.5 | 1,256; 1.2 |
| sliding 60 s / 1 s | 55; 33 | 36; 46 | 33; 50 | | 38; 50 | 537; 3.1 |
| sliding 600 s / 1 s | about 1; over 1,000 | | about 3; over 500 | | | 224; 7.0 |
| Kafka to Kafka, at least once | 276; 4.1 | | 361; 3.3 | | | 427; 3.0 |
| Kafka to Kafka, exactly once | none exists | | 446; 3.1 | | | 289; 4.3 |
| sessions, gap 2 s | 177; 8.4 | 113; 15 | 287; 5.4 | 53; 27 | 265; 7.5 | 368; 3.9 |
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A page of figures: its file and title, and how the names of its results begin.

    drawn: what stands below them, where the pictures that it shows are in `docs/figures`; other programs make them.
    """

    file: str
    title: str
    names: tuple[str, ...]
    about: str
    drawn: str = ""


INTRODUCTION = (
    "How to read them, and what was asked: [performance](../performance.md). Made by `make bench` out of its result "
    "files.\n\n"
)
_PICTURE = re.compile(r"figures/([\w.-]+)\)")
FLAMES = """
## Where Python's time goes until the first results

Three windowed queries of one session, each to the end of its first batch (`python -m benchmarks.start_flames`): the
stacks on a CPU of the driver and of all Python processes, the widest calls widest; 28 November 2026. Before: the
version of 25 November, without the process that loads everything once and is forked for sources, planners, tasks and
writes. A frame names itself under the pointer when the picture is opened by itself.

![Python processes of three windowed queries, before](../../figures/first-windows-before.svg)

![Python processes of three windowed queries, after](../../figures/first-windows-after.svg)
"""
FAMILIES = (
    Family("source", "Reading", ("source-", "planning", "control-rows", "memory"), "reading from Kafka, planning"),
    Family("windows", "Windows", ("windows-",), "tumbling and sliding windows, sessions, skewed keys and partitions"),
    Family(
        "start",
        "Start and latency",
        ("start-", "latency-", "small-batch", "first-task"),
        "the first batch, the small batch, event to result",
        FLAMES,
    ),
    Family("state", "State", ("state-",), "what a batch costs against what is open"),
    Family("joins", "Joins", ("join-",), "stream-stream joins"),
    Family("store", "The window store", ("store-",), "full-state aggregates"),
    Family("sink", "The sink", ("sink-",), "Kafka to Kafka, Delta"),
    Family("nexmark", "Nexmark", ("nexmark-",), "its queries over Kafka"),
    Family(
        "cluster", "Tasks and executors", ("driver", "growth", "idle"), "the driver's part, executors, idle queries"
    ),
)
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
    pages = docs / "reference" / "performance"
    pages.mkdir(exist_ok=True)
    links = []
    if homeless := [name for name in found if not name.startswith(tuple(n for one in FAMILIES for n in one.names))]:
        raise SystemExit(f"no page of FAMILIES shows the results {', '.join(homeless)}: name one")
    for family in FAMILIES:
        sections = [_section(one) for name, one in found.items() if name.startswith(family.names)]
        if sections:
            drawn = (
                family.drawn if all((docs / "figures" / one).exists() for one in _PICTURE.findall(family.drawn)) else ""
            )
            text = f"# {family.title}: figures\n\n{INTRODUCTION}" + "\n".join(sections) + drawn
            (pages / f"{family.file}.md").write_text(text, encoding="utf-8")
            links.append(f"- [{family.title}](performance/{family.file}.md): {family.about}\n")
    page = f"{HEAD}{''.join(links)}{TARGETS}{asked}\n{shown}{PEERS}"
    (docs / "reference" / "performance.md").write_text(page, encoding="utf-8")
    print(asked)


def _section(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    on = f"{machine['cores']} cores, Python {machine['python']}, PySpark {machine['pyspark']}"
    rounds = len(next(iter(found["runs"].values())))
    head = f"## {found['name']}\n\n{_setting(found['setting'])}; {on}; {rounds} rounds{_warming(found)}.\n"
    return head + "\n" + (_rates if "rate" in _figures(found) else _others)(found) + _spent(found)


def _warming(found: Mapping[str, Any]) -> str:
    """What came before the rounds that count; a rate whose result says nothing of that is from before that rule."""
    if "warmed" not in found:
        return ", measured before rounds warmed up" if found["rival"] and "rate" in _figures(found) else ""
    agreed = "" if found["is_warm"] else ", whose last two do not agree within a tenth"
    return f" after {found['warmed']} that warmed up{agreed}"


def _rates(found: Mapping[str, Any]) -> str:
    whole = f"whole, of {found['rival']}" if found["rival"] else "whole"
    lines = [
        f"| side | thousand rows/s | CPU s per M | {whole} | in full batches | CPU |",
        "|---|---|---|---|---|---|",
    ]
    for side, runs in found["runs"].items():
        ratios = found["ratios"].get(side, {})
        rate, cpu_s = ([run[what] for run in runs if run[what] is not None] for what in ("rate", "cpu_s"))
        shown = " | ".join(_summary(ratios.get(what)) for what in RATES)
        lines.append(f"| {side} | {thousands(median(rate))} | {f'{median(cpu_s):,.2f}' if cpu_s else '-'} | {shown} |")
    return "\n".join(lines) + "\n"


def _spent(found: Mapping[str, Any]) -> str:
    """Where the CPU seconds of each side were spent; nothing of a result that has not looked."""
    parts: Mapping[str, Mapping[str, float]] = found.get("cpu_parts", {})
    if not parts:
        return ""
    names = list(next(iter(parts.values())))
    lines = ["| CPU s per M, median | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {side} | " + " | ".join(f"{of[name]:,.2f}" for name in names) + " |" for side, of in parts.items()]
    return "\n" + "\n".join(lines) + "\n"


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
