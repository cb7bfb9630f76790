"""The demo's picture: watermarks over simulated time, and the records that were lost.

Rule: drawn from what the source and Spark reported and from what the tables lack; nothing is smoothed. Colours are
those of Okabe and Ito, which colour-blind people can tell apart; legends stand beside the panels and cover nothing.

`draw` makes two panels. Above, the whole run: how far each watermark is behind simulated time after each step, and how
old each lost record was when it reached Kafka. Below, the days around the step that cost most:
event time over the time of reaching Kafka.
`draw_rows` makes one panel for readers in a hurry: flights by hour of departure, and how many of them each side lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from numpy.typing import NDArray

from examples.demo.drive import Trace
from examples.demo.flights import DAY_MS, HOUR_MS, ORIGINS, Flights
from examples.demo.queries import KEYEDWM, NATIVE

_INK = {"EWR": "#56B4E9", "JFK": "#E69F00", "LGA": "#009E73", KEYEDWM: "#0072B2", NATIVE: "#D55E00"}
_LINE = {"EWR": "-", "JFK": "-", "LGA": "--"}
_NAME = {KEYEDWM: "keyedwm: coalesced", NATIVE: "Spark: one for all"}
_MARK = {KEYEDWM: "o", NATIVE: "x"}
_AROUND_MS = 30 * HOUR_MS
_FEED_MS = 6 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The content of the picture. lost_rows: one mark per flight, by side; lag_ms: how far every watermark trails."""

    flights: Flights
    trace: Trace
    lost_rows: Mapping[str, NDArray[np.bool_]]
    lag_ms: int


def draw(drawing: Drawing, file: Path) -> None:
    """Writes the picture as PNG."""
    figure = Figure(figsize=(12, 10), dpi=130, layout="constrained")
    whole, near = figure.subplots(2, 1, height_ratios=(4, 6))
    _whole(whole, drawing)
    _near(near, drawing, _costliest(drawing))
    for panel in (whole, near):
        panel.grid(color="0.9", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        _date_axis(panel.xaxis)
        panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, markerscale=2)
    figure.savefig(file)


def draw_rows(drawing: Drawing, file: Path) -> None:
    """Write one panel as PNG: flights by hour of planned departure, split by the sides that counted them."""
    figure = Figure(figsize=(11, 3.6), dpi=110, layout="constrained")
    panel = figure.subplots()
    hour = drawing.flights.numbers("event_ms") // HOUR_MS
    first, last = int(hour.min()), int(hour.max())
    native, keyedwm = drawing.lost_rows[NATIVE], drawing.lost_rows[KEYEDWM]
    parts = (
        ("counted by keyedwm and by Spark", "#B8CCDC", ~native & ~keyedwm),
        ("lost by Spark, counted by keyedwm", _INK[NATIVE], native & ~keyedwm),
        ("lost by keyedwm", "#000000", keyedwm),
    )
    hours = np.arange(first, last + 1)
    base = np.zeros(len(hours))
    for name, colour, rows in parts:
        label = f"{name} ({int(rows.sum()):,})"
        flights = np.bincount(hour[rows] - first, minlength=len(hours))
        panel.bar(_time((hours + 0.5) * HOUR_MS), flights, bottom=base, width=0.9 / 24, color=colour, label=label)
        base += flights
    panel.set_ylabel("flights per hour")
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.01)
    panel.set_ylim(top=base.max() * 1.25)
    _date_axis(panel.xaxis)
    panel.legend(loc="upper left", frameon=False, ncols=3)
    figure.savefig(file)


def _date_axis(axis: Axis, *, year: bool = True) -> None:
    locator = dates.AutoDateLocator()
    axis.set_major_locator(locator)
    axis.set_major_formatter(dates.ConciseDateFormatter(locator, show_offset=year))


def _whole(panel: Axes, drawing: Drawing) -> None:
    """Hours behind simulated time, growing downwards: what lies below a watermark is late for it."""
    at_ms = np.array(drawing.trace.step_ms)
    for side, watermarks in ((KEYEDWM, drawing.trace.coalesced), (NATIVE, drawing.trace.native)):
        panel.plot(_time(at_ms), _hours(at_ms - _ms(watermarks)), color=_INK[side], linewidth=4, alpha=0.45,
                   label=_NAME[side])  # fmt: skip
    for origin, watermarks in drawing.trace.origins.items():
        panel.plot(_time(at_ms), _hours(at_ms - _ms(watermarks)), _LINE[origin], color=_INK[origin], linewidth=1.3,
                   label=f"partition {ORIGINS.index(origin)}: {origin}")  # fmt: skip
    reach_ms, event_ms = drawing.flights.numbers("reach_ms"), drawing.flights.numbers("event_ms")
    for side in (NATIVE, KEYEDWM):
        is_lost = drawing.lost_rows[side]
        _marks(
            panel,
            side,
            reach_ms[is_lost],
            _hours((reach_ms - event_ms)[is_lost]),
            f"lost by {side} ({is_lost.sum():,})",
        )
    panel.set_ylim(bottom=0)
    panel.invert_yaxis()
    panel.set_title("How far the watermarks are behind, after each step; below a watermark a record is late")
    panel.set_ylabel("hours behind simulated time")


def _near(panel: Axes, drawing: Drawing, centre_ms: int) -> None:
    """Event time over time of reaching Kafka around one step's end."""
    reach_ms, event_ms = drawing.flights.numbers("reach_ms"), drawing.flights.numbers("event_ms")
    partition = drawing.flights.numbers("partition")
    is_shown = np.abs(reach_ms - centre_ms) <= _AROUND_MS
    for own, origin in enumerate(ORIGINS):
        indices = np.flatnonzero(partition == own)
        watermark_ms = np.maximum.accumulate(event_ms[indices]) - drawing.lag_ms
        near = indices[is_shown[indices]]
        panel.plot(_time(reach_ms[near]), _time(event_ms[near]), ".", color=_INK[origin], markersize=3,
                   alpha=0.6, label=f"records of {origin}")  # fmt: skip
        panel.plot(_time(reach_ms[near]), _time(watermark_ms[is_shown[indices]]), _LINE[origin], color=_INK[origin],
                   drawstyle="steps-post", linewidth=1.3, label=f"its own watermark, {origin}")  # fmt: skip
    step_ms = np.array(drawing.trace.step_ms)
    until_ms = np.append(step_ms, centre_ms + _AROUND_MS)
    for side, watermarks in ((KEYEDWM, drawing.trace.coalesced), (NATIVE, drawing.trace.native)):
        stepped = _ms([*watermarks, watermarks[-1]])
        panel.step(_time(until_ms), _time(stepped), where="post", color=_INK[side], linewidth=3, label=_NAME[side])
    for side in (NATIVE, KEYEDWM):
        is_lost = drawing.lost_rows[side] & is_shown
        _marks(panel, side, reach_ms[is_lost], _time(event_ms[is_lost]), f"lost by {side} ({is_lost.sum():,} here)")
    panel.axvline(_time(centre_ms), color="0.5", linewidth=1, linestyle=":", label="a step ends")
    panel.set_xlim(_time(centre_ms - _AROUND_MS), _time(centre_ms + _AROUND_MS))
    panel.set_ylim(_time(centre_ms - _AROUND_MS - 2 * _FEED_MS), _time(centre_ms + _AROUND_MS))
    _date_axis(panel.yaxis, year=False)
    panel.set_title("Around the step that cost most: JFK's records come 6 hours after the others'")
    panel.set_ylabel("event time: planned departure (UTC)")
    panel.set_xlabel("simulated time: when a record reaches Kafka (UTC)")


def _costliest(drawing: Drawing) -> int:
    """The step's end after which native Spark lost most; the middle one if it lost nothing."""
    step_ms = np.array(drawing.trace.step_ms)
    after = np.searchsorted(step_ms, drawing.flights.numbers("reach_ms")[drawing.lost_rows[NATIVE]], side="right") - 1
    if not len(after):
        return int(step_ms[len(step_ms) // 2])
    return int(step_ms[np.argmax(np.bincount(np.maximum(after, 0)))])


def _marks(panel: Axes, side: str, at_ms: NDArray[np.int64], height: NDArray, label: str) -> None:
    panel.plot(_time(at_ms), height, _MARK[side], color=_INK[side], markersize=4, markeredgewidth=1.2,
               fillstyle="none", label=label)  # fmt: skip


def _ms(watermarks: Sequence[int | None]) -> NDArray[np.float64]:
    return np.array([np.nan if ms is None else ms for ms in watermarks], np.float64)


def _time(ms: Any) -> Any:
    """A time in ms since 1970, or an array of them, in matplotlib's unit: days since 1970."""
    return ms / DAY_MS


def _hours(ms: NDArray) -> NDArray[np.float64]:
    return np.asarray(ms, np.float64) / HOUR_MS
