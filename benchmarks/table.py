"""Writes docs/reference/performance.md, the pages of figures below it and the plots, out of the result files.

Rule: the page never says what no run has shown.

Run: python -m benchmarks.table
Prints the targets and what became of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import targets
from benchmarks.measure import KEPT_RESULTS, RESULTS, median, thousands
from benchmarks.page_texts import (
    COLUMNS,
    FLAMES,
    HEAD,
    INTRODUCTION,
    JOIN_FLOOR,
    PEERS,
    STATE_FLOOR,
    STORE_FLOOR,
    TARGETS,
    TITLES,
    WINDOW_FLOOR,
)
from benchmarks.plots import plots

DOCS = Path(__file__).parents[1] / "docs"
# Load average for each core: a comparison with its broker has less on a machine of its own.
_QUIET = 2.5
# The hours of a day are too many for a table.
_MOST_SIDES = 20
RATES = ("rate", "steady", "cpu_s")
# So many results of a kind, such as the queries of Nexmark, share a line for equal settings.
_MANY_RESULTS = 5
# Figures for developers, in the result files only.
_HIDDEN_FIGURES = frozenset({"note_bytes", "batches", "feed_p99_ms"})


@dataclass(frozen=True, slots=True)
class Family:
    """A page of figures: its file and title, and how the names of its results begin.

    pictures: the text below them, if the pictures in it are in `docs/figures`; other programs make them.
    """

    file: str
    title: str
    names: tuple[str, ...]
    about: str
    pictures: str = ""


_PICTURE = re.compile(r"figures/([\w.-]+)\)")
FAMILIES = (
    Family(
        "reading",
        "Reading, planning and writing",
        ("source-", "planning", "control-rows", "memory", "formats-", "sink-"),
        "Kafka, Avro, Protobuf, JSON, Delta",
    ),
    Family(
        "windows",
        "Windows and the window store",
        ("windows-", "store-", "peers-"),
        "sessions, skewed keys and partitions",
        WINDOW_FLOOR + STORE_FLOOR,
    ),
    Family(
        "batches",
        "Start, latency, state and executors",
        ("start-", "latency-", "small-batch", "first-task", "state-", "driver", "growth", "idle"),
        "first and small batches, open state, idle queries",
        FLAMES + STATE_FLOOR,
    ),
    Family(
        "joins",
        "Joins and Nexmark",
        ("join-", "nexmark-"),
        "stream-stream joins, Nexmark over Kafka",
        JOIN_FLOOR,
    ),
)
FIGURES = {
    "overlap.svg": "Throughput of windows against their overlap",
    "state.svg": "Cost of a batch by open state, keys and rows",
    "state-day.svg": "Bytes that a batch writes and reads, by hour",
    "latency-at-once.svg": "Latency without a trigger interval",
    "latency-2-seconds.svg": "Latency, a micro-batch every two seconds",
}


def main() -> None:
    """Write the page and its plots, those of a trial run beside its results, and print the targets."""
    write(RESULTS, DOCS if RESULTS == KEPT_RESULTS else RESULTS)


def write(results: Path, docs: Path) -> None:
    """Write the page of some result files into a directory, plots into `figures` below it."""
    read = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    comparisons = {
        name: one for name, one in read.items() if "runs" in one
    }  # an experiment's figures are not a comparison
    if not comparisons:
        raise SystemExit(f"no results of comparisons are in {results}: run one first (`benchmarks/README.md`)")
    if homeless := [
        name for name in comparisons if not name.startswith(tuple(n for one in FAMILIES for n in one.names))
    ]:
        raise SystemExit(f"no page of FAMILIES shows the results {', '.join(homeless)}: name one")
    plots_by_name = plots(comparisons)
    for below in ("figures", "reference"):
        (docs / below).mkdir(parents=True, exist_ok=True)
    for name, svg in plots_by_name.items():
        (docs / "figures" / name).write_text(svg, encoding="utf-8")
    images = "".join(f"![{FIGURES[name]}](../figures/{name})\n\n" for name in plots_by_name)
    decisions, others = (targets.table(rows, comparisons, _page_of) for rows in (targets.DECISIONS, targets.OTHERS))
    pages = docs / "reference" / "performance"
    pages.mkdir(exist_ok=True)
    links = []
    for family in FAMILIES:
        of_family = [one for name, one in comparisons.items() if name.startswith(family.names)]
        if of_family:
            (usual, _), *_ = Counter(_machine(one) for one in of_family).most_common(1)
            shared = _shared(of_family)
            sections = "\n".join(_section(one, usual, shared) for one in of_family)
            pictures = [docs / "figures" / one for one in _PICTURE.findall(family.pictures)]
            added = family.pictures if all(one.exists() for one in pictures) else ""
            beside = "".join(f" {kind.capitalize()}: {_setting(one)}." for kind, one in shared.items())
            text = f"# {family.title}: figures\n\n{INTRODUCTION} Machine: {usual}.{beside}\n\n{sections}{added}"
            (pages / f"{family.file}.md").write_text(text, encoding="utf-8")
            links.append(f"- [{family.title}](performance/{family.file}.md): {family.about}\n")
    page = f"{HEAD}{decisions}{COLUMNS}{''.join(links)}{TARGETS}{others}\n{images}{PEERS}"
    (docs / "reference" / "performance.md").write_text(page, encoding="utf-8")
    print(decisions + others)


def _page_of(name: str) -> str:
    """The page with the figures of a result, from the page of targets."""
    return next(f"performance/{family.file}.md" for family in FAMILIES if name.startswith(family.names))


def _shared(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings that many results of one kind have in common, by kind: the head of the page has them once."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for one in results:
        by_kind.setdefault(_kind(one), []).append(one["setting"])
    common = {
        kind: {name: value for name, value in settings[0].items() if all(one.get(name) == value for one in settings)}
        for kind, settings in by_kind.items()
        if len(settings) >= _MANY_RESULTS
    }
    return {kind: one for kind, one in common.items() if one}


def _kind(result: Mapping[str, Any]) -> str:
    return str(result["name"]).partition("-")[0]


def _section(result: Mapping[str, Any], usual: str, shared: Mapping[str, Mapping[str, Any]]) -> str:
    rounds = len(next(iter(result["runs"].values())))
    machine = _machine(result)
    machine_text = "" if machine == usual else f"{machine}; "
    beside = f"; × of {result['rival']}" if result["rival"] else ""
    setting = {name: one for name, one in result["setting"].items() if name not in shared.get(_kind(result), {})}
    head = f"## {TITLES.get(result['name'], result['name'])}\n\n{_setting(setting)}\n\n"
    warmed = f"{result['warmed']} + " if "warmed" in result else ""
    head += (
        f"{machine_text}{warmed}{rounds} round{'s' if rounds > 1 else ''}{_warming(result)}{beside}{_busy(result)}.\n\n"
    )
    return head + (_rates if "rate" in _figures(result) else _others)(result)


def _machine(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    return f"{machine['cores']} cores, Python {machine['python']}, PySpark {machine['pyspark']}"


def _warming(result: Mapping[str, Any]) -> str:
    """Whether the rounds that warmed up agreed; a rate whose result says nothing of that is from before that rule."""
    if "warmed" not in result:
        return ", nothing warmed up" if result["rival"] and "rate" in _figures(result) else ""
    return "" if result["is_warm"] else ", warming rounds differed"


def _busy(result: Mapping[str, Any]) -> str:
    """Say that others used the machine: the comparison itself keeps its cores busy, and the broker's."""
    load = result.get("load")
    if load is None or load["median"] <= _QUIET * result["machine"]["cores"]:
        return ""
    return f"; load average {load['min']:.0f} to {load['max']:.0f}, so beside other work"


def _rates(result: Mapping[str, Any]) -> str:
    """Return the rates of each side; where there is a rival, the ratio to the rival's follows each of them."""
    rival = result["rival"]
    ratio = ["×"] if rival else []
    head = ["side", "k rows/s", *ratio, "full batches", *ratio, "CPU s/M", *ratio]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for side, runs in result["runs"].items():
        cells = [side]
        for figure in RATES:
            cells += [_middle(runs, figure), *([_summary(result["ratios"].get(side, {}).get(figure))] if rival else [])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _middle(runs: Sequence[Mapping[str, float | None]], figure: str) -> str:
    """The median of a figure of a side."""
    values = [value for run in runs if (value := run[figure]) is not None]
    if not values:
        return "-"
    return f"{median(values):,.2f}" if figure == "cpu_s" else thousands(median(values))


def _others(result: Mapping[str, Any]) -> str:
    """Other figures of each side; where there is a rival, their medians, and the ratios to the rival's."""
    figures = _figures(result)
    lines = [f"| side | {' | '.join(figures)} |", "|---" * (len(figures) + 1) + "|"]
    for side, runs in _ends(result["runs"]):
        values = [[run[figure] for run in runs] for figure in figures]
        ends = [one if not result["ratios"] else [median(one)] for one in values]
        cells = " | ".join(
            _summary({"median": median(one), "min": min(span), "max": max(span)})
            for one, span in zip(values, ends, strict=True)
        )
        lines.append(f"| {side} | {cells} |")
    for side, ratios in result["ratios"].items():
        lines.append(f"| × {side} | {' | '.join(_summary(ratios[figure]) for figure in figures)} |")
    if len(result["runs"]) > _MOST_SIDES:
        lines += ["", f"The [picture](../performance.md#targets) has all {len(result['runs'])}."]
    return "\n".join(lines) + "\n"


def _ends(runs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The sides of a result; of more than a page shows the first and the last, as a picture has all."""
    sides = list(runs.items())
    return sides if len(sides) <= _MOST_SIDES else sides[:2] + sides[-2:]


def _figures(result: Mapping[str, Any]) -> list[str]:
    return [name for name in next(iter(result["runs"].values()))[0] if name not in _HIDDEN_FIGURES]


def _setting(setting: Mapping[str, Any]) -> str:
    """Return the settings by name, then a list of the settings of each side; sides with equal ones share a line."""
    common = [f"{name} {_number(value)}" for name, value in setting.items() if name != "sides" and value is not None]
    by_setting: dict[str, list[str]] = {}
    for side, own in setting.get("sides", {}).items():
        by_setting.setdefault(_setting(own), []).append(side)
    sides = [f"- {_sides(names, len(by_setting))}: {text}" for text, names in by_setting.items()]
    return "\n\n".join(part for part in (", ".join(common), "\n".join(sides)) if part)


def _sides(names: Sequence[str], settings: int) -> str:
    return "all sides" if settings == 1 < len(names) else "; ".join(names)


def _summary(summary: Mapping[str, float] | None) -> str:
    if summary is None:
        return "-"
    middle, least, most = (f"{summary[part]:,.{_decimals(summary[part])}f}" for part in ("median", "min", "max"))
    return middle if least == most == middle else f"{middle} ({least}–{most})"


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


def _number(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({_setting(value)})"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
