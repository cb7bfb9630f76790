"""One channel's run when watermarks come from upstream (`propagate=true`): barriers in the topic instead of a policy.

Rule: the channel promises what its upstream channels promise together at the last barrier read, and never goes back.
Its state (`PropagatedState`) is small for any number of upstream channels: each barrier holds all of them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace

from keyedwm.core.axis import AxisState, PropagatedState
from keyedwm.core.errors import InputError, OptionError, RegressionError
from keyedwm.core.inline import UpstreamBarrier, decode_cut
from keyedwm.core.text import short_repr
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import ControlRecord, Records
from pyspark_wm_source.task.channel import EventTimeRun, Observed
from pyspark_wm_source.values.control_authors import ControlAuthors
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult

LOG = logging.getLogger("keyedwm.source")
_QUERY_BYTES = 6
_MOST_KNOWN = 4_096


def last_barrier(axes: Mapping[int, AxisState]) -> PropagatedState | None:
    """Return the last barrier of a channel, None before the first one."""
    for axis in axes.values():
        if isinstance(axis.policy, PropagatedState):
            return axis.policy
        if axis.policy:
            raise OptionError(
                "option propagate: the checkpoint holds the state of a watermark policy, it was made without "
                "propagate: start with a new checkpoint"
            )
    return None


def check_query(last: PropagatedState, barrier: UpstreamBarrier, where: str) -> None:
    """Raise InputError for a barrier of another query than the last barrier's: their snapshots are not comparable."""
    if query_number(barrier.query) != last.query:
        raise InputError(
            f"{where}: the barrier of snapshot {barrier.snapshot} is of query {short_repr(barrier.query)}, earlier "
            "barriers are of another query: with propagate=true a topic has one writer; name it with propagateFrom, "
            "or read this topic from its first offset with a new checkpoint"
        )


def other_query_reason(last: PropagatedState, barrier: UpstreamBarrier) -> str | None:
    """Return why a signed barrier is ignored after another query's barrier, None if it is not ignored.

    A signed record of an earlier writer of the topic may be a copy, so it stops no query.
    """
    if query_number(barrier.query) == last.query:
        return None
    return (
        f"it is of query {short_repr(barrier.query)}, earlier barriers are of another; propagateFrom names the writer"
    )


def _digest(record: ControlRecord) -> bytes:
    return hashlib.sha256(record.value or b"").digest()


def query_number(query: str) -> int:
    """Return a number that differs between queries and fits a committed state."""
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:_QUERY_BYTES], "big")


class PropagatedRun:
    """One channel's range: event times of the rows, watermarks of the barriers."""

    def __init__(
        self, task: ChannelRange, times: EventTimeRun, guarantee: Guarantee, control_authors: ControlAuthors
    ) -> None:
        self.task = task
        self._times = times
        self._guarantee = guarantee
        self._control_authors = control_authors
        self._warned = False
        self._digests: set[bytes] = set()
        self._barrier = last_barrier(task.axes)
        self._emitted = {key: task.axes.get(key, AxisState()).emitted_ms for key in times.keys.values()}

    def observe(self, records: Records) -> Observed:
        """Process the records (in offset order) and the barriers among them."""
        for record in records.control_records:
            where = place(self.task.channel, record.offset)
            refusal = self._control_authors.refusal(record, self.task.channel)
            if refusal is not None:
                self._times.count_control(1)
                self._warn(where, refusal)
            elif (digest := _digest(record)) in self._digests and self._barrier is not None:
                self._warn(where, "it is a copy of a barrier that was read")
                self._barrier = replace(self._barrier, repeated=self._barrier.repeated + 1)
            elif (barrier := decode_cut(record.header, record.value, where)) is not None:
                self._apply(barrier, where)
                self._remember(barrier, digest)
        read = self._times.read(records)
        return Observed(event_ms=read.by_axis, watermarks=(), rejects=read.rejects, decoded=read.decoded)

    def end(self) -> tuple[tuple[int, int], ...]:
        """Return the watermarks (key, ms) to emit after the range's last event."""
        before = {key: self.task.axes.get(key, AxisState()).emitted_ms for key in self._emitted}
        return tuple((key, ms) for key, ms in sorted(self._emitted.items()) if ms is not None and ms != before[key])

    def result(self) -> RangeResult:
        """Return the state at the range's end."""
        policy = () if self._barrier is None else self._barrier
        axes = {key: AxisState(policy=policy, emitted_ms=ms) for key, ms in self._emitted.items()}
        return RangeResult(next_offset=self.task.end, counts=self._times.counts, axes=axes)

    def _warn(self, where: str, why: str) -> None:
        if not self._warned:
            LOG.warning("%s: a control record is passed over: %s", where, why)
        self._warned = True

    def _remember(self, barrier: UpstreamBarrier, digest: bytes) -> None:
        """Store the digest of a signed barrier, so that a copy costs one hash and no decoding."""
        if (
            self._control_authors.proven
            and self._barrier is not None
            and query_number(barrier.query) == self._barrier.query
        ):
            if len(self._digests) == _MOST_KNOWN:
                self._digests.clear()
            self._digests.add(digest)

    def _apply(self, barrier: UpstreamBarrier, where: str) -> None:
        last = self._barrier
        if last is not None and self._control_authors.proven and (why := other_query_reason(last, barrier)):
            self._times.count_control(1)
            self._warn(where, why)
            return
        if last is not None:
            check_query(last, barrier, where)
            if barrier.snapshot <= last.snapshot:
                self._barrier = self._repeated(last, barrier, where)
                return
        promised, idle = barrier.promise()
        for key, before in self._emitted.items():
            now = promised.get(key)
            # A lower watermark is no regression here: an upstream channel woke up behind, so the watermark stays.
            if now is not None and (before is None or now > before):
                self._emitted[key] = now
        repeated = 0 if last is None else last.repeated
        self._barrier = PropagatedState(query_number(barrier.query), barrier.snapshot, repeated, idle)

    def _repeated(self, last: PropagatedState, barrier: UpstreamBarrier, where: str) -> PropagatedState:
        """Return the state after a replayed barrier (rule 1).

        Raises RegressionError under exactly-once without a secret. With a secret the topic has untrusted writers: a
        copied record must not stop the query.
        """
        if self._control_authors.proven:
            self._warn(where, f"the barrier of snapshot {barrier.snapshot} came after that of snapshot {last.snapshot}")
        if self._control_authors.proven or self._guarantee is Guarantee.AT_LEAST_ONCE:
            return replace(last, repeated=last.repeated + 1)
        key, promised = min(self._emitted), barrier.promise()[0]
        raise RegressionError(
            f"{where}: the barrier of snapshot {barrier.snapshot} came after that of snapshot {last.snapshot}. The "
            f"watermark of channel {self.task.channel}, key {key} would go from {self._emitted[key]} ms to "
            f"{promised.get(key)} ms, it must increase: the topic was written at-least-once, or by a restored copy"
        )


def place(channel: TopicPartition, offset: int) -> str:
    """Return the channel and offset of a record, for errors."""
    return f"{channel} at offset {offset}"
