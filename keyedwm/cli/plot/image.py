"""The picture: the panels of the HTML page, drawn by matplotlib as PNG or SVG.

Rule: nothing is smoothed; a watermark is drawn until the next batch reports another. Colours are those of Okabe and
Ito, which colour-blind people can distinguish.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import dates, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from keyedwm.cli.plot.history import Bars, Column, Histories, History, Unit, spans
from keyedwm.core.text import printable, shortened

_COALESCED, _SPARK = "#0072B2", "#D55E00"
_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#B8A900", "#8A6FDF", "#7F7F7F", "#A0522D")
_DAY_MS, _S = 86_400_000, 1_000
_MOST_NAMED = 24
_MOST_CHARACTERS = 28
_LINES_HEIGHT, _BARS_HEIGHT, _IDLE_HEIGHT, _LEAST_HEIGHT = 5.0, 1.2, 0.16, 0.5  # inches


def draw(histories: Histories, out: Path) -> None:
    """Write the picture; the file's ending decides the format."""
    heights = [height for one in histories.each for height in _heights(one)]
    # Foreign names must not be read as formulas; texts of an SVG stay texts.
    with rc_context({"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "keyedwm"}):
        figure = Figure(figsize=(13, sum(heights) + 1), dpi=110, layout="constrained")
        panels = iter(np.atleast_1d(figure.subplots(len(heights), 1, height_ratios=heights)))
        figure.suptitle(printable(histories.title), fontsize="medium")
        for one in histories.each:
            _history(one, [next(panels) for _ in _heights(one)])
        figure.savefig(out, metadata={"Date": None} if out.suffix.lower() == ".svg" else None)


def _heights(one: History) -> list[float]:
    idle = len(one.idle_tracks())
    of_idle = [max(_IDLE_HEIGHT * idle, _LEAST_HEIGHT)] if idle else []
    return [_LINES_HEIGHT, *of_idle, *([_BARS_HEIGHT] * len(one.bars))]


def _history(one: History, panels: list[Axes]) -> None:
    """Draw a history into its panels, which share their x axis."""
    first, *rest = panels
    _watermarks(first, one)
    if one.idle_tracks():
        _idle(rest.pop(0), one)
    for panel, bars in zip(rest, one.bars, strict=True):
        _bars(panel, one, bars)
    low, high = _times(one.at_ms[:1])[0], _times(one.at_ms[-1:])[0]
    air = max((high - low) * 0.01, _S / _DAY_MS)
    for panel in panels:
        panel.set_xlim(low - air, high + air)
        panel.grid(color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        locator = dates.AutoDateLocator()
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        if panel is not panels[-1]:
            panel.tick_params(labelbottom=False)


@dataclass(frozen=True, slots=True)
class Line:
    """How a watermark is drawn. label: None without a name in the legend. layer: lines of higher layers hide it."""

    colour: str
    width: float
    style: str
    label: str | None
    layer: float

    def draw(self, panel: Axes, at: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        """Draw steps; a watermark between two batches without one has no line, so it is a dot."""
        panel.step(
            at, values, where="post", color=self.colour, linewidth=self.width, linestyle=self.style, label=self.label,
            zorder=self.layer,
        )  # fmt: skip
        known = np.concatenate(([False], ~np.isnan(values), [False]))
        is_isolated = known[1:-1] & ~known[:-2] & ~known[2:]
        if is_isolated.any():
            panel.plot(
                at[is_isolated], values[is_isolated], "o", color=self.colour, markersize=self.width + 4,
                zorder=self.layer, clip_on=False,
            )  # fmt: skip


def _watermarks(panel: Axes, one: History) -> None:
    at = _times(one.at_ms)
    thick = [("keyedwm: the coalesced watermark", one.coalesced_ms, _COALESCED, "-")]
    if one.has_spark_watermark:
        thick.append(("Spark: one watermark for all", one.highest_ms, _SPARK, "--"))
    for label, values, colour, style in thick:
        line = Line(colour, width=3, style=style, label=label, layer=3)
        line.draw(panel, at, _times(values))
    for number, track in enumerate(one.tracks):
        name = shortened(printable(track.name), _MOST_CHARACTERS) if number < _MOST_NAMED else None
        style = "-" if number % (2 * len(_COLOURS)) < len(_COLOURS) else "--"
        line = Line(_colour(number), width=1.2, style=style, label=name, layer=2)
        line.draw(panel, at, _times(track.watermarks_ms))
    if one.left_out:
        label = f"{one.left_out} more partitions lie in here"
        panel.fill_between(at, _times(one.lowest_ms), _times(one.highest_ms), step="post", color="0.85", label=label)
    if any(ms is not None for ms in one.highest_ms):
        locator = dates.AutoDateLocator()
        panel.yaxis.set_major_locator(locator)
        panel.yaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    panel.set_title(f"{shortened(printable(one.name))}: watermarks", loc="left", fontsize="medium")
    panel.set_ylabel("event time (UTC)")
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")


def _idle(panel: Axes, one: History) -> None:
    tracks = one.idle_tracks()
    numbers = {track.name: number for number, track in enumerate(one.tracks)}
    for row, track in enumerate(tracks):
        bars = [(begin / _DAY_MS, (end - begin) / _DAY_MS) for begin, end in spans(track.idle, one.at_ms)]
        panel.broken_barh(bars, (row - 0.4, 0.8), color=_colour(numbers[track.name]))
    panel.set_yticks(
        range(len(tracks)), [f"…{track.name[-12:]}" if len(track.name) > 13 else track.name for track in tracks]
    )
    panel.set_ylim(len(tracks) - 0.5, -0.5)
    panel.tick_params(axis="y", labelsize="small")
    panel.set_title("Idle partitions", loc="left", fontsize="medium")


def _bars(panel: Axes, one: History, bars: Bars) -> None:
    is_time = bars.unit is Unit.MS
    values = np.array([0 if value is None else value for value in bars.values], np.float64) / (_S if is_time else 1)
    colour = _SPARK if bars.title.startswith("Late") else _COALESCED
    panel.vlines(_times(one.at_ms), 0, values, color=colour, linewidth=max(1.0, min(6.0, 500 / max(len(values), 1))))
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_locator(MaxNLocator(4, integer=not is_time))
    panel.set_ylabel("seconds" if is_time else bars.unit.value)
    panel.set_title(bars.title, loc="left", fontsize="medium")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _times(ms: Column) -> NDArray[np.float64]:
    """Return times in ms since 1970 in matplotlib's unit, days since 1970; NaN more than 700,000 days away."""
    days = np.array([np.nan if one is None else one / _DAY_MS for one in ms], np.float64)
    days[np.abs(days) > 700_000] = np.nan
    return days
