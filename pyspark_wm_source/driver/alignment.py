"""Where a batch ends when snapshots cross jobs: `propagate=true` under exactly-once (rule 12).

Rule: a batch ends behind the barriers of one snapshot of each topic, in all of its partitions. Rows behind a barrier
wait until every partition shows that barrier, so a batch holds whole snapshots of the query upstream. Barriers stand at
the ends of that query's batches. So the search for them goes backwards from the log's end, and reads little.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.axis import NO_COUNTS, PropagatedState
from keyedwm.core.barriers import align
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.inline import HEADER, UpstreamBarrier, decode_cut
from keyedwm.kafka.client.errors import CorruptRecordError, OffsetOutOfRangeError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.read import ColumnSelection, ControlRecord
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.driver.plan import shared_out
from pyspark_wm_source.task.fetching import OnLoss, fetch
from pyspark_wm_source.task.propagated import check_query, other_query_reason, place
from pyspark_wm_source.values.control_authors import ControlAuthors
from pyspark_wm_source.values.ranges import ChannelRange

LOG = logging.getLogger("keyedwm.source")
_FIRST_LOOK = 64  # offsets: the control rows of a batch, and the markers behind them
_GROWTH = 4
_BARRIERS = ColumnSelection(key=False, value=False, headers=False, control_header=HEADER)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class BarrierPosition:
    """A barrier, and the offset behind it."""

    barrier: UpstreamBarrier
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelPosition:
    """A channel when a batch is planned: next offset, log end, and the last barrier read.

    is_ahead: behind the end lie records of transactions that are still open, or whose end is not written yet.
    """

    position: int
    end: int
    barrier: PropagatedState | None
    is_ahead: bool = False


class Aligner:
    """Finds the ends of batches; keeps the last answer, since the planner asks often while nothing is new.

    on_loss: called with each loss that the search meets. If it does not raise, lost and damaged records are skipped.
    """

    def __init__(self, cluster: Cluster, control_authors: ControlAuthors, on_loss: OnLoss) -> None:
        self._cluster = cluster
        self._control_authors = control_authors
        self._on_loss = on_loss
        # Whether a loss in the last search may be the answer of a broker that is behind.
        self._is_unsure = False
        # Channel → a span that was looked through and holds no barrier.
        self._without: dict[TopicPartition, Span] = {}
        # Channel → the last control record that does not count, and why.
        self._rejected: dict[TopicPartition, tuple[int, str]] = {}
        self._last_ends: tuple[Mapping[TopicPartition, ChannelPosition], dict[TopicPartition, int]] | None = None

    def ends(self, channels: Mapping[TopicPartition, ChannelPosition], limit: int | None) -> dict[TopicPartition, int]:
        """Return where each channel's range ends: behind a barrier, or at its next offset.

        limit: the expected maximum of offsets; a snapshot is not cut, so the ranges can have more.
        """
        if self._last_ends is not None and self._last_ends[0] == channels:
            return self._last_ends[1]
        self._is_unsure = False
        shares = shared_out({tp: max(c.end - c.position, 0) for tp, c in channels.items()}, limit)
        candidates = self._candidates(channels, shares)
        ends = {tp: channel.position for tp, channel in channels.items()}
        for topic in sorted({tp.topic for tp in channels}):
            own = {tp: channel for tp, channel in channels.items() if tp.topic == topic}
            ends |= self._of_topic(own, {tp: candidates[tp] for tp in own if tp in candidates})
        self._last_ends = None if self._is_unsure else (dict(channels), ends)
        return ends

    def _candidates(
        self, channels: Mapping[TopicPartition, ChannelPosition], shares: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, BarrierPosition]:
        """The newest barrier within each channel's share, else the next one behind it."""
        candidates: dict[TopicPartition, BarrierPosition] = {}
        spans = {tp: (c.position, c.position + shares[tp]) for tp, c in channels.items() if c.position < c.end}
        while spans:
            candidates |= self._newest(spans, channels)
            spans = {
                tp: (high, min(channels[tp].end, high + 2 * (high - channels[tp].position)))
                for tp, (_, high) in spans.items()
                if tp not in candidates and high < channels[tp].end
            }
        for tp, at in candidates.items():
            last = channels[tp].barrier
            if last is not None:
                check_query(last, at.barrier, place(tp, at.end - 1))
        return candidates

    def _newest(
        self, spans: Mapping[TopicPartition, Span], channels: Mapping[TopicPartition, ChannelPosition]
    ) -> dict[TopicPartition, BarrierPosition]:
        """Return the last barrier in each span; do not read a part again that held no barrier before."""
        left = {}
        for tp, (low, high) in spans.items():
            first, last = self._without.get(tp, (low, low))
            if channels[tp].end < last:  # the log was truncated or recreated
                first, last = low, low
            left[tp] = (min(last, high), high) if first <= low < last else (low, high)
        newest = newest_barriers(self._cluster, left, self._counting(channels), self._skip_loss)
        if not self._is_unsure:
            self._without |= {tp: span for tp, span in spans.items() if tp not in newest}
        return newest

    def _skip_loss(self, error: KeyedwmError) -> None:
        """Skip a loss if the option accepts it. A deleted beginning or a damaged batch never holds a barrier again."""
        self._on_loss(error)
        is_deleted = isinstance(error, OffsetOutOfRangeError) and error.offset < error.earliest
        self._is_unsure |= not (is_deleted or isinstance(error, CorruptRecordError))

    def _counting(
        self, channels: Mapping[TopicPartition, ChannelPosition], at_most: int | None = None
    ) -> BarrierFilter:
        """Return the filter of barriers. Signed records can be copied, so with a secret only later barriers count."""
        last = {tp: c.barrier for tp, c in channels.items() if c.barrier is not None and self._control_authors.proven}
        return BarrierFilter(control_authors=self._control_authors, last=last, at_most=at_most, rejected=self._rejected)

    def _of_topic(
        self, channels: Mapping[TopicPartition, ChannelPosition], candidates: dict[TopicPartition, BarrierPosition]
    ) -> dict[TopicPartition, int]:
        """The ends behind the newest snapshot whose barrier every channel shows."""
        newest: dict[TopicPartition, int] = {}
        for tp, channel in sorted(channels.items()):
            if tp in candidates:
                newest[tp] = candidates[tp].barrier.snapshot
            elif channel.barrier is not None:
                newest[tp] = channel.barrier.snapshot
            elif channel.position < channel.end or channel.is_ahead:
                LOG.warning(
                    "%s: the records from offset %d on wait for a barrier: %s", tp, channel.position, self._why(tp)
                )
                return {}
        snapshot, ahead = align(newest)
        aligned = {tp: at for tp, at in candidates.items() if tp not in ahead}
        waiting = {tp: (channels[tp].position, at.end) for tp, at in candidates.items() if tp in ahead}
        if waiting and snapshot is not None:
            aligned |= newest_barriers(self._cluster, waiting, self._counting(channels, snapshot), self._skip_loss)
        return {tp: at.end for tp, at in aligned.items()}

    def _why(self, tp: TopicPartition) -> str:
        """Why no barrier was found."""
        if tp in self._rejected:
            offset, why = self._rejected[tp]
            return f"the control record at offset {offset} does not count, {why}"
        return "the topic holds none for them yet; with propagate=true it must be written with controlRows=inline"


@dataclass(frozen=True, kw_only=True, slots=True)
class BarrierFilter:
    """The barriers that count: of these authors, of a snapshot up to `at_most`, and later than the last one read.

    rejected: collects, by channel, the control record with the highest offset that does not count, and why.
    """

    control_authors: ControlAuthors
    last: Mapping[TopicPartition, PropagatedState]
    at_most: int | None
    rejected: dict[TopicPartition, tuple[int, str]]

    def cut_of(self, record: ControlRecord, tp: TopicPartition) -> UpstreamBarrier | None:
        """The barrier that a record holds, None if it holds none or does not count."""
        why = self.control_authors.refusal(record, tp)
        barrier = None if why else decode_cut(record.header, record.value, place(tp, record.offset))
        last = self.last.get(tp)
        if barrier is not None and last is not None:
            why = other_query_reason(last, barrier)
        if why is not None:
            self.rejected[tp] = max(self.rejected.get(tp, (-1, "")), (record.offset, why))
            return None
        too_new = barrier is not None and self.at_most is not None and barrier.snapshot > self.at_most
        return (
            None
            if too_new or (barrier is not None and last is not None and barrier.snapshot <= last.snapshot)
            else barrier
        )


def newest_barriers(
    cluster: Cluster, spans: Mapping[TopicPartition, Span], counting: BarrierFilter, on_loss: OnLoss
) -> dict[TopicPartition, BarrierPosition]:
    """Return the newest barrier that counts in each span [low, high); looks backwards.

    A signed barrier can be a copy of an older one, so with a secret the whole span is looked through at once.
    """
    newest: dict[TopicPartition, BarrierPosition] = {}
    width = _FIRST_LOOK
    left = {tp: span for tp, span in spans.items() if span[0] < span[1]}
    while left:
        is_whole = counting.control_authors.proven
        looks = {tp: (low if is_whole else max(low, high - width), high) for tp, (low, high) in left.items()}
        newest |= _newest_in(cluster, looks, counting, on_loss)
        left = {
            tp: (left[tp][0], first) for tp, (first, _) in looks.items() if tp not in newest and first > left[tp][0]
        }
        width *= _GROWTH
    return newest


def _newest_in(
    cluster: Cluster, looks: Mapping[TopicPartition, Span], counting: BarrierFilter, on_loss: OnLoss
) -> dict[TopicPartition, BarrierPosition]:
    """Return the barrier of the highest snapshot; if the span has it several times, the first of them."""
    newest: dict[TopicPartition, BarrierPosition] = {}
    ranges = [
        ChannelRange(channel=tp, start=low, end=high, counts=NO_COUNTS, axes={})
        for tp, (low, high) in sorted(looks.items())
    ]
    for chunk in fetch(cluster, ranges, _BARRIERS, Isolation.READ_COMMITTED, on_loss):
        tp = ranges[chunk.range_index].channel
        for record in chunk.records.control_records:
            barrier = counting.cut_of(record, tp)
            if barrier is not None and (tp not in newest or barrier.snapshot > newest[tp].barrier.snapshot):
                newest[tp] = BarrierPosition(barrier, record.offset + 1)
    return newest
