"""One side of a join: which of its messages are accepted, which of these are late, and the messages it holds.

Rule: whether a message is accepted, and whether it is late, depends on the earlier messages and watermarks of its own
side. It depends neither on how the input was cut nor on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.core.lateness import has_ended
from keyedwm.operators.messages.join.join_window_buffer import JoinWindowBuffer
from keyedwm.operators.messages.join.pairs import SideMessages
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.listing import BufferedAxes
from keyedwm.operators.messages.message_counter import Input, Messages
from keyedwm.operators.messages.messages import places
from keyedwm.operators.messages.window_buffer import horizons_before
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
        self._side, self._of = plan.sides[of.number], of
        self.columns, self.channels, self.counter = of.columns, of.channels, of.counter
        self.axes: dict[int, JoinWindowBuffer] = {}
        for place in map(int, states):
            if place % 2 == of.number:
                self._axis(place // 2)

    def places(self) -> Iterator[tuple[int, JoinWindowBuffer]]:
        """Yield the axes by their places in the state; left and right axes alternate."""
        for channel, axis in self.axes.items():
            yield 2 * channel + self._number, axis

    def in_turn(self) -> list[JoinWindowBuffer]:
        """Return the axes by topic and partition: their numbers depend on which message was read first."""
        numbers = self.channels.in_order(self.axes) if self._plan.is_rows else self.axes
        return [self.axes[number] for number in numbers]

    @property
    def totals(self) -> tuple[int, int]:
        """The number of held messages, and their bytes."""
        totals = [axis.store.totals for axis in self.axes.values()]
        return sum(messages for messages, _ in totals), sum(size for _, size in totals)

    def accept_messages(self, messages: Messages) -> Iterator[AcceptedRows]:
        """Yield the messages that some window accepts, axis by axis; reject the others."""
        if self._plan.is_rows:
            for number in self.channels.in_order(sorted_distinct(messages.channels).tolist()):
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
        return self._together([axis.visible(at) for axis in self.in_turn()])

    def waiting(self, timing: PaneTiming, filter_ends: Callable[[JoinWindowBuffer, Ints], Flags]) -> pa.Table:
        """Return the messages that wait to be shown and that `filter_ends` selects."""
        axes = [axis for axis in self.in_turn() if axis.waits(timing)]
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
        reasons = axis.reasons(at, horizons)
        late = np.zeros(len(at), bool) if self._side.unbounded else has_ended(axis.grid.first_ends(at), horizons)
        admitted = self.counter.admit(messages, reasons)
        if moves:
            axis.advance(int(at.max()))
        return AcceptedRows(axis, admitted, late[~np.any(list(reasons.values()), axis=0)])

    def listed(self, floor: int) -> BufferedAxes:
        """Return the messages, for listings. floor: the end of the last window that no side accepts messages for."""
        return BufferedAxes(self._of, self.axes, floor)
