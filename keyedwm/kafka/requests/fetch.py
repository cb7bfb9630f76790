"""Reading ranges of offsets: all of a leader's partitions in one request, the next in flight while the last is decoded.

Rule: a range ends with exactly one `done`, at its end offset, and only on proof: a batch that reaches the end or begins
behind it. An answer without a batch proves nothing, even if it is repeated: brokers on object stores send it while they
read. Records that are gone are a data loss; offsets that never had a visible record are not.
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
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    described,
)
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.batches import Batches, find_batches, verify
from keyedwm.kafka.records.read import ColumnSelection, Records, no_records, read_records
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch_requests import (
    NO_EPOCH,
    RangeReader,
    Replicas,
    by_partition,
    diverging_end,
    fetch_request,
    nothing_sentence,
)
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction

# The number of metadata answers with another topic id that are needed: a single answer may be stale.
_OTHER_TOPIC_IDS = 3


class OffsetRange(NamedTuple):
    """The offsets [start, end) of one partition.

    topic_id: the topic's id when the range was planned; leader_epoch: of the record before `start`, if known. With them
    the read detects a topic that was recreated and a log that was truncated since.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """The next records of range number `index`. done: they reach the end of the range."""

    index: int
    tp: TopicPartition
    records: Records
    next_offset: int
    done: bool


def read_ranges(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    selection: ColumnSelection | None = None,
    isolation: Isolation | None = None,
    *,
    stall_ms: int = 120_000,
) -> Iterator[Fetched]:
    """Read the ranges; yields in offset order per range, each range ending in one Fetched with `done`.

    isolation: None for the configured one. stall_ms: how long nothing may arrive before UnavailableError.
    Raises a DataLossError (OffsetOutOfRangeError, TopicRecreatedError, LogTruncatedError) for records that are gone,
    CorruptRecordError for a damaged batch, RecordTooLargeError, UnknownTopicError, AccessError.
    """
    selection = selection or ColumnSelection()
    for index, part in enumerate(ranges):
        if part.start >= part.end:
            tp = TopicPartition(part.topic, part.partition)
            yield Fetched(index, tp, no_records(selection, part.end), part.end, done=True)
    fetcher = _Fetcher(cluster, selection, isolation or cluster.config.isolation, stall_ms)
    for turn in _turns(ranges):
        yield from fetcher.run(turn)


@dataclass(slots=True)
class _Leader:
    """One broker and its ranges, those served longest ago first: a broker fills an answer in request order."""

    node: int
    readers: deque[RangeReader] = field(default_factory=deque)
    requested: list[RangeReader] = field(default_factory=list)
    answer: Answer | None = None


class _Part(NamedTuple):
    """The batches in one answer for one range."""

    reader: RangeReader
    start: int
    batches: Batches
    aborted: list[tuple[int, int]]
    done: bool


def _turns(ranges: Sequence[OffsetRange]) -> Iterator[list[RangeReader]]:
    """Yield groups of ranges that can be read at the same time: a request names a partition only once."""
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
    def __init__(self, cluster: Cluster, selection: ColumnSelection, isolation: Isolation, stall_ms: int) -> None:
        self._cluster, self._selection, self._isolation = cluster, selection, isolation
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
        self._restart_silence()
        leaders: dict[int, _Leader] = {}
        while self._waiting or leaders:
            self._assign(leaders)
            first = self._first_answered(leaders)
            if first is None:
                continue
            leader, answer = first
            parts = self._read_answer(leader, answer)
            if leader.readers:
                self._send(leader, wait=not parts)
            else:
                del leaders[leader.node]
            for part in parts:
                yield from self._decode(part)

    def _assign(self, leaders: dict[int, _Leader]) -> None:
        """Assign waiting ranges to their leaders, and send requests to idle leaders."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            by_place = {reader.tp: reader for reader in waiting}
            nodes = self._cluster.leaders(by_place, self._retry)
            self._waiting = [reader for reader in waiting if self._is_other_topic(reader)]
            for node, places in nodes.items():
                for tp in places:
                    if by_place[tp] not in self._waiting:
                        replica = self._replicas.node_for(tp, node)
                        leaders.setdefault(replica, _Leader(replica)).readers.append(by_place[tp])
            if self._waiting:
                self._doubt_topic(self._waiting[0])
        for leader in leaders.values():
            if leader.answer is None:
                self._send(leader, wait=False)

    def _is_other_topic(self, reader: RangeReader) -> bool:
        """Whether the metadata has another topic id than the range."""
        topic_id = self._cluster.metadata.topic_id(reader.tp.topic)
        reader.topic_id = reader.topic_id or topic_id
        return topic_id not in {None, reader.topic_id}

    def _doubt_topic(self, reader: RangeReader) -> None:
        """Ask for the topic again, as one answer may be stale; after enough answers the topic counts as recreated."""
        topic = reader.tp.topic
        topic_id = self._cluster.metadata.topic_id(topic)
        self._other_topic_ids += 1
        if self._other_topic_ids >= _OTHER_TOPIC_IDS:
            raise TopicRecreatedError.of(topic, reader.topic_id, topic_id)
        self._cluster.forget_leaders({reader.tp.topic for reader in self._waiting})
        self._retry.pause(f"topic {topic!r} has the topic id {topic_id}, expected {reader.topic_id}")

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
        """Return the leader that answered first (the first in the list, if several did); None if none did in time."""
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

    def _read_answer(self, leader: _Leader, answer: Answer) -> list[_Part]:
        """Read a leader's answer and advance its ranges; ranges that this leader cannot read wait again."""
        leader.answer = None
        try:
            response = self._cluster.connection.result(answer)
        except TransientError as error:
            return self._refused(leader, dict.fromkeys(leader.requested, str(error)))
        if response.error_code:
            _check_passes(leader.requested[0], response.error_code)
            return self._refused(leader, dict.fromkeys(leader.requested, described(response.error_code)))
        by_tp = by_partition(response, leader.requested)
        answers = [(reader, by_tp[reader.tp]) for reader in leader.requested if reader.tp in by_tp]
        refused = {reader: reason for reader, data in answers if (reason := self._refusal(reader, data, leader))}
        answers = [(reader, data) for reader, data in answers if reader not in refused]
        elsewhere = {r for r, data in answers if self._replicas.redirected(r.tp, data, leader.node)}
        leader.readers = deque(reader for reader in leader.readers if reader not in elsewhere)
        self._waiting += [reader for reader in leader.requested if reader in elsewhere]
        parts = [
            part for reader, data in answers if reader not in elsewhere and (part := self._part(reader, data, leader))
        ]
        self._rotate(leader, parts)
        if refused:
            self._refused(leader, refused)
        if parts:
            self._retry.progress()
            self._restart_silence()
        elif not refused and not elsewhere:
            reader = leader.requested[0]
            reason = nothing_sentence(reader, by_tp.get(reader.tp), self._isolation, response.throttle_time_ms)
            self._pause_for_nothing(leader, reason)
        return parts

    def _pause_for_nothing(self, leader: _Leader, reason: str) -> None:
        """Wait after an answer without a batch; from time to time check that the log still holds the ranges."""
        if time.monotonic() >= self._silent_until:
            self._refuse_lost_ranges(leader.requested)
            self._return(leader, leader.requested)
            self._restart_silence()
        self._retry.pause(reason)

    def _restart_silence(self) -> None:
        self._silent_until = time.monotonic() + min(self._stall_ms, self._limits.silent_range_ms) / 1_000

    def _refuse_lost_ranges(self, readers: Sequence[RangeReader]) -> None:
        """Raise the data loss of a log that begins behind a position, or ends before a range does.

        Such a log was truncated or recreated; a new leader may not know its end at once (KIP-207).
        """
        places = [reader.tp for reader in readers]
        starts, ends = self._cluster.earliest(places), self._cluster.latest(places, Isolation.READ_UNCOMMITTED)
        for reader in readers:
            earliest, latest = starts[reader.tp], ends[reader.tp]
            if earliest > reader.position or latest < reader.end:
                raise OffsetOutOfRangeError.of(reader.tp, reader.position, earliest, latest)

    def _part(self, reader: RangeReader, data: Any, leader: _Leader) -> _Part | None:
        """Return the batches for one range, or None if the answer has none."""
        self._check_divergence(reader, diverging_end(data))
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
        reader.leader_epoch = batches.leader_epoch
        return _Part(reader, start, batches, aborted, reader.position >= reader.end)

    def _check_divergence(self, reader: RangeReader, end: int | None) -> None:
        """Raise LogTruncatedError if the log lost records that were read.

        end: the divergence by the leader's answer.
        """
        if end is None:
            return
        if self._cluster.lost_records({reader.tp: (reader.position, reader.leader_epoch)}):
            raise LogTruncatedError.of(reader.tp, reader.position, reader.leader_epoch, end)
        reader.is_checked = False  # some servers know the epochs of their logs wrongly

    def _rotate(self, leader: _Leader, parts: list[_Part]) -> None:
        served = {part.reader for part in parts}
        going = [part.reader for part in parts if not part.done]
        leader.readers = deque([reader for reader in leader.readers if reader not in served] + going)

    def _decode(self, part: _Part) -> Iterator[Fetched]:
        reader = part.reader
        aborted = part.aborted if self._isolation is Isolation.READ_COMMITTED else []
        for records in read_records(part.batches, (part.start, reader.end), self._selection, aborted, self._limits):
            done = records.next_offset >= reader.end
            yield Fetched(reader.index, reader.tp, records, records.next_offset, done)
            if done:  # the records of the batch after the range may be a separate piece
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

    def _refusal(self, reader: RangeReader, data: Any, leader: _Leader) -> str | None:
        """Return why a range was not answered, None if it was; raise the error if a retry does not help."""
        tp, number = reader.tp, int(data.error_code)
        code = Code.of(number)
        if code is Code.NONE:
            return None
        if self._replicas.is_follower(tp, leader.node):
            return f"{tp}: {described(number)} from the replica {leader.node}"
        if code is Code.OFFSET_OUT_OF_RANGE:  # or the broker does not know the log's ends yet
            self._refuse_lost_ranges([reader])
            return f"{tp}: {described(number)} at offset {reader.position}, which the log holds"
        _check_passes(reader, number)
        return f"{tp}: {described(number)}"


def _check_passes(reader: RangeReader, number: int) -> None:
    """Raise the error for a code that a retry does not change."""
    tp, code = reader.tp, Code.of(number)
    if code.denied:
        raise AccessError(f"not allowed to read {tp}: {described(number)}")
    if code is Code.CORRUPT_MESSAGE:
        raise CorruptRecordError.of(tp, reader.position, "is damaged on the broker's disk")
    if reaction(Api.FETCH, number) is Reaction.FINAL:
        raise InputError(f"{tp} cannot be read from offset {reader.position}: {described(number)}")
