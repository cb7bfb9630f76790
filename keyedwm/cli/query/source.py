"""One source of a query: the newest planned batch, the states that its tasks have left in the group, the log ends.

Rule: a state counts only if the query's key proves it; else the state in the offset log is shown, and marked. The
planner's own coalescer computes the watermark, from the same input as the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from keyedwm.cli.query.alike import alike
from keyedwm.cli.query.log import PlannedBatch, unmoved_since
from keyedwm.cli.query.picture import Holder, PartitionPicture, SourcePicture, WatermarkPicture, slowest_first
from keyedwm.core.coalescer import Change, ChannelWentIdle, Coalescer
from keyedwm.core.encoding import CommittedState, try_decode
from keyedwm.core.errors import KeyedwmError, OptionError, UnavailableError
from keyedwm.core.watermark import Guarantee, Status
from keyedwm.formats.faults import Fault
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.savepoint_files import Files
from pyspark_wm_source.driver.plan import advances_of, coalescer_state
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.holding import (
    Cause,
    cause_of,
    emitted_ms,
    holders_of,
    keys_of,
    late_since,
    unreadable_since,
)
from pyspark_wm_source.values.offsets import STATE_TIMEOUT_MS, Channel, IdleTimeout, QueryOffset, state_place

_STALL_MS = 2_000
# Causes with new records: they began when the watermark last moved.
_WITH_RECORDS = (Cause.UNREADABLE, Cause.LATE, Cause.OPEN_TRANSACTION)
# Causes that did not begin with the last record: records wait, or the broker could not be asked.
_NO_SILENCE = (Cause.BACKLOG, Cause.PARTITION_GONE, Cause.BROKER_AWAY, Cause.NOT_ASKED)


def record_times(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the record at each offset, for records that can be read."""
    ranges = [OffsetRange(tp.topic, tp.partition, offset, offset + 1) for tp, offset in offsets.items()]
    selection, times = ColumnSelection(key=False, value=False), {}
    try:
        for chunk in read_ranges(cluster, ranges, selection, Isolation.READ_UNCOMMITTED, stall_ms=_STALL_MS):
            if chunk.records.count:
                times[chunk.tp] = int(chunk.records.timestamp_ms[0])
    except KeyedwmError:  # records that retention has deleted since, or a broker that went away: the picture stands
        return times
    return times


_MOST_TIMED = 32  # partitions whose record is read for its time: those with the lowest watermarks
Channels = Mapping[TopicPartition, Channel]


@dataclass(frozen=True, slots=True)
class Ends:
    """The log ends of a source: readable up to `stable`, written up to `high`; newest_ms: the newest record's time."""

    stable: Mapping[TopicPartition, int]
    high: Mapping[TopicPartition, int]
    newest_ms: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class SourceReader:
    """The sources at one moment. cluster: None without log ends; then `unasked` is the cause of every blocking channel.

    idle_timeout: the timeout to apply, None for the batch's own.
    """

    files: Files
    cluster: Cluster | None
    options: SourceOptions | None
    idle_timeout: IdleTimeout | None
    unasked: Cause
    now_ms: int

    def picture(self, batch: PlannedBatch, number: int) -> SourcePicture:
        """Take the picture of the source with this number."""
        planned = batch.sources[number]
        states: Mapping[TopicPartition, CommittedState] = {}
        coordinator, ends = planned.outage, None
        if self.cluster is not None:
            ends = _ends(self.cluster, planned)  # first, so that without a broker only this request waits
            states, coordinator = self._states(self.cluster, planned)
        current = {tp: _after(channel, states.get(tp), batch.is_committed) for tp, channel in planned.channels.items()}
        partitions = [
            _partition(tp, channel, ends, is_current=tp in states or not planned.channels[tp].read)
            for tp, channel in current.items()
        ]
        partitions.sort(key=slowest_first)
        if self.cluster is not None:
            partitions = _timed(self.cluster, partitions)
        emitted = _coalesced(planned, current)
        watermarks, timeout_ms = [], self._timeout_ms(planned)
        for key in keys_of(current):
            watermark_ms = emitted.get(key)
            has_moved = watermark_ms != planned.watermark_ms(key)
            since = planned if has_moved else unmoved_since(self.files, batch, number, key)
            held_by = tuple(
                self._holder((tp, current[tp]), since.channels.get(tp), key, ends, timeout_ms)
                for tp in holders_of(current, key)
            )
            watermarks.append(
                WatermarkPicture(key=key, watermark_ms=watermark_ms, unmoved_since_ms=since.now_ms, held_by=held_by)
            )
        return SourcePicture(
            source=number, group=planned.group, batch=planned.batch, planned_ms=planned.now_ms,
            watermarks=tuple(watermarks), partitions=tuple(partitions), coordinator=coordinator or None,
            alike=next(group for group in alike(batch.sources) if number in group),
        )  # fmt: skip

    def _states(self, cluster: Cluster, planned: QueryOffset) -> tuple[dict[TopicPartition, CommittedState], str]:
        """Fetch the states that the batch's tasks have committed so far, or return why that was not possible."""
        expected = dict(planned.channels_to_read())
        try:
            committed = cluster.fetch_offsets(planned.group, expected, timeout_ms=STATE_TIMEOUT_MS) if expected else {}
        except (AccessError, UnavailableError) as error:
            return {}, error.message
        options = self.options
        key = bytes.fromhex(planned.state_key) if options is None else options.state_key(planned.state_key)
        states = {}
        for tp, position in committed.items():
            channel = expected[tp]
            place = state_place(planned.group, tp, channel.next_offset, planned.settings, channel.resets)
            state = try_decode(position.metadata, key, place)
            if state is not None and state.snapshot_id == planned.batch:
                states[tp] = state
        return states, ""

    def _timeout_ms(self, planned: QueryOffset) -> int | None:
        """Return the idle timeout of the query; None if it has none, or it is unknown."""
        timeout = self.idle_timeout or planned.idle_timeout
        if timeout is None and self.options is not None:  # an earlier version planned: the option's default
            timeout = IdleTimeout(self.options.idle_timeout_ms)
        return None if timeout is None else timeout.ms

    def _holder(
        self, holder: tuple[TopicPartition, Channel], then: Channel | None, key: int, ends: Ends | None,
        timeout_ms: int | None,
    ) -> Holder:  # fmt: skip
        """Return why a channel blocks a watermark. then: the channel when the watermark last moved."""
        tp, channel = holder
        cause = self.unasked if ends is None else Cause.PARTITION_GONE
        if ends is not None and tp in ends.high:
            cause = cause_of(
                channel, key,
                backlog=ends.stable[tp] - channel.start,
                uncommitted=max(ends.high[tp] - max(ends.stable[tp], channel.start), 0),
                unreadable=unreadable_since(then, channel, key),
                late=late_since(then, channel, key),
                becomes_idle=timeout_ms is not None and self.now_ms - channel.since_ms < timeout_ms,
            )  # fmt: skip
        since_ms = None if cause in _NO_SILENCE else channel.since_ms
        if cause in _WITH_RECORDS and then is not None:
            since_ms = then.since_ms
        return Holder(channel=tp, watermark_ms=emitted_ms(channel, key), cause=cause, since_ms=since_ms)


def _after(channel: Channel, state: CommittedState | None, is_committed: bool) -> Channel:
    """Return the present channel: behind its range, if the batch or the task of this range is done."""
    if state is not None:
        return replace(channel, read=0, counts=state.counts, axes=state.axes)
    return replace(channel, read=0, next_offset=channel.next_offset if is_committed else channel.start)


def _coalesced(planned: QueryOffset, current: Channels) -> Mapping[int, int]:
    """Return the watermarks that the planner has emitted, or will emit from the same states."""
    changes: list[Change] = []
    for tp, channel in current.items():
        advances = advances_of(str(tp), planned.channels[tp], channel.axes)
        changes += advances
        if advances and channel.status is Status.IDLE:
            changes.append(ChannelWentIdle(str(tp)))  # a watermark wakes; only the planner changes a status
    coalescer = Coalescer.restore(coalescer_state(planned), guarantee=Guarantee.AT_LEAST_ONCE)
    coalescer.step(changes, planned.now_ms)
    return coalescer.common().emitted


def _ends(cluster: Cluster, planned: QueryOffset) -> Ends:
    """Ask for the log ends; a partition that is gone has none."""
    there = cluster.partitions({tp.topic for tp in planned.channels}, missing_ok=True)
    known = [tp for tp in planned.channels if tp.partition in there.get(tp.topic, ())]
    # The readable ends second, so that records written between the two requests do not count as an open transaction.
    high = cluster.latest(known, Isolation.READ_UNCOMMITTED)
    stable = cluster.latest(known, Isolation.READ_COMMITTED)
    newest_ms: Mapping[TopicPartition, int | None] = {}
    with suppress(OptionError):  # brokers before Kafka 3.0 do not report it
        newest_ms = cluster.newest_times(known)
    return Ends(stable, {tp: max(end, stable[tp]) for tp, end in high.items()}, newest_ms)


def _partition(tp: TopicPartition, channel: Channel, ends: Ends | None, *, is_current: bool) -> PartitionPicture:
    log_end = None if ends is None else ends.high.get(tp)
    backlog = None if log_end is None else max(log_end - channel.start, 0)
    return PartitionPicture(
        channel=tp, position=channel.start, log_end=log_end, backlog=backlog,
        behind_ms=0 if backlog == 0 else None, status=channel.status,
        watermarks_ms={key: axis.emitted_ms for key, axis in channel.axes.items()},
        last_record_ms=None if ends is None else ends.newest_ms.get(tp), last_news_ms=channel.since_ms,
        idle_since_ms=channel.since_ms if channel.status is Status.IDLE else None,
        late=channel.counts.late, unreadable=channel.counts.bad, future=channel.counts.future,
        bad_values={Fault(fault).label: count for fault, count in channel.counts.bad_values},
        control=channel.counts.control, resets=channel.resets, is_current=is_current,
    )  # fmt: skip


def _timed(cluster: Cluster, partitions: list[PartitionPicture]) -> list[PartitionPicture]:
    """Add the backlog in time of the slowest partitions, from the times of the records at their positions."""
    timed = [one for one in partitions if one.backlog and one.last_record_ms is not None][:_MOST_TIMED]
    times_ms = record_times(cluster, {one.channel: one.position for one in timed})
    return [
        replace(one, behind_ms=max(one.last_record_ms - times_ms[one.channel], 0))
        if one.last_record_ms is not None and one.channel in times_ms
        else one
        for one in partitions
    ]
