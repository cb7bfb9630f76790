"""Reading ranges of offsets: all of a leader's partitions in one request, the next in flight while the last is decoded.

Rule: a range ends with exactly one `done`, at its end offset, whatever lies there: records, markers or nothing at all.
Records that are gone are a data loss; offsets that never carried a visible record are not.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.batches import Batches, find_batches, verify
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.connection import Answer, Retry, TransientError
from keyedwm.kafka.errors import AccessError, Code, CorruptRecordError, OffsetOutOfRangeError, described
from keyedwm.kafka.pieces import LARGEST_UNIT_BYTES
from keyedwm.kafka.records import Records, Wanted, no_records, read_records
from keyedwm.kafka.values import Isolation, TopicPartition

# How long a log may seem to end before a range does, until its end is asked for: a range was whole when it was planned.
_SHORT_LOG_MS = 5_000


class Range(NamedTuple):
    """The offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """Some records of the range number `index`, following those given before; `done` when they reach its end."""

    index: int
    where: TopicPartition
    records: Records
    next_offset: int
    done: bool


def read_ranges(
    cluster: Cluster,
    ranges: Sequence[Range],
    wanted: Wanted | None = None,
    isolation: Isolation | None = None,
    *,
    stall_ms: int = 120_000,
) -> Iterator[Fetched]:
    """Read the ranges; yields in offset order per range, each range ending in one Fetched with `done`.

    isolation: None for the configured one. stall_ms: how long nothing may arrive before UnavailableError.
    Raises OffsetOutOfRangeError (a DataLossError) for offsets the log does not hold, CorruptRecordError for what
    cannot be read, UnknownTopicError, AccessError.
    """
    wanted = wanted or Wanted()
    for index, part in enumerate(ranges):
        if part.start >= part.end:
            where = TopicPartition(part.topic, part.partition)
            yield Fetched(index, where, no_records(wanted, part.end), part.end, done=True)
    fetcher = _Fetcher(cluster, wanted, isolation or cluster.config.isolation, stall_ms)
    for turn in _turns(ranges):
        yield from fetcher.run(turn)


@dataclass(slots=True, eq=False)
class _Reader:
    """One range being read: `position` is the next offset to ask for."""

    index: int
    where: TopicPartition
    position: int
    end: int


@dataclass(slots=True)
class _Leader:
    """One broker and its ranges, those served longest ago first: a broker fills an answer in the request's order."""

    node: int
    readers: deque[_Reader] = field(default_factory=deque)
    asked: list[_Reader] = field(default_factory=list)
    answer: Answer | None = None


class _Part(NamedTuple):
    """What one answer brought for one range."""

    reader: _Reader
    start: int
    batches: Batches
    aborted: list[tuple[int, int]]
    done: bool


def _turns(ranges: Sequence[Range]) -> Iterator[list[_Reader]]:
    """Ranges that can be read at the same time: a request names a partition only once."""
    waiting = [
        _Reader(index, TopicPartition(part.topic, part.partition), part.start, part.end)
        for index, part in enumerate(ranges)
        if part.start < part.end
    ]
    while waiting:
        turn: dict[TopicPartition, _Reader] = {}
        later = [reader for reader in waiting if turn.setdefault(reader.where, reader) is not reader]
        yield list(turn.values())
        waiting = later


class _Fetcher:
    def __init__(self, cluster: Cluster, wanted: Wanted, isolation: Isolation, stall_ms: int) -> None:
        self._cluster, self._wanted, self._isolation = cluster, wanted, isolation
        self._stall_ms = stall_ms
        self._waiting: list[_Reader] = []

    def run(self, readers: list[_Reader]) -> Iterator[Fetched]:
        """Read until every range is done."""
        self._waiting = readers
        self._retry = Retry(self._cluster.config, f"reading {readers[0].where}", self._stall_ms)
        self._wait_anew()
        leaders: dict[int, _Leader] = {}
        while self._waiting or leaders:
            self._assign(leaders)
            answered, answer = _first_answer(leaders)
            parts = self._take(answered, answer)
            if answered.readers:
                self._send(answered, wait=not parts)
            else:
                del leaders[answered.node]
            for part in parts:
                yield from self._decode(part)

    def _assign(self, leaders: dict[int, _Leader]) -> None:
        """Hand waiting ranges to their leaders, and ask those that are not busy."""
        if self._waiting:
            by_place = {reader.where: reader for reader in self._waiting}
            for node, places in self._cluster.leaders(by_place, self._retry).items():
                leader = leaders.setdefault(node, _Leader(node))
                leader.readers.extend(by_place[where] for where in places)
            self._waiting = []
        for leader in leaders.values():
            if leader.answer is None:
                self._send(leader, wait=False)

    def _send(self, leader: _Leader, *, wait: bool) -> None:
        leader.asked = list(leader.readers)
        request = _request(leader.asked, self._isolation, self._cluster, wait=wait)
        leader.answer = self._cluster.connection.submit(leader.node, request)

    def _take(self, leader: _Leader, answer: Answer) -> list[_Part]:
        """Look at a leader's answer and move its ranges on; what has no future there goes back to waiting."""
        leader.answer = None
        try:
            response = self._cluster.connection.result(answer)
        except TransientError as error:
            self._give_up(leader, leader.asked, str(error))
            return []
        if response.error_code:
            self._give_up(leader, leader.asked, described(response.error_code))
            return []
        found = {(t.topic, p.partition_index): p for t in response.responses for p in t.partitions}
        silent = all(not part.records for part in found.values()) and not response.throttle_time_ms
        parts, moved = [], {}
        for reader in leader.asked:
            data = found.get(reader.where)
            if data is None or data.error_code:
                moved[reader] = self._trouble(reader, Code.OTHER if data is None else data.error_code)
                continue
            part = self._part(reader, data, silent=silent, first=reader is leader.asked[0])
            if part is not None:
                parts.append(part)
        self._rotate(leader, parts)
        if moved:
            self._give_up(leader, list(moved), next(iter(moved.values())))
        if parts:
            self._retry.progress()
            self._wait_anew()
        elif not moved:
            if time.monotonic() >= self._ask_ends_at:
                self._refuse_short_logs(leader.asked)
                self._wait_anew()
            self._retry.pause(f"nothing after offset {leader.asked[0].position} of {leader.asked[0].where}")
        return parts

    def _wait_anew(self) -> None:
        self._ask_ends_at = time.monotonic() + min(self._stall_ms, _SHORT_LOG_MS) / 1_000

    def _refuse_short_logs(self, readers: Sequence[_Reader]) -> None:
        """A log that ends before a range does was made anew; a leader new in office does not tell its end (KIP-207)."""
        ends = self._cluster.latest([reader.where for reader in readers], Isolation.READ_UNCOMMITTED)
        for reader in readers:
            if ends[reader.where] < reader.end:
                raise self._out_of_range(reader)

    def _out_of_range(self, reader: _Reader) -> OffsetOutOfRangeError:
        earliest = self._cluster.earliest([reader.where])[reader.where]
        latest = self._cluster.latest([reader.where], Isolation.READ_UNCOMMITTED)[reader.where]
        return OffsetOutOfRangeError.of(reader.where, reader.position, earliest, latest)

    def _part(self, reader: _Reader, data: Any, *, silent: bool, first: bool) -> _Part | None:
        """The batches for one range, or None if nothing came for it."""
        start, raw = reader.position, data.records or b""
        batches = find_batches(reader.where, raw, start)
        if not len(batches):
            visible_end = (
                data.last_stable_offset if self._isolation is Isolation.READ_COMMITTED else data.high_watermark
            )
            if silent and visible_end >= reader.end:
                # Nothing in any answer and the log goes on behind our end: only offsets without records are left.
                reader.position = reader.end
                return _Part(reader, start, batches, [], done=True)
            if raw and first:
                # The first partition of a request gets its first batch whole, however large (KIP-74).
                raise CorruptRecordError.of(reader.where, start, "is cut off")
            return None
        if self._cluster.config.check_crcs:
            batches = verify(batches, start)
        aborted = [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()]
        reader.position = min(batches.next_offset, reader.end)
        return _Part(reader, start, batches, aborted, reader.position >= reader.end)

    def _rotate(self, leader: _Leader, parts: list[_Part]) -> None:
        served = {part.reader for part in parts}
        going = [part.reader for part in parts if not part.done]
        leader.readers = deque([reader for reader in leader.readers if reader not in served] + going)

    def _decode(self, part: _Part) -> Iterator[Fetched]:
        reader = part.reader
        if not len(part.batches):
            yield Fetched(reader.index, reader.where, no_records(self._wanted, reader.end), reader.end, done=True)
            return
        aborted = part.aborted if self._isolation is Isolation.READ_COMMITTED else []
        unit_bytes = max(self._cluster.config.fetch_bytes // 8 * 7, LARGEST_UNIT_BYTES)
        for records in read_records(part.batches, (part.start, reader.end), self._wanted, aborted, unit_bytes):
            done = records.next_offset >= reader.end
            yield Fetched(reader.index, reader.where, records, records.next_offset, done)

    def _give_up(self, leader: _Leader, readers: Iterable[_Reader], reason: str) -> None:
        """Look the ranges' leaders up anew before asking again."""
        gone = set(readers)
        leader.readers = deque(reader for reader in leader.readers if reader not in gone)
        self._waiting += gone
        self._cluster.forget_leaders({reader.where.topic for reader in gone})
        self._retry.pause(reason)

    def _trouble(self, reader: _Reader, number: int) -> str:
        """Why a partition was not answered, if asking again helps; else the error."""
        code, where = Code.of(number), reader.where
        if code is Code.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(reader)
        if code.denied:
            raise AccessError(f"not allowed to read {where}: {described(number)}")
        if code is Code.CORRUPT_MESSAGE:
            raise CorruptRecordError.of(where, reader.position, "is damaged on the broker's disk")
        if not code.retriable and code is not Code.OTHER:
            raise InputError(f"{where} cannot be read from offset {reader.position}: {described(number)}")
        return f"{where}: {described(number)}"


def _first_answer(leaders: dict[int, _Leader]) -> tuple[_Leader, Answer]:
    """The leader that answered first; of several the one named first."""
    busy = [(leader, leader.answer) for leader in leaders.values() if leader.answer is not None]
    concurrent.futures.wait([answer for _, answer in busy], return_when=concurrent.futures.FIRST_COMPLETED)
    return next((leader, answer) for leader, answer in busy if answer.done())


def _request(readers: list[_Reader], isolation: Isolation, cluster: Cluster, *, wait: bool) -> FetchRequest:
    """One request for all ranges; without `wait` the broker answers at once, as the records asked for exist already."""
    config = cluster.config
    topic_type = FetchRequest.FetchTopic
    topics: list[Any] = []
    for reader in readers:
        if not topics or topics[-1].topic != reader.where.topic:
            topics.append(topic_type(topic=reader.where.topic, partitions=[]))
        topics[-1].partitions.append(
            topic_type.FetchPartition(
                partition=reader.where.partition,
                fetch_offset=reader.position,
                partition_max_bytes=config.partition_fetch_bytes,
                current_leader_epoch=-1,
                last_fetched_epoch=-1,
                log_start_offset=-1,
            )
        )
    return FetchRequest(
        max_wait_ms=config.fetch_wait_ms if wait else 0,
        min_bytes=1,
        max_bytes=config.fetch_bytes,
        isolation_level=isolation.wire,
        session_id=0,
        session_epoch=-1,
        forgotten_topics_data=[],
        rack_id="",
        topics=topics,
        min_version=4,
        max_version=11,
    )
