"""One channel's run when watermarks come from upstream (`propagate=true`): barriers in the topic instead of a policy.

Rule: the channel promises what its upstream channels promise together at the last barrier read, and never goes back.
Its state is small, however many channels are upstream: each barrier holds all of them. It stands in `AxisState.policy`:
whose barriers these are, the last snapshot, how many barriers came again, and whether all upstream channels are idle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from keyedwm.core.axis import AxisState
from keyedwm.core.errors import InputError, OptionError, RegressionError
from keyedwm.core.inline import Cut, decode_cut
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.records import Records
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import After, EventTimeRun, Observed, Range

_QUERY_BYTES = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """The last barrier read in a channel; `query`: a number made of its query's id."""

    query: int
    snapshot: int
    swallowed: int
    idle: bool

    def check_query(self, cut: Cut, where: str) -> None:
        """Refuse the barrier of another query: its snapshots and channels are not comparable."""
        if query_number(cut.query) != self.query:
            raise InputError(
                f"{where}: the barrier of snapshot {cut.snapshot} is of query {cut.query}, those before it are of "
                f"another: with propagate=true a topic has one writer; read this one from its first offset with a "
                f"checkpoint of its own"
            )


def reached_by(axes: Mapping[int, AxisState]) -> Reached | None:
    """Read back what `PropagatedRun` left in a channel's state; None before the first barrier."""
    numbers = next((axis.policy for axis in axes.values() if axis.policy), None)
    if numbers is None:
        return None
    if len(numbers) != len(fields(Reached)):
        raise OptionError(
            "option propagate: the checkpoint holds the state of a watermark policy, it was made without propagate: "
            "start with a new checkpoint"
        )
    query, snapshot, swallowed, idle = numbers
    return Reached(query=query, snapshot=snapshot, swallowed=swallowed, idle=bool(idle))


def query_number(query: str) -> int:
    """A number that tells queries apart and fits a committed state."""
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:_QUERY_BYTES], "big")


class PropagatedRun:
    """One channel's range: event times of the rows, watermarks of the barriers."""

    def __init__(self, task: Range, times: EventTimeRun, guarantee: Guarantee) -> None:
        self.task = task
        self._times = times
        self._guarantee = guarantee
        self._reached = reached_by(task.axes)
        self._emitted = {key: task.axes.get(key, AxisState()).emitted_ms for key in times.keys.values()}

    def observe(self, records: Records) -> Observed:
        """Take the records (in offset order) and the barriers among them."""
        for record in records.apart:
            where = place(self.task.channel, record.offset)
            cut = decode_cut(record.header, record.value, where)
            if cut is not None:
                self._take(cut, where)
        return Observed(event_ms=self._times.read(records), watermarks=())

    def end(self) -> tuple[tuple[int, int], ...]:
        """Return the watermarks (key, ms) that stand after the range's last event."""
        before = {key: self.task.axes.get(key, AxisState()).emitted_ms for key in self._emitted}
        return tuple((key, ms) for key, ms in sorted(self._emitted.items()) if ms is not None and ms != before[key])

    def after(self) -> After:
        """Return the state at the range's end."""
        at = self._reached
        numbers = () if at is None else (at.query, at.snapshot, at.swallowed, int(at.idle))
        axes = {key: AxisState(policy=numbers, emitted_ms=ms) for key, ms in self._emitted.items()}
        return After(next_offset=self.task.end, counts=self._times.counts, axes=axes)

    def _take(self, cut: Cut, where: str) -> None:
        promised, idle = cut.promise()
        at = self._reached
        if at is not None:
            at.check_query(cut, where)
            if cut.snapshot <= at.snapshot:
                self._reached = self._swallowed(at, cut, promised, where)
                return
        for key, before in self._emitted.items():
            now = promised.get(key)
            # Lower is no regression here: an upstream channel woke up behind, and holds the watermark where it is.
            if now is not None and (before is None or now > before):
                self._emitted[key] = now
        swallowed = 0 if at is None else at.swallowed
        self._reached = Reached(query=query_number(cut.query), snapshot=cut.snapshot, swallowed=swallowed, idle=idle)

    def _swallowed(self, at: Reached, cut: Cut, promised: Mapping[int, int], where: str) -> Reached:
        """A barrier came again (DESIGN rule 1): refused, or counted under at-least-once."""
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            return replace(at, swallowed=at.swallowed + 1)
        key = min(self._emitted)
        raise RegressionError(
            f"{where}: the barrier of snapshot {cut.snapshot} came after that of snapshot {at.snapshot}, so the "
            f"watermark of channel {self.task.channel}, key {key} would go from {self._emitted[key]} ms to "
            f"{promised.get(key)} ms, it must increase: the topic was written at-least-once, or by a restored copy"
        )


def place(channel: TopicPartition, offset: int) -> str:
    """Where a record stands, for errors."""
    return f"{channel} at offset {offset}"
