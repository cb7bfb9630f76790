"""Writes docs/performance.md out of the result files, so that the page never says what no run has shown.

Run: python -m benchmarks.table
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.measure import RESULTS, median, thousands

PAGE = RESULTS.parents[1] / "docs" / "performance.md"
HEAD = """# Performance

Each comparison runs our job and its rival in turn on one machine, one broker and the same rows (`make bench`, or one
of them with `make bench ONLY=source`); outputs are counted before a figure is shown. Ratios are ours divided by the
rival's of the same round: median (least to most). *Whole* is from `start()` to the end of the query; *in full batches*
leaves the start and the first micro-batch out; CPU is seconds per million rows of all processes but the broker, so
less than 1 is better there. How a figure is taken: `benchmarks/README.md`. Lost comparisons stay in.

"""


def main() -> None:
    """Write the page."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    PAGE.write_text(HEAD + "\n".join(_section(one) for one in found), encoding="utf-8")


def _section(found: dict[str, Any]) -> str:
    setting = ", ".join(f"{name} {_number(value)}" for name, value in found["setting"].items() if value is not None)
    machine = found["machine"]
    on = f"{machine['cores']} cores, Python {machine['python']}, PySpark {machine['pyspark']}"
    lines = [
        f"## {found['name']}\n",
        f"{setting}; {on}; {len(next(iter(found['runs'].values())))} rounds.\n",
        f"| side | thousand rows/s | CPU s per M | whole, of {found['rival']} | in full batches | CPU |",
        "|---|---|---|---|---|---|",
    ]
    for side, runs in found["runs"].items():
        ratios = found["ratios"].get(side, {})
        rate, cpu_s = (median(run[what] for run in runs) for what in ("rate", "cpu_s"))
        shown = " | ".join(_ratio(ratios.get(what)) for what in ("rate", "steady", "cpu_s"))
        lines.append(f"| {side} | {thousands(rate)} | {cpu_s:.2f} | {shown} |")
    return "\n".join(lines) + "\n"


def _ratio(summary: dict[str, float] | None) -> str:
    if summary is None:
        return "-"
    return f"{summary['median']:.2f} ({summary['min']:.2f} to {summary['max']:.2f})"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
