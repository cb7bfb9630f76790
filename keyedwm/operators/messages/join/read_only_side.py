"""What the state of a join of windows holds of one of its sides; see `messages.listing`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import contiguous
from keyedwm.operators.messages import listing
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.join.join_description import plan_of
from keyedwm.operators.messages.join.join_timeline import JoinTimeline
from keyedwm.operators.messages.join.operator import WindowJoinOperator
from keyedwm.operators.messages.join.plan import WindowJoinPlan
from keyedwm.operators.messages.join.session_operator import PAYLOAD, SessionJoinOperator, topic_prefix
from keyedwm.operators.messages.join.side import SideState
from keyedwm.operators.messages.messages import MessageStore
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.read_only_store import ALL, Listed, Offsets
from keyedwm.operators.messages.store_description import DescribedAggregate
from keyedwm.operators.messages.timeline import LOWEST
from keyedwm.operators.messages.windows import CompletedBy
from keyedwm.operators.state.store import BlobStore


def side_of(description: Mapping[str, Any], number: int, store: BlobStore) -> Listed:
    """Return a side by its number; description: of the join's plan."""
    plan = plan_of(description)
    if plan.is_sessions:
        return _SessionSide(plan, number, SessionJoinOperator(plan, store))
    return _GridSide(plan, number, WindowJoinOperator(plan, store))


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a side as `listing.windows` takes it."""

    grid: Grid
    store: MessageStore
    horizon: int
    floor: int


class _GridSide:
    """A side of windows of time or of rows."""

    def __init__(self, plan: WindowJoinPlan, number: int, operator: WindowJoinOperator) -> None:
        self._plan, self._sides, self._side = plan, operator.sides, operator.sides[number]
        side = plan.sides[number]
        self._as_store = StorePlan(
            schema=side.schema, by=tuple(name for name in side.on if name not in side.record[:2]), window=plan.window,
            aggregates=(("of one side", DescribedAggregate("none")),), retention=plan.retention, time=side.time,
            topic=side.topic, partition=side.partition, offset=side.offset,
        )  # fmt: skip

    def windows(self, *, by_key: bool) -> pa.Table:
        """See `Listed`."""
        plan, channels = self._as_store, self._side.channels
        found = (listing.windows(plan, channels, axis, *ALL, by_key=by_key) for axis in self._axes())
        tables = [one.table(plan, channels, by_key=by_key) for one in found]
        return pa.concat_tables([listing.windows_schema(plan, by_key=by_key).empty_table(), *tables])

    def messages(self) -> pa.Table:
        """See `Listed`."""
        tables = [axis.store.read(*ALL) for axis in self._side.axes.values()]
        return pa.concat_tables([self._as_store.schema.empty_table(), *tables])

    def oldest_offsets(self) -> Offsets:
        """See `Listed`; windows of rows are counted from the first offset that was read."""
        channels, found = self._side.channels, Offsets()
        if self._plan.is_rows:
            return dict(zip(channels.known, channels.first, strict=True))
        for axis in self._side.axes.values():
            index = axis.store.index
            for number, first in zip(index.channels.tolist(), index.first.tolist(), strict=True):
                channel = channels.known[number]
                found[channel] = min(first, found.get(channel, first))
        return found

    def _axes(self) -> Iterator[_Axis]:
        for channel, axis in sorted(self._side.axes.items()):
            horizon = axis.horizon
            if self._plan.is_rows:  # complete with the message that fills a window, or with the one past its end
                horizon = self._side.channels.next[channel] - (self._plan.full is CompletedBy.MESSAGE)
            yield _Axis(axis.grid, axis.store, horizon, self._floor(axis))

    def _floor(self, axis: JoinTimeline) -> int:
        """Return the end of the last window that is gone: its slices are, or no side takes messages for it."""
        gone = axis.gone if axis.gone == LOWEST else axis.gone + axis.grid.size - axis.grid.step
        if self._plan.is_rows or not self._plan.both_windowed:
            return gone
        return max(gone, min(_taken_above(side) for side in self._sides))


def _taken_above(side: SideState) -> int:
    return side.axes[0].floor if side.axes else LOWEST


class _SessionSide:
    """A side of sessions, which hold the messages of both."""

    def __init__(self, plan: WindowJoinPlan, number: int, operator: SessionJoinOperator) -> None:
        self._side, self._number, self._sessions = plan.sides[number], number, operator.driver
        self._prefix = topic_prefix(number)

    def windows(self, *, by_key: bool) -> pa.Table:  # noqa: ARG002 (a session is that of a key)
        """See `Listed`."""
        found = self._sessions.windows(*ALL, by_key=True)
        found = found.filter(pc.starts_with(found["topic"], self._prefix))
        topics = pc.utf8_slice_codeunits(found["topic"], len(self._prefix))
        found = found.set_column(found.column_names.index("topic"), "topic", topics)
        keys = [listing.shown_name(name, found.column_names[len(self._side.on) + 1 :]) for name in self._side.on]
        _, *others = found.column_names[len(keys) :]  # behind the keys, which record one without a key is
        named = found.select([*found.column_names[: len(keys)], *others]).rename_columns([*keys, *others])
        return named.drop_columns([k for k, n in zip(keys, self._side.on, strict=True) if n in self._side.record[:2]])

    def messages(self) -> pa.Table:
        """See `Listed`."""
        rows = self._sessions.messages(ALL, {})
        mine = contiguous(rows.filter(pc.equal(rows["side"], self._number))[PAYLOAD[self._number]])
        return pa.Table.from_arrays(mine.flatten(), schema=self._side.schema)

    def oldest_offsets(self) -> Offsets:
        """See `Listed`."""
        found = self.windows(by_key=True).group_by(["topic", "partition"]).aggregate([("first_offset", "min")])
        columns = (found[name].to_pylist() for name in ("topic", "partition", "first_offset_min"))
        return {(topic, partition): offset for topic, partition, offset in zip(*columns, strict=True)}
