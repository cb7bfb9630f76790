"""One side of a join: which of its messages are taken, which come late, and what is held of them.

Rule: every message is taken, rejected with a reason, or known as a replay: the counts add up. Whether one is taken or
late depends on what came on its own side before it, not on how the input was cut, and not on the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.messages.account import Account, Messages
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.join.join_timeline import JoinTimeline
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.side_messages import SideMessages
from keyedwm.operators.messages.messages import places
from keyedwm.operators.messages.plan import Reason
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.messages.timeline import met
from keyedwm.operators.messages.validate_messages import validate_messages, validate_times
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.panes import Timing
from keyedwm.operators.state.store import TableLogs


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages that are taken, all of one axis. late: which came to a complete window."""

    axis: JoinTimeline
    rows: pa.Table
    at: Ints
    numbers: Ints
    late: Flags

    def filter(self, flags: Flags) -> Taken:
        """Return some of them."""
        rows = self.rows.filter(pa.array(flags))
        return Taken(self.axis, rows, self.at[flags], self.numbers[flags], self.late[flags])


class SideState:
    """A side of a plan by its number; state: as `state` gave them."""

    def __init__(self, plan: WindowJoinPlan, number: int, logs: TableLogs, state: Mapping[str, Any]) -> None:
        self._plan, self._number, self._logs = plan, number, logs
        self._side, self._kept = plan.sides[number], plan.kept(number)
        self.channels = Channels(self._side.record, state.get("channels", ()))
        self.account = Account(self._side, state.get("counts", {}))
        self.axes: dict[int, JoinTimeline] = {}
        for channel, told in state.get("axes", {}).items():
            self._axis(int(channel), told)
        self.rejected: list[pa.Table] = []

    def state(self) -> dict[str, Any]:
        """Return what a later instance needs to know, ready for JSON."""
        return {
            "channels": self.channels.state(),
            "axes": {str(channel): axis.state() for channel, axis in self.axes.items()},
            "counts": self.account.state(),
        }

    @property
    def counts(self) -> StoreCounts:
        """What became of all messages since the store was new."""
        return self.account.counts

    @property
    def held(self) -> tuple[int, int]:
        """How many messages are held, and their bytes."""
        indexes = [axis.store.index for axis in self.axes.values()]
        return sum(int(one.rows.sum()) for one in indexes), sum(int(one.sizes.sum()) for one in indexes)

    def take(self, messages: pa.Table) -> Iterator[Taken]:
        """Yield what is taken of a table of messages, axis by axis; keep the rest as rejected."""
        rows = validate_messages(self._side.schema, messages, self._side.offset)
        if not self._plan.is_rows:
            validate_times(self._side.time, places(self._kept, rows.filter(pc.is_valid(rows[self._side.time]))))
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        self.account.came(rows.num_rows, len(fresh))
        rows, numbers = rows.take(pa.array(fresh)), numbers[fresh]
        if self._plan.is_rows:
            for number in np.unique(numbers).tolist():
                mine = numbers == number
                yield self._admitted(self._axis(number, {}), rows.filter(pa.array(mine)), numbers[mine])
        else:
            rows, numbers = self.account.with_time(rows, numbers)
            if rows.num_rows:
                yield self._admitted(self._axis(0, {}), rows, numbers)
        rejected = self.account.rejected()
        if rejected.num_rows:
            self.rejected.append(rejected)

    def watermark(self, time_ms: int) -> None:
        """Take the side's watermark: it completes windows, or releases them where messages complete them."""
        if self._plan.is_rows:
            return
        if self._plan.full is CompletedBy.WATERMARK:
            self._axis(0, {}).advance(time_ms)
        elif self._plan.retention.time_ms is not None:
            self._axis(0, {}).leave(time_ms - self._plan.retention.time_ms)

    def shown(self, rows: pa.Table, late: Flags) -> SideMessages:
        """Return messages of this side as they are joined."""
        at, numbers = places(self._kept, rows), self.channels.numbers(rows)
        first = np.zeros(len(at), np.int64)
        if self._plan.is_rows:
            first = np.array([*self.channels.first, 0], np.int64)[numbers]
        order = np.lexsort((self.channels.offsets(rows), self.channels.ranks()[numbers], at - first))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        partitions = ints(contiguous(rows[self._side.partition]).cast(pa.int64()))
        return SideMessages(rows, at - first, first, partitions, ranks, late)

    def visible(self, at: Ints | None) -> pa.Table:
        """Return the held messages that do not wait; see `JoinAxis.visible`."""
        return self._together([axis.visible(at) for axis in self.axes.values()])

    def waiting(self, timing: Timing, meant: Callable[[JoinTimeline, Ints], Flags]) -> pa.Table:
        """Return the messages that wait to be shown, those that are meant."""
        axes = [axis for axis in self.axes.values() if axis.waits(timing)]
        return self._together([axis.waiting(timing, meant(axis, axis.waiting_for(timing))) for axis in axes])

    def _together(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._side.schema.empty_table(), *tables])

    def _axis(self, channel: int, state: Mapping[str, Any]) -> JoinTimeline:
        """Return the axis of event time (0), or that of a channel."""
        if channel not in self.axes:
            self.axes[channel] = JoinTimeline(
                self._plan, self._number, self.channels, self._logs, place=2 * channel + self._number,
                first=self.channels.first[channel] if self._plan.is_rows else 0, state=state,
            )  # fmt: skip
        return self.axes[channel]

    def _admitted(self, axis: JoinTimeline, rows: pa.Table, numbers: Ints) -> Taken:
        """Return the messages that a window takes, and let them move the horizon where they do."""
        at = places(self._kept, rows)
        moves = self._plan.full is CompletedBy.MESSAGE and not self._plan.is_rows
        horizons = met(at, axis.horizon) if moves else np.full(len(at), axis.horizon)
        gap = axis.grid.in_a_gap(at)
        expired = (axis.grid.last_ends(at) <= axis.floors(horizons)) & ~gap
        late = np.zeros(len(at), bool) if self._side.unbounded else axis.grid.first_ends(at) <= horizons
        came = Messages(rows, at, numbers)
        taken = self.account.admit(came, {Reason.GAP: gap, Reason.RETENTION: expired})
        if moves:
            axis.advance(int(at.max()))
        return Taken(axis, taken.rows, taken.at, taken.channels, late[~gap & ~expired])
