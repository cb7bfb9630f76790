"""One task's rows as records of an open transaction: flushed, acknowledged, and invisible to read_committed readers.

Rule: a task decides nothing and ends no transaction. Its transactional id is used for this attempt alone, so no other
attempt can fence it; a task without rows begins no transaction. At-least-once: the same without a transaction.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import valid_texts
from keyedwm.core.errors import FencedError, InputError, KeyedwmError, UnavailableError
from keyedwm.core.inline import HEADER
from keyedwm.core.rows import HEADERS, REJECTED
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import UnknownTopicError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.partitioner import STICKY_RUN, partition_of
from keyedwm.kafka.records.record_columns import Layout, lay_out
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.kafka.requests.produce import Sender, new_producer, to_rows
from keyedwm.kafka.requests.transactions import Fate, Transaction, add_partitions, begin, end, fate
from pyspark_wm_sink.batch.reports import TaskReport
from pyspark_wm_sink.batch.source_columns import split_rejected
from pyspark_wm_sink.batch.task import Task, TaskInput
from pyspark_wm_sink.kafka.error_records import error_records
from pyspark_wm_sink.kafka.headers import with_event_times
from pyspark_wm_sink.kafka.record_values import SideWriter, with_records
from pyspark_wm_sink.limits import LIMITS, Limits

RECORD_COLUMNS = ("key", "value", "headers")
_COLUMNS = (*RECORD_COLUMNS, "partition")
_TOPIC = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaStagePlan:
    """How every task of a query writes; pickled to the executors.

    topic: None if the rows name it. stem: the beginning of transactional ids, before the query's id; each batch write
    has its own stem. columns: the frame's columns that are written. has_control, has_offsets: as in TaskInput.
    compares_content: the content of the written rows is summed up. event_times: columns of event times that are written
    as headers. errors_to: the topic of rejected messages, None if they are rows like all others. writers: the writers
    of keys and values with a schema.
    """

    client: ClientConfig = field(repr=False)
    topic: str | None
    stem: str | None
    timeout_ms: int
    transactional: bool
    columns: tuple[str, ...]
    has_control: bool
    has_offsets: bool
    compares_content: bool = False
    event_times: tuple[str, ...] = ()
    errors_to: str | None = None
    writers: tuple[SideWriter, ...] = ()
    limits: Limits = LIMITS

    @property
    def content(self) -> list[str] | None:
        """The columns whose content is summed up."""
        if not self.compares_content:
            return None
        sources = [name for writer in self.writers for name in writer.schema.sources]
        return list(dict.fromkeys([*self.columns, *sources, *([REJECTED] if self.errors_to is not None else [])]))

    def stem_of(self, query: str | None) -> str:
        """Return the beginning of the ids of this query's transactions, which no other query's ids have."""
        return "-".join(part for part in (self.stem, query) if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedRecords(TaskReport):
    """The records that one task wrote; `transaction` is None when there was no row, or under at-least-once.

    topics: the topics of its rows.
    """

    transaction: Transaction | None
    topics: tuple[str, ...] = ()


def stage(plan: KafkaStagePlan, task: Task, batches: Iterable[pa.RecordBatch]) -> StagedRecords:
    """Write the rows of one task; raises InputError for rows that Kafka cannot hold, and UnavailableError."""
    task_input = TaskInput(
        has_control=plan.has_control, has_offsets=plan.has_offsets, group_bytes=plan.limits.kafka_group_bytes,
        content=plan.content, limits=plan.limits,
    )  # fmt: skip
    output = _TaskProducer(plan, task)
    try:
        for _, events in task_input.groups(batches):
            before = task_input.event_rows - events.num_rows
            results, rejected = (events, None) if plan.errors_to is None else split_rejected(events)
            if rejected is not None:
                output.write(error_records(rejected), plan.errors_to)
            if plan.writers:
                results = with_records(results, plan.writers, f"task {task.partition}", before)
            output.write(_record_columns(plan, with_event_times(results, plan.event_times)))
    except BaseException:
        output.abort()
        raise
    return StagedRecords(
        task=task,
        event_rows=task_input.event_rows,
        control=tuple(task_input.control),
        event_tops=task_input.event_tops,
        content=task_input.content,
        null_rows=task_input.null_rows,
        transaction=output.transaction,
        topics=output.topics,
    )


def _record_columns(plan: KafkaStagePlan, events: pa.Table) -> pa.Table:
    """Return the columns that are written, or decide the topic or partition."""
    names = (*plan.columns, *(writer.schema.side for writer in plan.writers), *([HEADERS] if plan.event_times else []))
    return events.select([name for name in events.column_names if name in names])


def explain_fenced(
    cluster: Cluster, transaction: Transaction, timeout_ms: int, error: FencedError
) -> UnavailableError | FencedError:
    """Return the error for a transaction that accepts no rows: that it timed out if the broker has aborted it.

    No other producer uses the ids of our transactions, so a broker that rejects one has nearly always ended it.
    """
    if fate(cluster, transaction) is not Fate.ABORTED:
        return error
    return UnavailableError(
        f"transaction {transaction.transactional_id} was ended by the broker before all its rows were written: "
        f"transactionTimeout is {timeout_ms} ms, it must be longer than a batch takes to write and to commit"
    )


class _TaskProducer:
    """One task's producer; its transaction begins with the first row."""

    def __init__(self, plan: KafkaStagePlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None
        self._partitions: dict[str, int] = {}
        self._added: set[TopicPartition] = set()
        self._keyless_rows = _first_sticky_position(plan, task)
        self.transaction: Transaction | None = None

    def write(self, rows: pa.Table, topic: str | None = None) -> None:
        """Send rows and wait for their acknowledgements; the first rows begin the transaction.

        topic: the topic of all rows, None if the option or the rows name it.
        """
        if not rows.num_rows:
            return
        _check_headers(rows)
        try:
            self._send(rows, topic or self._plan.topic)
        except FencedError as error:
            if self._cluster is None or self.transaction is None:
                raise
            raise explain_fenced(self._cluster, self.transaction, self._plan.timeout_ms, error) from error

    def _send(self, rows: pa.Table, topic_of_all: str | None) -> None:
        cluster, sender = self._started()
        for topic, of_topic in _by_topic(rows, topic_of_all):
            laid = self._by_partition(cluster, topic, of_topic)
            targets = {TopicPartition(topic, partition) for partition in laid}
            if self.transaction is not None and targets - self._added:
                add_partitions(cluster, self.transaction, sorted(targets - self._added))
                self._added |= targets
            sender.send_layout(topic, laid)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that rows were sent to."""
        return tuple(sorted(self._partitions))

    def abort(self) -> None:
        """Abort the transaction of a task that failed: until its time-out it would block read_committed readers."""
        if self._cluster is None or self.transaction is None:
            return
        with suppress(KeyedwmError):  # then the driver's next sweep aborts it, or the broker when it times out
            end(self._cluster, [self.transaction], commit=False)

    def _started(self) -> tuple[Cluster, Sender]:
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

    def _by_partition(self, cluster: Cluster, topic: str, rows: pa.Table) -> dict[int, Layout]:
        """Rows of each partition, in the order in which they came."""
        rows = rows.select([name for name in _COLUMNS if name in rows.column_names]).combine_chunks()
        laid = lay_out(to_rows(rows.select([name for name in rows.column_names if name in RECORD_COLUMNS])))
        numbers = self._partition_of_rows(topic, self._count(cluster, topic), rows)
        if (numbers == numbers[0]).all():
            return {int(numbers[0]): laid}
        order = np.argsort(numbers.astype(np.int16) if numbers.max() < 2**15 else numbers, kind="stable")
        partitions, starts = np.unique(numbers[order], return_index=True)
        spans = zip(partitions, starts, [*starts[1:], len(numbers)], strict=True)
        return {int(partition): laid.select(order[start:end]) for partition, start, end in spans}

    def _partition_of_rows(self, topic: str, count: int, rows: pa.Table) -> NDArray[np.int32]:
        """Return each row's partition: the value of the column, else the partitioner's."""
        keys = rows.column("key").combine_chunks() if "key" in rows.column_names else None
        partitions = rows.column("partition").combine_chunks() if "partition" in rows.column_names else None
        if partitions is not None and not partitions.null_count:
            return _checked(topic, count, partitions.to_numpy())
        numbers = partition_of(keys, rows.num_rows, count, self._keyless_rows)
        self._keyless_rows += rows.num_rows if keys is None else keys.null_count
        if partitions is None:
            return numbers
        asked_numbers = partitions.fill_null(-1).to_numpy()
        missing = partitions.is_null().to_numpy(zero_copy_only=False)
        return np.where(missing, numbers, _checked(topic, count, np.where(missing, 0, asked_numbers))).astype(np.int32)

    def _count(self, cluster: Cluster, topic: str) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = partition_count(cluster, topic)
        return self._partitions[topic]


def _by_topic(rows: pa.Table, topic_of_all: str | None) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each topic: the topic of all rows, or each row's own."""
    if topic_of_all is not None:
        yield topic_of_all, rows
        return
    names = valid_texts(rows.select(["topic"])).column("topic")
    if names.null_count:
        raise InputError(
            f"column topic is null in {names.null_count} rows: name a topic in each row, or set option topic"
        )
    for name in sorted(pc.unique(names).to_pylist()):
        of_topic = pc.equal(names, name)
        if not _TOPIC.fullmatch(name):
            raise InputError(
                f"column topic holds {name!r} in {pc.sum(of_topic).as_py()} rows, which is not a legal topic name: "
                f"letters, digits, '.', '_' and '-' are (249 at most); leave such rows out, or name another topic"
            )
        yield name, rows.filter(of_topic)


def _check_headers(rows: pa.Table) -> None:
    """Reject rows with the header of control records: readers would take them for barriers of this query."""
    if HEADERS not in rows.column_names:
        return
    for headers in rows.column(HEADERS).chunks:
        row_count = pc.sum(pc.equal(pc.struct_field(pc.list_flatten(headers), "key"), HEADER)).as_py()
        if row_count:
            raise InputError(
                f"column headers has the header {HEADER!r} in {row_count} rows: the name is reserved for keyedwm's "
                f"control records; drop or rename the header"
            )


def partition_count(cluster: Cluster, topic: str) -> int:
    """The number of partitions that a topic has; raises InputError if there is no such topic."""
    try:
        return len(cluster.partitions([topic])[topic])
    except UnknownTopicError as error:
        raise InputError(
            f"topic {topic!r}, which the rows go to, does not exist: create it, or fix the option or column topic"
        ) from error


def _checked(topic: str, count: int, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    wrong = numbers[(numbers < 0) | (numbers >= count)]
    if len(wrong):
        raise InputError(
            f"column partition says {int(wrong[0])}, topic {topic!r} has partitions 0 to {count - 1}: give the topic "
            f'as many partitions as the source has, or let keys decide with .drop("partition")'
        )
    return numbers


def _first_sticky_position(plan: KafkaStagePlan, task: Task) -> int:
    """Start with another partition in each task and batch, or small batches would all go to the first partitions.

    A batch write has no number: its own stem is used instead.
    """
    turn = crc32((plan.stem or "").encode()) if task.batch is None else task.batch
    return (turn + task.partition) * STICKY_RUN


def _transactional_id(plan: KafkaStagePlan, task: Task) -> str:
    """Return a unique name of a transaction: query, batch, partition, run, and the attempt within this run."""
    run = (task.run if task.batch is not None else None) or uuid.uuid4().hex
    batch = "batch" if task.batch is None else task.batch
    return f"{plan.stem_of(task.query)}-{batch}-{task.partition}-{run.replace('-', '')[:12]}-{task.number}"
