"""One side of a join: which of its messages are accepted, which of these are late, and the messages it holds.

Rule: whether a message is accepted, and whether it is late, depends on the earlier messages and watermarks of its own
side. It depends neither on how the input was cut nor on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.core.lateness import has_ended
from keyedwm.operators.messages import listing
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.join.join_window_buffer import JoinWindowBuffer
from keyedwm.operators.messages.join.pairs import SideMessages
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.listing import Listing
from keyedwm.operators.messages.message_counter import Input, Messages
from keyedwm.operators.messages.messages import MessageStore, places
from keyedwm.operators.messages.plan import Reason
from keyedwm.operators.messages.window_buffer import LOWEST, horizons_before
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.state.store import TableLogs


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """Accepted messages, all of one axis. late: for each message, whether its first window was complete."""

    axis: JoinWindowBuffer
    messages: Messages
    late: Flags

    def filter(self, flags: Flags) -> AcceptedRows:
        """Return the rows with these flags."""
        return AcceptedRows(self.axis, self.messages.filter(flags), self.late[flags])


class JoinInputState:
    """A side of a plan, whose messages come from an input.

    states: the saved state of each axis, by its place, from `state` in grid_content.py.
    """

    def __init__(self, plan: WindowJoinPlan, of: Input, logs: TableLogs, states: Mapping[str, Any]) -> None:
        self._plan, self._number, self._logs, self._states = plan, of.number, logs, states
        self._side, self.columns, self.channels, self.counter = (
            plan.sides[of.number],
            of.columns,
            of.channels,
            of.counter,
        )
        self.axes: dict[int, JoinWindowBuffer] = {}
        for place in map(int, states):
            if place % 2 == of.number:
                self._axis(place // 2)

    def places(self) -> Iterator[tuple[int, JoinWindowBuffer]]:
        """Yield the axes by their places in the state; left and right axes alternate."""
        for channel, axis in self.axes.items():
            yield 2 * channel + self._number, axis

    @property
    def totals(self) -> tuple[int, int]:
        """The number of held messages, and their bytes."""
        totals = [axis.store.totals for axis in self.axes.values()]
        return sum(messages for messages, _ in totals), sum(size for _, size in totals)

    def accept_messages(self, messages: Messages) -> Iterator[AcceptedRows]:
        """Yield the messages that some window accepts, axis by axis; reject the others."""
        if self._plan.is_rows:
            for number in sorted_distinct(messages.channels).tolist():
                yield self._admitted(self._axis(number), messages.filter(messages.channels == number))
        else:
            yield self._admitted(self._axis(0), messages)

    def watermark(self, time_ms: int) -> None:
        """Apply the side's watermark: it completes windows.

        If messages complete the windows, it only drops the windows older than the retention.
        """
        if self._plan.is_rows:
            return
        if self._plan.full is CompletedBy.WATERMARK:
            self._axis(0).advance(time_ms)
        elif self._plan.retention.time_ms is not None:
            self._axis(0).leave(time_ms - self._plan.retention.time_ms)

    def side_messages(self, rows: pa.Table, late: Flags) -> SideMessages:
        """Return messages of this side in the form for joining."""
        at, numbers = places(self.columns, rows), self.channels.numbers(rows)
        first = np.zeros(len(at), np.int64)
        if self._plan.is_rows:
            first = np.array([*self.channels.first, 0], np.int64)[numbers]
        order = np.lexsort((self.channels.offsets(rows), self.channels.ranks()[numbers], at - first))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        partitions = ints(contiguous(rows[self._side.partition]).cast(pa.int64()))
        return SideMessages(rows, at - first, first, partitions, ranks, late)

    def visible(self, at: Ints | None) -> pa.Table:
        """Return the held messages that do not wait; see `JoinWindowBuffer.visible`."""
        return self._together([axis.visible(at) for axis in self.axes.values()])

    def waiting(self, timing: PaneTiming, filter_ends: Callable[[JoinWindowBuffer, Ints], Flags]) -> pa.Table:
        """Return the messages that wait to be shown and that `filter_ends` selects."""
        axes = [axis for axis in self.axes.values() if axis.waits(timing)]
        return self._together([axis.waiting(timing, filter_ends(axis, axis.waiting_for(timing))) for axis in axes])

    def _together(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._side.schema.empty_table(), *tables])

    def _axis(self, channel: int) -> JoinWindowBuffer:
        """Return the axis of event time (0), or the axis of a channel."""
        if channel not in self.axes:
            place = 2 * channel + self._number
            self.axes[channel] = JoinWindowBuffer(
                self._plan, self.columns, self.channels, self._logs, place=place,
                first=self.channels.first[channel] if self._plan.is_rows else 0, state=self._states.get(str(place), {}),
            )  # fmt: skip
        return self.axes[channel]

    def _admitted(self, axis: JoinWindowBuffer, messages: Messages) -> AcceptedRows:
        """Return the messages that some window accepts; move the horizon if messages complete windows."""
        at, moves = messages.at, self._plan.full is CompletedBy.MESSAGE and not self._plan.is_rows
        horizons = horizons_before(at, axis.horizon) if moves else np.full(len(at), axis.horizon)
        gap = axis.grid.in_a_gap(at)
        expired = has_ended(axis.grid.last_ends(at), axis.floors(horizons)) & ~gap
        late = np.zeros(len(at), bool) if self._side.unbounded else has_ended(axis.grid.first_ends(at), horizons)
        admitted = self.counter.admit(messages, {Reason.GAP: gap, Reason.RETENTION: expired})
        if moves:
            axis.advance(int(at.max()))
        return AcceptedRows(axis, admitted, late[~gap & ~expired])


@dataclass(frozen=True, slots=True)
class BufferedInput:
    """The messages of a side, for listings; see `window_content.BufferedMessages`."""

    plan: WindowJoinPlan
    sides: Sequence[JoinInputState]
    number: int

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """List the windows of each axis: from the index of slices; with by_key, from the messages themselves."""
        side = self.sides[self.number]
        for channel, axis in sorted(side.axes.items()):
            horizon = axis.horizon
            if self.plan.is_rows:  # complete with the message that fills a window, or with the first one past its end
                horizon = side.channels.next[channel] - (self.plan.full is CompletedBy.MESSAGE)
            listed = _Axis(axis.grid, axis.store, horizon, self._floor(axis))
            yield listing.windows(side.columns, side.channels, listed, start, end, by_key=by_key)

    def read(self, low: int, high: int) -> pa.Table:
        """Read the slices of these places."""
        side = self.sides[self.number]
        tables = [axis.store.read(low - axis.grid.size, high + 1) for axis in side.axes.values()]
        return pa.concat_tables([side.columns.schema.empty_table(), *tables])

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset of each slice; windows of rows are counted from the first offset that was read."""
        side = self.sides[self.number]
        if self.plan.is_rows:
            return np.arange(len(side.channels.first)), np.array(side.channels.first, np.int64)
        indexes, none = [axis.store.index for axis in side.axes.values()], np.empty(0, np.int64)
        return (
            np.concatenate([none, *(index.channels for index in indexes)]),
            np.concatenate([none, *(index.first for index in indexes)]),
        )

    def _floor(self, axis: JoinWindowBuffer) -> int:
        """Return the end of the last window that is gone.

        Its slices were deleted, or no side accepts messages for it any more.
        """
        expired = (
            axis.expired_before
            if axis.expired_before == LOWEST
            else axis.expired_before + axis.grid.size - axis.grid.step
        )
        if self.plan.is_rows or not self.plan.both_windowed:
            return expired
        return max(expired, min(one.axes[0].floor if one.axes else LOWEST for one in self.sides))


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a side in the form that `listing.windows` needs."""

    grid: Grid
    store: MessageStore
    horizon: int
    floor: int
