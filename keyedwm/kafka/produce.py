"""Writing Arrow columns to partitions: every batch acknowledged by all in-sync replicas, in order and once.

Rule: a producer id and sequences make a repeated batch harmless, so what is retriable is sent again in the same order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from keyedwm.core.errors import FencedError, InputError
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.connection import Answer, Retry, TransientError
from keyedwm.kafka.encode import Batch, Producer, encode
from keyedwm.kafka.errors import AccessError, Code, described
from keyedwm.kafka.layout import Layout, Rows, lay_out
from keyedwm.kafka.values import Codec, TopicPartition

IN_FLIGHT = 5  # of one producer a broker remembers the last five batches of a partition
_ACKS_ALL = -1


def send(
    cluster: Cluster, topic: str, tables: Mapping[int, pa.Table], codec: Codec | None = None
) -> dict[TopicPartition, int]:
    """Write tables to the partitions of a topic; returns the offset after the last record of each.

    Columns, by name: key, value (binary or string), headers, timestamp (a timestamp, or int64 ms); all may be missing
    but one; without timestamp the records carry the time of this call. Codec None is the configured one.
    """
    return Sender(cluster, new_producer(cluster), codec=codec).send(topic, tables)


def new_producer(cluster: Cluster) -> Producer:
    """A producer id of our own, not transactional."""
    retry = Retry(cluster.config, "asking for a producer id")
    while True:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1, max_version=4)
        try:
            answer = cluster.connection.call(None, request)
        except TransientError as error:
            retry.pause(error)
            continue
        code = Code.of(answer.error_code)
        if code is Code.NONE:
            return Producer(answer.producer_id, answer.producer_epoch)
        if not code.retriable:
            raise AccessError(f"not allowed to write: no producer id was given: {described(answer.error_code)}")
        retry.pause(described(answer.error_code))


@dataclass(slots=True, eq=False)
class _Flying:
    """A batch under way, and how to send it again."""

    where: TopicPartition
    batch: Batch
    answer: Answer


class Sender:
    """Writes as one producer; `sequences` is the next one by partition, so that several calls follow each other."""

    def __init__(
        self, cluster: Cluster, producer: Producer, *, codec: Codec | None = None, transactional_id: str | None = None
    ) -> None:
        self._cluster, self._producer, self._transactional_id = cluster, producer, transactional_id
        self._codec = cluster.config.compression if codec is None else codec
        self.sequences: dict[TopicPartition, int] = {}
        self._flying: deque[_Flying] = deque()
        self._ends: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()  # the partitions that have taken a batch

    def send(self, topic: str, tables: Mapping[int, pa.Table]) -> dict[TopicPartition, int]:
        """Write tables to the partitions of a topic and wait for all acknowledgements; see `send` above."""
        return self.send_laid(topic, {p: lay_out(to_rows(table)) for p, table in sorted(tables.items()) if len(table)})

    def send_laid(self, topic: str, laid: Mapping[int, Layout]) -> dict[TopicPartition, int]:
        """Write rows laid out by partition; as `send`."""
        rows = {TopicPartition(topic, p): layout for p, layout in laid.items()}
        retry = Retry(self._cluster.config, f"writing to topic {topic!r}")
        self._ends = {}
        for where, batch in _interleaved({where: self._batches(where, part) for where, part in rows.items()}):
            while len(self._flying) == IN_FLIGHT or self._must_wait(where):
                self._settle(retry)
            self._flying.append(_Flying(where, batch, self._submit(where, batch, retry)))
        while self._flying:
            self._settle(retry)
        return self._ends

    def _must_wait(self, where: TopicPartition) -> bool:
        """Whether the first batch to a partition is still under way: a leader that refused it, because it is not the
        leader yet, would take the second from a producer it has never seen, and then never the first.
        """
        return where not in self._known and any(flying.where == where for flying in self._flying)

    def _batches(self, where: TopicPartition, rows: Layout) -> Iterator[Batch]:
        sequence = self.sequences.get(where, 0)
        for batch in encode(rows, codec=self._codec, producer=self._producer, base_sequence=sequence):
            sequence = (sequence + batch.count) & 0x7FFFFFFF
            self.sequences[where] = sequence
            yield batch

    def _submit(self, where: TopicPartition, batch: Batch, retry: Retry) -> Answer:
        (node,) = self._cluster.leaders([where], retry)
        topic_type = ProduceRequest.TopicProduceData
        part = topic_type.PartitionProduceData(index=where.partition, records=batch.data)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=[topic_type(name=where.topic, partition_data=[part])],
            max_version=11,
        )
        return self._cluster.connection.submit(node, request)

    def _settle(self, retry: Retry) -> None:
        """Wait for the oldest batch; if it must be sent again, so must those of its partition that followed it."""
        oldest = self._flying.popleft()
        trouble = self._outcome(oldest)
        if trouble is None:
            retry.progress()
            return
        followers = [flying for flying in self._flying if flying.where == oldest.where]
        self._flying = deque(flying for flying in self._flying if flying.where != oldest.where)
        for flying in followers:
            self._outcome(flying, following=True)
        for flying in (oldest, *followers):
            while trouble is not None:
                self._cluster.forget_leaders([oldest.where.topic])
                retry.pause(trouble)
                flying.answer = self._submit(flying.where, flying.batch, retry)
                trouble = self._outcome(flying)
            trouble = "sent again after the batch before it"
        retry.progress()

    def _outcome(self, flying: _Flying, *, following: bool = False) -> str | None:
        """None if the batch is written, else why it has to be sent again."""
        try:
            answer = self._cluster.connection.result(flying.answer)
        except TransientError as error:
            return str(error)
        part = answer.responses[0].partition_responses[0]
        code = Code.of(part.error_code)
        if code in {Code.NONE, Code.DUPLICATE_SEQUENCE}:
            self._known.add(flying.where)
            if part.base_offset >= 0:
                self._ends[flying.where] = part.base_offset + flying.batch.count
            return None
        # Whoever follows a failed batch is out of order until that one is there.
        if code.retriable or (following and code is Code.OUT_OF_ORDER_SEQUENCE):
            return described(part.error_code)
        raise _refused(flying, code, part)


def to_rows(table: pa.Table) -> Rows:
    """Records from a table with the columns key, value, headers, timestamp; any other name is refused."""
    unknown = sorted(set(table.column_names) - {"key", "value", "headers", "timestamp"})
    if unknown:
        raise InputError(f"column {unknown[0]} cannot be written to Kafka: key, value, headers and timestamp can")
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return Rows(
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
    sources: Mapping[TopicPartition, Iterator[Batch]],
) -> Iterator[tuple[TopicPartition, Batch]]:
    """One batch of each in turn, so that all leaders work."""
    going = dict(sources)
    while going:
        for where in list(going):
            batch = next(going[where], None)
            if batch is None:
                del going[where]
            else:
                yield where, batch


def _refused(flying: _Flying, code: Code, part: Any) -> Exception:
    where, why = flying.where, described(part.error_code)
    if code.denied:
        return AccessError(f"not allowed to write to {where}: {why}")
    if code in {Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED}:
        return FencedError(f"another producer with the same transactional id writes to {where}: {why}")
    if code is Code.MESSAGE_TOO_LARGE:
        size = len(flying.batch.data)
        return InputError(
            f"{where} does not take a batch of {size} bytes with {flying.batch.count} records: "
            "raise the topic's max.message.bytes, or write smaller records"
        )
    return InputError(f"{where} does not take a batch: {getattr(part, 'error_message', None) or why}")
