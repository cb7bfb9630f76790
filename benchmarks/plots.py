"""The plots of docs/reference/performance.md, out of the result files alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.measure import median
from docs.figures.draw import Drawing

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 760, 360, 70, 48, 52, 230
COLOURS = ("#1f77b4", "#6baed6", "#d62728", "#ff9896", "#444444", "#2ca02c")
OVERLAPS = {1: "windows-tumbling", 60: "windows-sliding-60", 600: "windows-sliding-600"}
# What a curve of the result is called, and what stands beside its line.
CURVES = {"windows": "(key, frame) open", "sessions": "sessions open", "keys": "keys", "rows": "rows of the batch"}
# A day's figures, and what stands beside their lines.
DAY = {
    "put_bytes": "written a batch",
    "read_bytes": "read a batch",
    "state_bytes": "state",
    "live_bytes": "of it live",
}
LATENCIES = ("latency-at-once", "latency-2-seconds")
Points = Sequence[tuple[float, float]]


class Axis:
    """Values on a line of pixels, logarithmic if asked."""

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool = False) -> None:
        self._of = math.log10 if log else float
        self._low, self._high, self._start, self._end = self._of(low), self._of(high), start, end

    def at(self, value: float) -> float:
        """The pixel of a value."""
        share = (self._of(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def overlap_plot(results: Mapping[str, Any]) -> str | None:
    """Throughput against how many windows a row is part of; None if fewer than two cases were measured."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for overlap, name in OVERLAPS.items():
        for side, runs in results.get(name, {"runs": {}})["runs"].items():
            lines.setdefault(side, []).append((overlap, median(run["rate"] for run in runs) / 1e3))
    if not lines or max(map(len, lines.values())) < 2:
        return None
    rates = [rate for points in lines.values() for _, rate in points]
    low, high = 10 ** math.floor(math.log10(min(rates))), 10 ** math.ceil(math.log10(max(rates)))
    across = Axis(1, 600, LEFT, WIDTH - LEGEND, log=True)
    up = Axis(low, high, HEIGHT - BOTTOM, TOP, log=True)
    drawing = Drawing(WIDTH, HEIGHT, "Windows: thousand rows/s against the windows that a row is part of")
    ticks = [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    frame(drawing, {across.at(one): f"{one}" for one in OVERLAPS}, {up.at(one): f"{one:,g}" for one in ticks})
    drawing.text(LEFT, HEIGHT - 12, "size / slide")
    side_lines(drawing, lines, across, up, dots=True)
    return drawing.svg()


def latency_plot(result: Mapping[str, Any]) -> str:
    """Which share of the windows was there after how many ms."""
    samples = result["samples"]
    most = max(max(values) for values in samples.values())
    step = 10 ** math.floor(math.log10(most)) / 2
    high = math.ceil(most / step) * step
    across, up = Axis(0, high, LEFT, WIDTH - LEGEND), Axis(0, 1, HEIGHT - BOTTOM, TOP)
    drawing = Drawing(
        WIDTH, HEIGHT, f"From the closing event to the result, trigger {result['setting']['trigger']}: share of windows"
    )
    every = step * max(1, round(high / step / 5))
    marks = {across.at(one): f"{one:,g}" for one in np.arange(0, high + 1, every)}
    frame(drawing, marks, {up.at(one): f"{one:.0%}" for one in (0, 0.25, 0.5, 0.75, 1)})
    drawing.text(LEFT, HEIGHT - 12, "ms")
    lines = {side: _stairs(values) for side, values in samples.items()}
    side_lines(drawing, lines, across, up, dots=False)
    return drawing.svg()


def state_plot(result: Mapping[str, Any]) -> str:
    """What a batch costs against what is open, keys, and its rows."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for point, runs in result["runs"].items():
        curve, _, size = point.partition(" ")
        lines.setdefault(CURVES[curve], []).append((float(size), median(run["median_ms"] for run in runs)))
    costs = [ms for points in lines.values() for _, ms in points]
    low, high = 10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs)))
    across = Axis(100, 10_000_000, LEFT, WIDTH - LEGEND, log=True)
    up = Axis(low, high, HEIGHT - BOTTOM, TOP, log=True)
    drawing = Drawing(WIDTH, HEIGHT, "A bucket's batch: CPU milliseconds against what there is of")
    ticks = [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    marks = {across.at(10**power): f"{10**power:,}" for power in range(2, 8)}
    frame(drawing, marks, {up.at(one): f"{one:,g}" for one in ticks})
    side_lines(drawing, lines, across, up, dots=True)
    return drawing.svg()


def day_plot(result: Mapping[str, Any]) -> str:
    """What a batch writes and reads, and what there is, hour after hour."""
    runs = [hour[0] for hour in result["runs"].values()]
    lines = {
        figure_of: [(number, max(1.0, run[figure] / 1_000)) for number, run in enumerate(runs, start=1)]
        for figure, figure_of in DAY.items()
    }
    sizes = [size for points in lines.values() for _, size in points]
    low, high = 10 ** math.floor(math.log10(min(sizes))), 10 ** math.ceil(math.log10(max(sizes)))
    across = Axis(1, max(2, len(runs)), LEFT, WIDTH - LEGEND)
    up = Axis(low, high, HEIGHT - BOTTOM, TOP, log=True)
    drawing = Drawing(WIDTH, HEIGHT, "A day in virtual time: kB, hour by hour")
    ticks = [10.0**power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    hours = range(1, len(runs) + 1, max(1, len(runs) // 8))
    frame(drawing, {across.at(one): f"{one}" for one in hours}, {up.at(one): f"{one:,.0f}" for one in ticks})
    drawing.text(LEFT, HEIGHT - 12, "hour")
    side_lines(drawing, lines, across, up, dots=True)
    return drawing.svg()


def plots(results: Mapping[str, Any]) -> dict[str, str]:
    """Every plot that there are results for, by file name."""
    pictures = {f"{name}.svg": latency_plot(results[name]) for name in LATENCIES if name in results}
    if "state-curves" in results:
        pictures["state.svg"] = state_plot(results["state-curves"])
    if "state-day" in results:
        pictures["state-day.svg"] = day_plot(results["state-day"])
    overlap = overlap_plot(results)
    return pictures if overlap is None else {"overlap.svg": overlap, **pictures}


def _stairs(values: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of a distribution's line."""
    corners: list[tuple[float, float]] = []
    for number, value in enumerate(sorted(values)):
        corners += [(value, number / len(values)), (value, (number + 1) / len(values))]
    return corners


def frame(drawing: Drawing, across: Mapping[float, str], up: Mapping[float, str]) -> None:
    """A grid with its numbers."""
    for y, text in up.items():
        drawing.line(LEFT, y, WIDTH - LEGEND, y, colour="#e0e0e0")
        drawing.text(LEFT - 8, y + 4, text, anchor="end")
    for x, text in across.items():
        drawing.line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5)
        drawing.text(x, HEIGHT - BOTTOM + 20, text, anchor="middle")
    drawing.line(LEFT, HEIGHT - BOTTOM, WIDTH - LEGEND, HEIGHT - BOTTOM)


def side_lines(drawing: Drawing, lines: Mapping[str, Points], across: Axis, up: Axis, *, dots: bool) -> None:
    """One line a side, and its name beside the plot."""
    ours_first = sorted(lines, key=lambda side: not side.startswith("keyedwm"))
    colours = {True: iter(COLOURS[:2]), False: iter(COLOURS[2:])}
    for number, side in enumerate(ours_first):
        colour = next(colours[side.startswith("keyedwm")])
        pixels = [(across.at(x), up.at(y)) for x, y in lines[side]]
        for (x, y), (to_x, to_y) in pairwise(pixels):
            drawing.line(x, y, to_x, to_y, colour=colour, width=2)
        for x, y in pixels if dots else ():
            drawing.dot(x, y, colour)
        beside = TOP + 8 + number * 22
        drawing.line(WIDTH - LEGEND + 14, beside - 4, WIDTH - LEGEND + 34, beside - 4, colour=colour, width=2)
        drawing.text(WIDTH - LEGEND + 40, beside, side)
