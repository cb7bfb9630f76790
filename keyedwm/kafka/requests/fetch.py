"""Reading ranges of offsets: all of a leader's partitions in one request, the next in flight while the last is decoded.

Rule: a range ends with exactly one `done`, at its end offset, and only on proof: a batch that reaches the end or begins
behind it, or a leader that answers with nothing although its own disk holds the position and it must answer with the
next batch, whatever its size (KIP-74). Records that are gone are a data loss; offsets that never carried a visible
record are not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.connection import Answer, Retry, TransientError
from keyedwm.kafka.client.errors import (
    AccessError,
    Code,
    CorruptRecordError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    described,
)
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.batches import Batches, find_batches, verify
from keyedwm.kafka.records.read import Records, Wanted, no_records, read_records
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch_requests import (
    NO_EPOCH,
    RangeReader,
    Replicas,
    by_partition,
    check_divergence,
    fetch_request,
    readable_end,
)

# How long a log may seem to end before a range does, until its end is asked for: the range was complete when planned.
_SHORT_LOG_MS = 5_000
# Answers without a record that it takes until the leader is asked whether its own disk holds the position.
_EMPTY_ANSWERS = 2
# Metadata answers with another topic id that it takes: a single one may be stale.
_OTHER_TOPIC_IDS = 3


class OffsetRange(NamedTuple):
    """The offsets [start, end) of one partition.

    topic_id: the topic's id when the range was planned; leader_epoch: of the record before `start`, if known. With them
    a topic that was recreated and a log that was truncated since are noticed.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """Some records of the range number `index`, following those given before; `done` when they reach its end."""

    index: int
    tp: TopicPartition
    records: Records
    next_offset: int
    done: bool


def read_ranges(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    wanted: Wanted | None = None,
    isolation: Isolation | None = None,
    *,
    stall_ms: int = 120_000,
) -> Iterator[Fetched]:
    """Read the ranges; yields in offset order per range, each range ending in one Fetched with `done`.

    isolation: None for the configured one. stall_ms: how long nothing may arrive before UnavailableError.
    Raises a DataLossError (OffsetOutOfRangeError, TopicRecreatedError, LogTruncatedError) for records that are gone,
    CorruptRecordError for a damaged batch, RecordTooLargeError, UnknownTopicError, AccessError.
    """
    wanted = wanted or Wanted()
    for index, part in enumerate(ranges):
        if part.start >= part.end:
            tp = TopicPartition(part.topic, part.partition)
            yield Fetched(index, tp, no_records(wanted, part.end), part.end, done=True)
    fetcher = _Fetcher(cluster, wanted, isolation or cluster.config.isolation, stall_ms)
    for turn in _turns(ranges):
        yield from fetcher.run(turn)


@dataclass(slots=True)
class _Leader:
    """One broker and its ranges, those served longest ago first: a broker fills an answer in the request's order."""

    node: int
    readers: deque[RangeReader] = field(default_factory=deque)
    requested: list[RangeReader] = field(default_factory=list)
    answer: Answer | None = None


class _Part(NamedTuple):
    """The batches that one answer brought for one range."""

    reader: RangeReader
    start: int
    batches: Batches | None  # None: the rest of the range has no records
    aborted: list[tuple[int, int]]
    done: bool


def _turns(ranges: Sequence[OffsetRange]) -> Iterator[list[RangeReader]]:
    """Ranges that can be read at the same time: a request names a partition only once."""
    waiting = [
        RangeReader(
            index,
            TopicPartition(part.topic, part.partition),
            part.start,
            part.end,
            part.topic_id,
            part.leader_epoch,
        )
        for index, part in enumerate(ranges)
        if part.start < part.end
    ]
    while waiting:
        turn: dict[TopicPartition, RangeReader] = {}
        later = [reader for reader in waiting if turn.setdefault(reader.tp, reader) is not reader]
        yield list(turn.values())
        waiting = later


class _Fetcher:
    def __init__(self, cluster: Cluster, wanted: Wanted, isolation: Isolation, stall_ms: int) -> None:
        self._cluster, self._wanted, self._isolation = cluster, wanted, isolation
        self._stall_ms = stall_ms
        self._waiting: list[RangeReader] = []
        self._other_topic_ids = 0
        self._replicas = Replicas(cluster.config.rack)
        limits = cluster.config.limits
        self._limits = replace(limits, unit_bytes=max(cluster.config.fetch_bytes // 8 * 7, limits.unit_bytes))

    def run(self, readers: list[RangeReader]) -> Iterator[Fetched]:
        """Read until every range is done."""
        self._waiting = readers
        self._retry = Retry(self._cluster.config, f"reading {readers[0].tp}", self._stall_ms)
        self._restart_short_log_timer()
        leaders: dict[int, _Leader] = {}
        while self._waiting or leaders:
            self._assign(leaders)
            first = self._first_answered(leaders)
            if first is None:
                continue
            answered, answer = first
            parts = self._take(answered, answer)
            if answered.readers:
                self._send(answered, wait=not parts)
            else:
                del leaders[answered.node]
            for part in parts:
                yield from self._decode(part)

    def _assign(self, leaders: dict[int, _Leader]) -> None:
        """Hand waiting ranges to their leaders, and send requests to idle leaders."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            by_place = {reader.tp: reader for reader in waiting}
            nodes = self._cluster.leaders(by_place, self._retry)
            self._waiting = [reader for reader in waiting if self._is_other_topic(reader)]
            for node, places in nodes.items():
                for tp in places:
                    if by_place[tp] not in self._waiting:
                        chosen = self._replicas.node_for(tp, node)
                        leaders.setdefault(chosen, _Leader(chosen)).readers.append(by_place[tp])
            if self._waiting:
                self._doubt_topic(self._waiting[0])
        for leader in leaders.values():
            if leader.answer is None:
                self._send(leader, wait=False)

    def _is_other_topic(self, reader: RangeReader) -> bool:
        """Whether the metadata has another topic id than the range."""
        found = self._cluster.metadata.topic_id(reader.tp.topic)
        reader.topic_id = reader.topic_id or found
        return found not in {None, reader.topic_id}

    def _doubt_topic(self, reader: RangeReader) -> None:
        """Ask for the topic again, as one answer may be stale; then it is the id of a recreated topic."""
        topic = reader.tp.topic
        found = self._cluster.metadata.topic_id(topic)
        self._other_topic_ids += 1
        if self._other_topic_ids >= _OTHER_TOPIC_IDS:
            raise TopicRecreatedError.of(topic, reader.topic_id, found)
        self._cluster.forget_leaders({reader.tp.topic for reader in self._waiting})
        self._retry.pause(f"topic {topic!r} has the topic id {found}, expected {reader.topic_id}")

    def _send(self, leader: _Leader, *, wait: bool) -> None:
        leader.requested = list(leader.readers)
        request = fetch_request(
            leader.requested,
            self._isolation,
            self._cluster.config,
            self._cluster.metadata,
            rack=self._replicas.rack,
            wait=wait,
        )
        leader.answer = self._cluster.connection.submit(leader.node, request)

    def _first_answered(self, leaders: dict[int, _Leader]) -> tuple[_Leader, Answer] | None:
        """The leader that answered first, of several the one named first; None if none did in time."""
        busy = [(leader, leader.answer) for leader in leaders.values() if leader.answer is not None]
        if not busy:
            return None
        try:
            self._cluster.connection.wait_any([answer for _, answer in busy])
        except TransientError as error:
            for leader, _ in busy:
                self._return(leader, leader.requested)
            leaders.clear()
            self._retry.pause(error)
            return None
        return next((leader, answer) for leader, answer in busy if answer.done())

    def _take(self, leader: _Leader, answer: Answer) -> list[_Part]:
        """Look at a leader's answer and move its ranges on; what cannot be read there goes back to waiting."""
        leader.answer = None
        try:
            response = self._cluster.connection.result(answer)
        except TransientError as error:
            return self._refused(leader, dict.fromkeys(leader.requested, str(error)))
        if response.error_code:
            return self._refused(leader, dict.fromkeys(leader.requested, described(response.error_code)))
        found = by_partition(response, leader.requested)
        refused = {reader: reason for reader in leader.requested if (reason := self._refusal(reader, found, leader))}
        requested = [(reader, found[reader.tp]) for reader in leader.requested if reader not in refused]
        elsewhere = {r for r, data in requested if self._replicas.redirected(r.tp, data, leader.node)}
        requested = [(reader, data) for reader, data in requested if reader not in elsewhere]
        leader.readers = deque(reader for reader in leader.readers if reader not in elsewhere)
        self._waiting += [reader for reader in leader.requested if reader in elsewhere]
        parts = [part for reader, data in requested if (part := self._part(reader, data, leader))]
        if not response.throttle_time_ms and not any(data.records for data in found.values()):
            parts += self._without_records(requested, leader)
        self._rotate(leader, parts)
        if refused:
            self._refused(leader, refused)
        if parts:
            self._retry.progress()
            self._restart_short_log_timer()
        elif not refused and not elsewhere:
            self._pause_for_nothing(*requested[0], leader)
        return parts

    def _without_records(self, requested: list[tuple[RangeReader, Any]], leader: _Leader) -> list[_Part]:
        """The ranges that have only offsets without records left, after an answer without a record of any partition.

        Such an answer alone proves nothing: a broker with tiered storage gives it when a remote read takes too long.
        But what lies on the leader's own disk it must answer with, at least with one batch, however large.
        """
        for reader, data in requested:
            reader.empty_answers += readable_end(data, self._isolation) >= reader.end
        doubtful = [reader for reader, _ in requested if reader.empty_answers >= _EMPTY_ANSWERS]
        followers = [reader for reader in doubtful if self._replicas.is_follower(reader.tp, leader.node)]
        if followers:  # only the leader's answer is a proof
            for reader in followers:
                reader.empty_answers = 0
            self._return(leader, followers)
            return []
        local = self._cluster.earliest_local([reader.tp for reader in doubtful]) if doubtful else {}
        proven = [reader for reader in doubtful if local[reader.tp] <= reader.position]
        parts = []
        for reader in proven:
            parts.append(_Part(reader, reader.position, None, [], done=True))
            reader.position = reader.end
        return parts

    def _pause_for_nothing(self, reader: RangeReader, data: Any, leader: _Leader) -> None:
        if time.monotonic() >= self._short_log_at:
            self._refuse_short_logs(leader.requested)
            if self._replicas.is_follower(reader.tp, leader.node):
                self._return(leader, leader.requested)
            self._restart_short_log_timer()
        end = readable_end(data, self._isolation)
        self._retry.pause(
            f"nothing after offset {reader.position} of {reader.tp}, which can be read up to offset {end}; "
            f"the range ends at {reader.end}"
        )

    def _restart_short_log_timer(self) -> None:
        self._short_log_at = time.monotonic() + min(self._stall_ms, _SHORT_LOG_MS) / 1_000

    def _refuse_short_logs(self, readers: Sequence[RangeReader]) -> None:
        """A log that ends before a range was truncated or recreated; a new leader may not know its end (KIP-207)."""
        ends = self._cluster.latest([reader.tp for reader in readers], Isolation.READ_UNCOMMITTED)
        for reader in readers:
            if ends[reader.tp] < reader.end:
                raise self._out_of_range(reader)

    def _out_of_range(self, reader: RangeReader) -> OffsetOutOfRangeError:
        earliest = self._cluster.earliest([reader.tp])[reader.tp]
        latest = self._cluster.latest([reader.tp], Isolation.READ_UNCOMMITTED)[reader.tp]
        return OffsetOutOfRangeError.of(reader.tp, reader.position, earliest, latest)

    def _part(self, reader: RangeReader, data: Any, leader: _Leader) -> _Part | None:
        """The batches for one range, or None if there is none in the answer."""
        check_divergence(reader, data)
        start, raw = reader.position, data.records or b""
        batches = find_batches(reader.tp, raw, start)
        if batches.next_offset == start:
            if raw and not len(batches) and reader is leader.requested[0]:
                # The first partition of a request gets its first batch whole, however large (KIP-74).
                raise CorruptRecordError.of(reader.tp, start, "is cut off")
            return None
        if self._cluster.config.check_crcs:
            batches = verify(batches, start)
        aborted = [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()]
        reader.position = min(batches.next_offset, reader.end)
        reader.leader_epoch, reader.empty_answers = batches.leader_epoch, 0
        return _Part(reader, start, batches, aborted, reader.position >= reader.end)

    def _rotate(self, leader: _Leader, parts: list[_Part]) -> None:
        served = {part.reader for part in parts}
        going = [part.reader for part in parts if not part.done]
        leader.readers = deque([reader for reader in leader.readers if reader not in served] + going)

    def _decode(self, part: _Part) -> Iterator[Fetched]:
        reader = part.reader
        if part.batches is None:
            yield Fetched(reader.index, reader.tp, no_records(self._wanted, reader.end), reader.end, done=True)
            return
        aborted = part.aborted if self._isolation is Isolation.READ_COMMITTED else []
        for records in read_records(part.batches, (part.start, reader.end), self._wanted, aborted, self._limits):
            done = records.next_offset >= reader.end
            yield Fetched(reader.index, reader.tp, records, records.next_offset, done)
            if done:  # what the batch holds behind the range may be a piece of its own
                return

    def _refused(self, leader: _Leader, refused: dict[RangeReader, str]) -> list[_Part]:
        """Ask for the leaders of these ranges again before they are read on."""
        self._return(leader, refused)
        self._retry.pause(next(iter(refused.values())))
        return []

    def _return(self, leader: _Leader, readers: Iterable[RangeReader]) -> None:
        returned = set(readers)
        if any(self._replicas.is_follower(reader.tp, leader.node) for reader in returned):
            self._replicas.use_leaders()
        leader.readers = deque(reader for reader in leader.readers if reader not in returned)
        self._waiting += returned
        self._cluster.forget_leaders({reader.tp.topic for reader in returned})

    def _refusal(self, reader: RangeReader, found: dict[TopicPartition, Any], leader: _Leader) -> str | None:
        """Why a range was not answered, None if it was; raises the error if asking again does not help."""
        tp = reader.tp
        if tp not in found:
            return f"{tp}: the answer leaves this partition out"
        number = int(found[tp].error_code)
        code = Code.of(number)
        if code is Code.NONE:
            return None
        if self._replicas.is_follower(tp, leader.node):
            return f"{tp}: {described(number)} from the replica {leader.node}"
        if code is Code.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(reader)
        if code.denied:
            raise AccessError(f"not allowed to read {tp}: {described(number)}")
        if code is Code.CORRUPT_MESSAGE:
            raise CorruptRecordError.of(tp, reader.position, "is damaged on the broker's disk")
        if not code.retriable and code is not Code.OTHER:
            raise InputError(f"{tp} cannot be read from offset {reader.position}: {described(number)}")
        return f"{tp}: {described(number)}"
