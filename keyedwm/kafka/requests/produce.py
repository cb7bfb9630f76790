"""Writing Arrow columns to partitions: every batch acknowledged by all in-sync replicas, in order and once.

Rule: a producer id and sequences make a repeated batch harmless, so a retriable batch is sent again in the same order.
Batches are as large as the topic allows; a batch that is still too large is cut in two, with the same sequences.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from keyedwm.core.errors import FencedError, InputError, OutOfTurnError, UnavailableError
from keyedwm.kafka.client.connection import Answer, Retry, TransientError, first_of
from keyedwm.kafka.client.errors import AccessError, Code, described
from keyedwm.kafka.client.values import Codec, TopicPartition
from keyedwm.kafka.records.batches import HEADER_BYTES
from keyedwm.kafka.records.encode import Batch, Producer, encode
from keyedwm.kafka.records.record_columns import Layout, RecordColumns, lay_out
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.versions import VERSIONS

MOST_IN_FLIGHT = 5  # a broker remembers the last five batches of each producer in a partition
_ACKS_ALL = -1
_LAST_SEQUENCE = 0x7FFFFFFF
_TOO_LARGE = "too large for the topic"
_LARGE_BYTES = 1_000_000


def send(
    cluster: Cluster, topic: str, tables: Mapping[int, pa.Table], codec: Codec | None = None
) -> dict[TopicPartition, int]:
    """Write tables to the partitions of a topic; returns the offset after the last record of each.

    Columns, by name: key, value (binary or string), headers, timestamp (a timestamp, or int64 ms); at least one is
    needed. Without timestamp the records have the time of this call. Codec None is the configured codec.
    """
    return Sender(cluster, new_producer(cluster), codec=codec).send(topic, tables)


def new_producer(cluster: Cluster) -> Producer:
    """Return a new producer id, not transactional."""
    retry = Retry(cluster.config, "asking for a producer id")
    while True:
        limits = VERSIONS[Api.INIT_PRODUCER_ID].limits
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1, **limits)
        try:
            answer = cluster.connection.call(None, request)
        except TransientError as error:
            retry.pause(error)
            continue
        then, why = reaction(Api.INIT_PRODUCER_ID, answer.error_code), described(answer.error_code)
        if then is Reaction.ANSWER:
            return Producer(answer.producer_id, answer.producer_epoch)
        if Code.of(answer.error_code).denied:
            raise AccessError(f"not allowed to write: no producer id was given: {why}")
        if then is Reaction.FINAL:
            raise InputError(f"the brokers gave no producer id to write with: {why}")
        retry.pause(why)


@dataclass(slots=True, eq=False)
class _Unacknowledged:
    """A batch without acknowledgement, and its rows; `answer` is None until the batch is sent."""

    tp: TopicPartition
    batch: Batch
    rows: Layout
    sequence: int
    answer: Answer | None = None


class Sender:
    """Writes as one producer. sequences: the next sequence by partition, so that several calls follow each other."""

    def __init__(
        self, cluster: Cluster, producer: Producer, *, codec: Codec | None = None, transactional_id: str | None = None
    ) -> None:
        self._cluster, self._producer, self._transactional_id = cluster, producer, transactional_id
        self._codec = cluster.config.compression if codec is None else codec
        self.sequences: dict[TopicPartition, int] = {}
        self._in_flight: deque[_Unacknowledged] = deque()
        self._ends: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()  # the partitions that have accepted a batch
        self._batch_bytes: dict[str, int] = {}

    def send(self, topic: str, tables: Mapping[int, pa.Table]) -> dict[TopicPartition, int]:
        """Write tables to the partitions of a topic and wait for all acknowledgements; see `send` above."""
        return self.send_layout(
            topic, {p: lay_out(to_rows(table)) for p, table in sorted(tables.items()) if len(table)}
        )

    def send_layout(self, topic: str, laid: Mapping[int, Layout]) -> dict[TopicPartition, int]:
        """Write rows laid out by partition; as `send`."""
        rows = {TopicPartition(topic, p): layout for p, layout in laid.items()}
        retry = Retry(self._cluster.config, f"writing to topic {topic!r}")
        self._ends = {}
        for one in _interleaved({tp: self._batches(tp, part) for tp, part in rows.items()}):
            while len(self._in_flight) == MOST_IN_FLIGHT or self._must_wait(one.tp):
                self._await_ack(retry)
            self._submit(one, retry)
            self._in_flight.append(one)
        while self._in_flight:
            self._await_ack(retry)
        return self._ends

    def _must_wait(self, tp: TopicPartition) -> bool:
        """Return whether the first batch to a partition is still under way.

        A new leader may reject the first batch, because it is not the leader yet. It would then accept the second
        batch, from a producer that it does not know, and never the first.
        """
        return tp not in self._known and any(one.tp == tp for one in self._in_flight)

    def _batches(self, tp: TopicPartition, rows: Layout) -> Iterator[_Unacknowledged]:
        limit = self._limit_bytes(tp.topic)
        for one in self._encoded(tp, rows, self.sequences.get(tp, 0), limit):
            self.sequences[tp] = (one.sequence + one.batch.count) & _LAST_SEQUENCE
            yield one

    def _encoded(self, tp: TopicPartition, rows: Layout, sequence: int, batch_bytes: int) -> Iterator[_Unacknowledged]:
        done = 0
        batches = encode(
            rows, codec=self._codec, producer=self._producer, base_sequence=sequence, batch_bytes=batch_bytes
        )
        for batch in batches:
            part = rows if batch.count == len(rows.timestamp_ms) else rows.span(done, done + batch.count)
            yield _Unacknowledged(tp, batch, part, (sequence + done) & _LAST_SEQUENCE)
            done += batch.count

    def _limit_bytes(self, topic: str) -> int:
        """Return the most bytes of a batch before compression: the topic's limit, or the configured size below it."""
        if topic not in self._batch_bytes:
            most = self._cluster.largest_batch_bytes(topic)
            default = self._cluster.config.limits.batch_bytes
            limit = default if most is None else max(most - HEADER_BYTES, 1)
            configured = self._cluster.config.batch_bytes
            self._batch_bytes[topic] = min(limit, default if configured is None else configured)
        return self._batch_bytes[topic]

    def _submit(self, one: _Unacknowledged, retry: Retry) -> None:
        (node,) = self._cluster.leaders([one.tp], retry)
        topic_type = ProduceRequest.TopicProduceData
        part = topic_type.PartitionProduceData(index=one.tp.partition, records=one.batch.data)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=[topic_type(name=one.tp.topic, partition_data=[part])],
            **VERSIONS[Api.PRODUCE].limits,
        )
        one.answer = self._cluster.connection.submit(node, request)

    def _await_ack(self, retry: Retry) -> None:
        """Wait for the oldest batch; if it must be sent again, the later batches of its partition must be, too."""
        oldest = self._in_flight.popleft()
        failure = self._outcome(oldest)
        if failure is None:
            retry.progress()
            return
        followers = [one for one in self._in_flight if one.tp == oldest.tp]
        self._in_flight = deque(one for one in self._in_flight if one.tp != oldest.tp)
        for one in followers:
            self._outcome(one, following=True)
        self._send_again(deque([oldest, *followers]), failure, retry)
        retry.progress()

    def _send_again(self, unwritten: deque[_Unacknowledged], failure: str | None, retry: Retry) -> None:
        """Write the batches of one partition one after the other. failure: why the first batch must be sent again."""
        while unwritten:
            one = unwritten.popleft()
            while failure is not None and failure is not _TOO_LARGE:
                self._cluster.forget_leaders([one.tp.topic])
                retry.pause(failure)
                failure = self._sent_and_answered(one, retry)
            if failure is _TOO_LARGE:
                unwritten.extendleft(reversed(self._halves(one)))
            if unwritten:
                failure = self._sent_and_answered(unwritten[0], retry)

    def _sent_and_answered(self, one: _Unacknowledged, retry: Retry) -> str | None:
        self._submit(one, retry)
        return self._outcome(one)

    def _halves(self, one: _Unacknowledged) -> list[_Unacknowledged]:
        """Return a batch that is too large as two or more batches, and later batches no larger than these."""
        limit = max(one.rows.payload_bytes // 2, 1)
        self._batch_bytes[one.tp.topic] = min(limit, self._limit_bytes(one.tp.topic))
        middle = one.batch.count // 2
        first, last = one.rows.span(0, middle), one.rows.span(middle, one.batch.count)
        halves = ((first, one.sequence), (last, (one.sequence + middle) & _LAST_SEQUENCE))
        most = self._cluster.config.limits.batch_bytes
        return [part for rows, sequence in halves for part in self._encoded(one.tp, rows, sequence, most)]

    def _outcome(self, one: _Unacknowledged, *, following: bool = False) -> str | None:
        """Return None if the batch is written, _TOO_LARGE if it must be cut, else why it must be sent again."""
        if one.answer is None:
            raise OutOfTurnError("a batch that was not sent has no answer")
        try:
            answer = self._cluster.connection.result(one.answer)
            topic = first_of(answer.responses, "topic", name=one.tp.topic)
            part = first_of(topic.partition_responses, f"partition of {one.tp.topic}", index=one.tp.partition)
        except TransientError as error:
            return f"{error}{_size_sentence(len(one.batch.data))}"
        code, then = Code.of(part.error_code), reaction(Api.PRODUCE, part.error_code)
        if then is Reaction.ANSWER:
            self._known.add(one.tp)
            if part.base_offset >= 0:
                self._ends[one.tp] = part.base_offset + one.batch.count
            return None
        if code in {Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE} and (one.batch.count > 1 or following):
            return _TOO_LARGE
        # The batches after a failed batch are out of order until the failed batch is written.
        if then.repeats or (following and code is Code.OUT_OF_ORDER_SEQUENCE):
            return described(part.error_code)
        raise _refused(one, code, part, self._codec)


def _size_sentence(size: int) -> str:
    """Return a clause with the size of a large unanswered batch: Event Hubs closes the connection for these."""
    return "" if size < _LARGE_BYTES else f"; the batch has {size} bytes, and a server with a limit of 1 MiB rejects so"


def to_rows(table: pa.Table) -> RecordColumns:
    """Return records from a table with the columns key, value, headers, timestamp; another name is an error."""
    unknown = sorted(set(table.column_names) - {"key", "value", "headers", "timestamp"})
    if unknown:
        raise InputError(f"column {unknown[0]} cannot be written to Kafka: key, value, headers and timestamp can")
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return RecordColumns(
        _milliseconds(columns.get("timestamp"), len(table)),
        value=columns.get("value"),
        key=columns.get("key"),
        headers=columns.get("headers"),
    )


def _milliseconds(column: pa.Array | None, rows: int) -> np.ndarray:
    if column is None:
        return np.full(rows, time.time_ns() // 1_000_000, np.int64)
    if column.null_count:
        raise InputError("column timestamp has nulls: every Kafka record needs a timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64()).to_numpy()


def _interleaved(
    sources: Mapping[TopicPartition, Iterator[_Unacknowledged]],
) -> Iterator[_Unacknowledged]:
    """Yield one batch of each source in turn, so that all leaders work."""
    going = dict(sources)
    while going:
        for tp in list(going):
            batch = next(going[tp], None)
            if batch is None:
                del going[tp]
            else:
                yield batch


def _refused(unacknowledged: _Unacknowledged, code: Code, part: Any, codec: Codec) -> Exception:
    tp, why = unacknowledged.tp, described(part.error_code)
    if code.denied:
        return AccessError(f"not allowed to write to {tp}: {why}")
    if code in {Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED}:
        return FencedError(f"another producer with the same transactional id writes to {tp}: {why}")
    if code in {Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE}:
        return UnavailableError(
            f"the transaction that writes to {tp} was ended before all its rows were written: {why}"
        )
    if code in {Code.OUT_OF_ORDER_SEQUENCE, Code.UNKNOWN_PRODUCER_ID}:
        return UnavailableError(
            f"the leader of {tp} no longer remembers which batches it has of this producer, as after a restart: {why}"
        )
    if codec is not Codec.NONE and code in {Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, Code.UNSUPPORTED_COMPRESSION_TYPE}:
        return InputError(
            f"{tp} rejected a batch that is compressed with {codec.name.lower()}: set kafka.compression.type to gzip "
            f"or none ({why})"
        )
    return _refused_records(unacknowledged, code, getattr(part, "error_message", None) or why)


def _refused_records(unacknowledged: _Unacknowledged, code: Code, why: str) -> Exception:
    """Return the error for records that no broker would accept."""
    tp = unacknowledged.tp
    if code in {Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE}:
        size = len(unacknowledged.batch.data)
        return InputError(
            f"{tp} rejected a batch of {size} bytes with {unacknowledged.batch.count} records: "
            "raise the topic's max.message.bytes, or write smaller records"
        )
    if code is Code.INVALID_TIMESTAMP:
        now = datetime.fromtimestamp(time.time_ns() // 1_000_000_000, timezone.utc)
        return UnavailableError(
            f"{tp} rejected records for their time, which is that of the host that writes them: the clock of "
            f"{socket.gethostname()} reads {now:%Y-%m-%d %H:%M:%S} UTC; set it right, or raise the topic's "
            f"message.timestamp.after.max.ms (or .before.max.ms)"
        )
    return InputError(f"{tp} rejected a batch: {why}")
