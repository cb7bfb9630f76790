"""The messages of one side on one axis: event time, or the offsets of a channel.

Rule: the floor is the end of the last window that accepts no more messages of this side. A message is kept while the
other side may still accept a message of the same window; only a limit of size drops it earlier.

`Waiting` selects among the messages that wait to be joined: all, those of full windows, or those that a message to be
dropped could join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.core.lateness import has_ended
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.grid import LOWEST
from keyedwm.operators.messages.grid_buffer import GridBuffer
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.message_plan import MessageLayout
from keyedwm.operators.messages.messages import MessageStore
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import StateTable

_WAITING = pa.schema([("slice", pa.int64()), ("channel", pa.int64()), ("offset", pa.int64())])


class JoinWindowBuffer(GridBuffer):
    """The messages of a side on an axis. place: its number in the state. first: the offset from which places count."""

    def __init__(
        self,
        plan: WindowJoinPlan,
        columns: MessageLayout,
        channels: Channels,
        logs: TableLogs,
        *,
        place: int,
        first: int,
        state: Mapping[str, Any],
    ) -> None:
        side = place % 2
        super().__init__(plan.grid_of_side(side, first), plan.retention, state)
        self._plan, self._channels, self._place = plan, channels, place
        self._unshown = {
            timing: StateTable(logs, f"{timing.value}-{place}") for timing in (PaneTiming.EARLY, PaneTiming.LATE)
        }
        self.first, self._is_unbounded = first, plan.sides[side].unbounded
        self.expired_before: int = state.get("gone", LOWEST)  # slices before this one are forgotten
        self._last_full: int = LOWEST  # the last full window at the last call of `fills`
        self.store = MessageStore(columns, channels, logs, place, self.expired_before)

    def state(self) -> dict[str, int]:
        """Return the state for a later instance, ready for JSON."""
        known = {"horizon": self.horizon, "floor": self.floor, "gone": self.expired_before}
        return {name: mark for name, mark in known.items() if mark != LOWEST}

    def advance(self, horizon: int) -> None:
        """Raise the horizon, and with it the floor, to this place."""
        if horizon > self.horizon:
            self.horizon = horizon
            self.floor = int(self.floors(np.array([horizon]))[0])

    def leave(self, last: int) -> None:
        """Close the windows that end by then: they accept no more messages."""
        self.horizon, self.floor = max(self.horizon, last), max(self.floor, int(self.grid.last_end_by(last)))

    @property
    def full(self) -> int:
        """Windows that end up to this place are full on this side; a window of rows, with the message past its end."""
        is_known_ahead = self._plan.is_rows and self._plan.full is not CompletedBy.MESSAGE
        return LOWEST if self._is_unbounded or is_known_ahead else self.complete

    @property
    def complete(self) -> int:
        """Windows of rows are complete with the message that fills them, or with the first one past their end."""
        if self._plan.is_rows:
            return self._channels.next[self._place // 2] - (self._plan.full is CompletedBy.MESSAGE)
        return self.horizon

    @property
    def dropped_end(self) -> int:
        """Windows that end up to here begin before the slices that are kept."""
        return max(LOWEST, self.expired_before + self.grid.size - self.grid.step)

    def fills(self) -> bool:
        """Whether windows have become full since the last call."""
        before = self._last_full
        self._last_full = int(self.grid.last_end_by(self.full)) if self.full > LOWEST else LOWEST
        return self._last_full > before

    def out_of_reach(self, floor: int) -> int:
        """Return the first slice in a window with messages that the other side, at this floor, still accepts."""
        if floor == LOWEST:
            return LOWEST
        return int(self.grid.last_starts(self.grid.first_starts(floor) - self.grid.size)) + self.grid.step

    def buffer_messages(self, messages: Messages, waits: Mapping[PaneTiming, Flags]) -> None:
        """Store messages. waits: for early and late, flags of the messages to show later."""
        rows, numbers, slices = messages.rows, messages.channels, self.grid.slices(messages.at)
        self.store.add(rows, messages.at, numbers, slices)
        for timing, flags in waits.items():
            if flags.any():
                columns = (slices[flags], numbers[flags], self._channels.offsets(rows)[flags])
                table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=_WAITING)
                self._unshown[timing].add(table)

    def waits(self, timing: PaneTiming) -> bool:
        """Whether any message waits to be shown."""
        return self._unshown[timing].rows > 0

    def waiting_for(self, timing: PaneTiming) -> Ints:
        """Return for each waiting message the end of its first window."""
        return self.grid.first_ends(self._waiting([timing])[0])

    def waiting(self, timing: PaneTiming, is_due: Flags) -> pa.Table:
        """Return the waiting messages that are due. is_due: a flag for each message, in the order of `waiting_for`."""
        slices, numbers, offsets = (column[is_due] for column in self._waiting([timing]))
        rows = self.store.read_slices(sorted_distinct(slices))
        return rows.filter(pa.array(self.among(rows, numbers, offsets)))

    def clear_waiting(self, timing: PaneTiming, is_shown: Flags) -> None:
        """Remove these messages from the waiting ones."""
        if is_shown.all():
            self._unshown[timing].drop()
        elif is_shown.any():
            columns = [pa.array(column[~is_shown]) for column in self._waiting([timing])]
            self._unshown[timing].replace(pa.Table.from_arrays(columns, schema=_WAITING))

    def visible(self, at: Ints | None) -> pa.Table:
        """Return the messages that do not wait, of all slices or of slices that can share a window with these places.

        at: ascending; for rows, counted from the first offset of their channel.
        """
        slices = self.store.slices
        if at is not None:
            low = np.searchsorted(at, slices - self.first - self.grid.size, side="right")
            high = np.searchsorted(at, slices - self.first + 2 * self.grid.size)
            slices = slices[low < high]
        rows = self.store.read_slices(slices)
        _, numbers, offsets = self._waiting([PaneTiming.EARLY, PaneTiming.LATE])
        return rows.filter(pa.array(~self.among(rows, numbers, offsets))) if len(numbers) else rows

    def forget(self, before: int) -> tuple[int, int]:
        """Drop the slices before this one; return how many messages they held, and their bytes."""
        self.expired_before = max(self.expired_before, before)
        return self.store.forget(self.expired_before)

    def drop(self, end: int) -> tuple[int, int]:
        """Drop the windows that end by then; return how many messages were dropped, and their bytes."""
        self.floor = max(self.floor, end)
        return self.forget(end - self.grid.size + self.grid.step)

    def _waiting(self, timings: Sequence[PaneTiming]) -> list[Ints]:
        tables = [table for timing in timings for table in self._unshown[timing].read()]
        table = pa.concat_tables([_WAITING.empty_table(), *tables])
        return [ints(contiguous(column)) for column in table.columns]

    def among(self, rows: pa.Table, numbers: Ints, offsets: Ints) -> Flags:
        """Return which rows are the messages with these channels and offsets."""
        is_among = np.zeros(rows.num_rows, bool)
        channel_numbers, own = self._channels.numbers(rows), self._channels.offsets(rows)
        for number in sorted_distinct(numbers).tolist():
            places = np.flatnonzero(channel_numbers == number)
            is_among[places] = np.isin(own[places], offsets[numbers == number])
        return is_among


# Selects the messages of an axis that are due, by the ends of their first windows.
Waiting: TypeAlias = Callable[[JoinWindowBuffer, Ints], Flags]


def all_of_them(_axis: JoinWindowBuffer, ends: Ints) -> Flags:
    """Select every message."""
    return np.ones(len(ends), np.bool_)


def of_full_windows(axis: JoinWindowBuffer, ends: Ints) -> Flags:
    """Select the messages of windows that are full on their side."""
    return has_ended(ends, axis.full)


def reaching_back(size: int, before: int) -> Mapping[PaneTiming, Waiting]:
    """Select messages with a window that begins before this place, so that they could join a message before it.

    size: the size of the windows, which are of time and equal on both sides.
    """

    def may_reach(_axis: JoinWindowBuffer, ends: Ints) -> Flags:
        return ends - size < before

    return {PaneTiming.EARLY: may_reach, PaneTiming.LATE: may_reach}


EVERYTHING: Mapping[PaneTiming, Waiting] = {PaneTiming.EARLY: all_of_them, PaneTiming.LATE: all_of_them}
FULL: Mapping[PaneTiming, Waiting] = {PaneTiming.EARLY: of_full_windows}
