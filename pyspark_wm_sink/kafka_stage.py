"""One task's rows as records of an open transaction: flushed, acknowledged, and visible to nobody who reads committed.

Rule: a task decides nothing and ends nothing. Its transactional id is used for this attempt alone, so no other attempt
can touch what it wrote; a task without rows begins no transaction. At-least-once: the same without a transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.kafka.cluster import Cluster, shared
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.errors import UnknownTopicError
from keyedwm.kafka.layout import Layout, lay_out
from keyedwm.kafka.partitioner import STICKY_RUN, partition_of
from keyedwm.kafka.produce import Sender, new_producer, to_rows
from keyedwm.kafka.transactions import Transaction, add_partitions, begin
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_sink.task import Intake, Report, Task

_GROUP_BYTES = 16 << 20
RECORD_COLUMNS = ("key", "value", "headers")
_COLUMNS = (*RECORD_COLUMNS, "partition")


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaPlan:
    """What every task of a query does; travels to the executors.

    topic: None if the rows name it. stem: what transactional ids begin with, before the query's id; a batch write has
    a stem of its own. columns: those of the frame that Kafka's sink reads. has_control, has_offsets: as in Intake.
    """

    client: ClientConfig = field(repr=False)
    topic: str | None
    stem: str | None
    timeout_ms: int
    transactional: bool
    columns: tuple[str, ...]
    has_control: bool
    has_offsets: bool

    def stem_of(self, query: str | None) -> str:
        """Return what the ids of this query's transactions begin with, and no other query's."""
        return "-".join(part for part in (self.stem, query) if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class Written(Report):
    """What one task wrote; `transaction` is None when there was no row, or under at-least-once."""

    transaction: Transaction | None


def write(plan: KafkaPlan, task: Task, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of one task; raises InputError for rows that Kafka does not take, UnavailableError."""
    intake = Intake(has_control=plan.has_control, has_offsets=plan.has_offsets, group_bytes=_GROUP_BYTES)
    output = _Output(plan, task)
    for _, events in intake.groups(batches):
        output.write(events)
    return Written(
        task=task,
        event_rows=intake.event_rows,
        control=tuple(intake.control),
        event_tops=intake.event_tops,
        transaction=output.transaction,
    )


class _Output:
    """One producer, begun with the first row."""

    def __init__(self, plan: KafkaPlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None
        self._partitions: dict[str, int] = {}
        self._added: set[TopicPartition] = set()
        self._bare = _sticky_from(plan, task)
        self.transaction: Transaction | None = None

    def write(self, rows: pa.Table) -> None:
        """Send rows and wait for their acknowledgements; the first ones begin the transaction."""
        if not rows.num_rows:
            return
        cluster, sender = self._begun()
        for topic, of_topic in self._by_topic(rows):
            laid = self._by_partition(cluster, topic, of_topic)
            places = {TopicPartition(topic, partition) for partition in laid}
            if self.transaction is not None and places - self._added:
                add_partitions(cluster, self.transaction, sorted(places - self._added))
                self._added |= places
            sender.send_laid(topic, laid)

    def _begun(self) -> tuple[Cluster, Sender]:
        if self._cluster is None or self._sender is None:
            plan = self._plan
            self._cluster = shared(plan.client)
            if plan.transactional:
                self.transaction = begin(self._cluster, _transactional_id(plan, self._task), plan.timeout_ms)
                self._sender = Sender(
                    self._cluster, self.transaction.producer, transactional_id=self.transaction.transactional_id
                )
            else:
                self._sender = Sender(self._cluster, new_producer(self._cluster))
        return self._cluster, self._sender

    def _by_topic(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Take the option's topic for all rows, or each row's own."""
        if self._plan.topic is not None:
            yield self._plan.topic, rows
            return
        names = rows.column("topic")
        if names.null_count:
            raise InputError(
                f"column topic is null in {names.null_count} rows: name a topic in each row, or set option topic"
            )
        for name in sorted(pc.unique(names).to_pylist()):
            yield name, rows.filter(pc.equal(names, name))

    def _by_partition(self, cluster: Cluster, topic: str, rows: pa.Table) -> dict[int, Layout]:
        """Rows of each partition, in the order in which they came."""
        rows = rows.select([name for name in _COLUMNS if name in self._plan.columns]).combine_chunks()
        laid = lay_out(to_rows(rows.select([name for name in rows.column_names if name in RECORD_COLUMNS])))
        chosen = self._chosen(topic, self._count(cluster, topic), rows)
        if (chosen == chosen[0]).all():
            return {int(chosen[0]): laid}
        order = np.argsort(chosen.astype(np.int16) if chosen.max() < 2**15 else chosen, kind="stable")
        partitions, starts = np.unique(chosen[order], return_index=True)
        spans = zip(partitions, starts, [*starts[1:], len(chosen)], strict=True)
        return {int(partition): laid.take(order[start:end]) for partition, start, end in spans}

    def _chosen(self, topic: str, count: int, rows: pa.Table) -> NDArray[np.int32]:
        """Each row's partition: the column's where it says one, else the partitioner's."""
        keys = rows.column("key").combine_chunks() if "key" in self._plan.columns else None
        given = rows.column("partition").combine_chunks() if "partition" in self._plan.columns else None
        if given is not None and not given.null_count:
            return _checked(topic, count, given.to_numpy())
        chosen = partition_of(keys, rows.num_rows, count, self._bare)
        self._bare += rows.num_rows if keys is None else keys.null_count
        if given is None:
            return chosen
        wanted = given.fill_null(-1).to_numpy()
        missing = given.is_null().to_numpy(zero_copy_only=False)
        return np.where(missing, chosen, _checked(topic, count, np.where(missing, 0, wanted))).astype(np.int32)

    def _count(self, cluster: Cluster, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = partition_count(cluster, topic)
        return self._partitions[topic]


def partition_count(cluster: Cluster, topic: str) -> int:
    """How many partitions a topic has; raises InputError if there is no such topic."""
    try:
        return len(cluster.partitions([topic])[topic])
    except UnknownTopicError as error:
        raise InputError(
            f"topic {topic!r}, which the rows go to, does not exist: create it, or fix the option or column topic"
        ) from error


def _checked(topic: str, count: int, wanted: NDArray[np.int32]) -> NDArray[np.int32]:
    wrong = wanted[(wanted < 0) | (wanted >= count)]
    if len(wrong):
        raise InputError(
            f"column partition says {int(wrong[0])}, topic {topic!r} has partitions 0 to {count - 1}: give the topic "
            f'as many partitions as the source has, or let keys decide with .drop("partition")'
        )
    return wanted


def _sticky_from(plan: KafkaPlan, task: Task) -> int:
    """Begin on another partition in each task and batch, or small batches would all go to the first ones.

    A batch write has no number: its stem, which is its own, takes that place.
    """
    turn = crc32((plan.stem or "").encode()) if task.batch is None else task.batch
    return (turn + task.partition) * STICKY_RUN


def _transactional_id(plan: KafkaPlan, task: Task) -> str:
    """Name a transaction that nobody else names: query, batch, partition, run, and the attempt within this run."""
    run = (task.run if task.batch is not None else None) or uuid.uuid4().hex
    batch = "batch" if task.batch is None else task.batch
    return f"{plan.stem_of(task.query)}-{batch}-{task.partition}-{run.replace('-', '')[:12]}-{task.number}"
