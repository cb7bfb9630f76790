"""Windows on a grid: of event time for all channels together, or of the offsets of each channel.

Rule: what is held of an axis is a `StoredWindows`. The watermark, or the messages themselves, move its horizon, as the
plan says; windows of offsets always follow their messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages import looking
from keyedwm.operators.messages.account import Messages
from keyedwm.operators.messages.axis import HIGHEST, LOWEST, StoredWindows, met
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.looking import Listing
from keyedwm.operators.messages.messages import MessageStore
from keyedwm.operators.messages.plan import Reason
from keyedwm.operators.messages.shape import Kept, MessageShape
from keyedwm.operators.messages.windows import Full, HoppingWindow, RowWindow
from keyedwm.operators.results import Output


class GridShape(MessageShape):
    """Windows of event time: one axis, whose number is 0."""

    def __init__(self, kept: Kept, state: Mapping[str, Any]) -> None:
        super().__init__(kept, state)
        self._states: dict[str, Any] = state.get("axes", {})
        self.axes: dict[int, StoredWindows] = {}
        for number in self._states:
            self._axis(int(number))

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages, and let them move the horizon where they complete windows."""
        axis = self._axis(0)
        if self._plan.full is Full.MESSAGE:
            yield from self._take_in_turn(axis, messages, now_ms)
        else:
            horizons = np.full(len(messages), LOWEST if axis.horizon is None else axis.horizon)
            yield from axis.take(self._admitted(axis, messages, horizons), now_ms)

    def due(self, watermark_ms: int) -> Iterator[Output]:
        """Complete windows; those that messages complete are only released by a watermark.

        Their panes would be behind the watermark that was passed on: few messages may come to this bucket.
        """
        axis, kept_for = self._axis(0), self._plan.retention.time_ms
        if self._plan.full is Full.WATERMARK:
            yield from self._advance(axis, watermark_ms)
        elif kept_for is not None:
            yield from axis.advance(watermark_ms - kept_for)
            yield from self._release(axis, watermark_ms - kept_for)

    def next_due(self) -> int | None:
        """The first time of all axes."""
        return min((ms for axis in self.axes.values() if (ms := axis.next_timer_ms) is not None), default=None)

    def fire(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        for axis in self.axes.values():
            yield from axis.on_timer(now_ms)

    def shrink(self) -> Iterator[Output]:
        """Drop the oldest window, until nothing is beyond a limit."""
        while (axis := self._beyond()) is not None:
            end = axis.oldest()[1]
            yield from axis.show_unfinished(end)
            yield from self._release(axis, end, dropped=True)

    def end(self) -> Iterator[Output]:
        """Complete and release all windows."""
        for axis in self.axes.values():
            yield from axis.advance(HIGHEST)
            yield from self._release(axis, HIGHEST)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark by which windows are gone: late panes come as long as their window is kept."""
        if self._plan.retention.time_ms is not None:
            return watermark_ms - self._plan.retention.time_ms
        floor = self.axes[0].floor if 0 in self.axes else None
        return min(watermark_ms, LOWEST if floor is None else floor)

    def held(self) -> int:
        """How many messages the slices hold."""
        return sum(axis.store.held[0] for axis in self.axes.values())

    def merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of a log of an axis."""
        return self.axes[MessageStore.place_of(log)].merge(log, tables)

    def state(self) -> dict[str, Any]:
        """The state of each axis by its number."""
        return {"axes": {str(number): axis.facts() for number, axis in self.axes.items()}}

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """List the windows of each axis, from what is known of slices or by_key from the messages."""
        for _, axis in sorted(self.axes.items()):
            yield looking.windows(self._plan, self.channels, axis, start, end, by_key=by_key)

    def read(self, low: int, high: int) -> pa.Table:
        """Read the slices of these places."""
        tables = [axis.read_from(low, high) for _, axis in sorted(self.axes.items())]
        return pa.concat_tables([self._plan.stored_schema.empty_table(), *tables])

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset of each slice."""
        indexes = [axis.store.index for axis in self.axes.values()]
        none = np.empty(0, np.int64)
        return (
            np.concatenate([none, *(index.channels for index in indexes)]),
            np.concatenate([none, *(index.first for index in indexes)]),
        )

    def _axis(self, number: int) -> StoredWindows:
        if number not in self.axes:
            self.axes[number] = StoredWindows(
                self._plan, self._grid(number), self.channels, self._logs, place=number,
                facts=self._states.get(str(number), {}),
            )  # fmt: skip
        return self.axes[number]

    def _grid(self, _number: int) -> Grid:
        """Return the windows of an axis."""
        return self._plan.kind_as(HoppingWindow).grid()

    def _take_in_turn(self, axis: StoredWindows, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages that move the horizon: a window goes before the message comes that would still reach it."""
        known_ahead = not self.of_time and self._plan.full is Full.WATERMARK
        while len(messages):
            first = max(1, axis.before_outlived(messages.at))
            now, messages = messages.part(0, first), messages.part(first)
            horizons = met(now.at, LOWEST if axis.horizon is None else axis.horizon)
            yield from axis.take(self._admitted(axis, now, horizons), now_ms)
            yield from self._advance(axis, int(now.at.max()) + known_ahead)

    def _admitted(self, axis: StoredWindows, messages: Messages, horizons: Ints) -> Messages:
        """Return the messages that a window takes; horizons: that each of them met."""
        gap = axis.grid.in_a_gap(messages.at)
        expired = axis.expired(messages.at, horizons) & ~gap
        return self._account.admit(messages, {Reason.GAP: gap, Reason.RETENTION: expired})

    def _advance(self, axis: StoredWindows, horizon: int) -> Iterator[Output]:
        yield from axis.advance(horizon)
        kept_for = self._plan.retention.time_ms
        if kept_for is not None:
            yield from self._release(axis, horizon - kept_for)

    def _release(self, axis: StoredWindows, last: int, *, dropped: bool = False) -> Iterator[Output]:
        yield from axis.expire(last)
        self._account.release(*axis.forgotten(), 1, dropped=dropped)

    def _beyond(self) -> StoredWindows | None:
        """Return the axis whose oldest window must go: it has too many, or there is too much and it holds most."""
        limits, holding = self._plan.retention, [axis for axis in self.axes.values() if len(axis.store.slices)]
        for axis in holding:
            if limits.max_windows is not None and axis.oldest()[0] > limits.max_windows:
                return axis
        for place, most in enumerate((limits.max_messages, limits.max_bytes)):
            if most is not None and sum(axis.store.held[place] for axis in holding) > most:
                return max(holding, key=lambda axis: axis.store.held[place])
        return None


class RowGridShape(GridShape):
    """Windows of offsets: each channel is an axis, which begins with the first offset that was read of it."""

    of_time = False

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold the messages of each channel; they move its horizon."""
        for number in np.unique(messages.channels).tolist():
            yield from self._take_in_turn(self._axis(number), messages.filter(messages.channels == number), now_ms)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Panes of rows have no event time, so none of them is behind any watermark."""
        return watermark_ms

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset that was read: windows are counted from it, and a record that is read later may be it."""
        return np.arange(len(self.channels.known)), np.array(self.channels.first, np.int64)

    def _grid(self, number: int) -> Grid:
        return self._plan.kind_as(RowWindow).grid(self.channels.first[number])
