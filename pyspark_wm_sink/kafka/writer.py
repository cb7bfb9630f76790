"""Spark's two writer interfaces to Kafka, and the checks that run before a row is written.

Rule: as for Delta, a writer holds only the user's options; the ledger is the only state.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from keyedwm.core.watermark import Guarantee
from keyedwm.kafka.requests.cluster import shared
from keyedwm.kafka.requests.transactions import longest_timeout_ms
from keyedwm.kafka.requests.versions import Use
from keyedwm.last_error import leaving_error
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from pyspark_wm_sink.batch.batch_plan import read_plan
from pyspark_wm_sink.batch.reports import query_of, require_all
from pyspark_wm_sink.batch.source_columns import (
    check_inline,
    check_rejected,
    has_control,
    has_offsets,
    warn_of_null_rows,
    warn_of_sparks_watermark,
)
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.error_records import check_error_column
from pyspark_wm_sink.kafka.headers import event_time_columns
from pyspark_wm_sink.kafka.ledger import Ledger
from pyspark_wm_sink.kafka.publish import KafkaPublication, abort, publish_to_kafka, recover, sweep
from pyspark_wm_sink.kafka.record_values import schema_of_side
from pyspark_wm_sink.kafka.schema_ids import side_writers
from pyspark_wm_sink.kafka.stage import KafkaStagePlan, StagedRecords, partition_count, stage
from pyspark_wm_sink.options.kafka_target import KafkaTarget
from pyspark_wm_sink.options.sink_options import ControlRows, SinkOptions, SnapshotMode
from pyspark_wm_sink.places.ledger_files import SCHEMES
from pyspark_wm_sink.places.notes import application

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_TEXT: tuple[type[DataType], ...] = (StringType, BinaryType)
_COLUMNS: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_TEXT, "string or binary"),
    "value": (_TEXT, "string or binary"),
    "headers": ((ArrayType,), "array<struct<key: string, value: binary>>"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
}


class _KafkaWriter(VersionChecked):
    """The common part of both interfaces."""

    def __init__(
        self, how: KafkaPublication, late_by_spark: tuple[str, ...] = (), checkpoint: str | None = None
    ) -> None:
        """late_by_spark: the columns on which Spark's own watermark is set. checkpoint: the query's, if it is known."""
        self._how = how
        self._late_by_spark = late_by_spark
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRecords:
        """Write one task's rows into its transaction (executor)."""
        task = Task.current()
        with leaving_error(self._checkpoint, task.batch):
            report = stage(self._how.plan, task, iterator)
        freeze_gc()
        return report

    def _clean(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions, unless a commit may have been requested.

        If every message is present, a commit may be under way or decided; the next start carries it out or aborts it.
        """
        present = [message for message in messages if message is not None]
        if len(present) < len(messages):
            open_ones = [s.transaction for s in require_all(present, StagedRecords) if s.transaction is not None]
            abort(shared(self._how.plan.client), open_ones)


class KafkaStreamWriter(_KafkaWriter, DataSourceStreamArrowWriter):
    """The streaming sink to Kafka."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch, or reject it as a whole (driver)."""
        warn_of_sparks_watermark(self._late_by_spark)
        with leaving_error(self._checkpoint, batchId):
            reports = require_all(messages, StagedRecords)
            plan = read_plan(self._checkpoint, query_of(reports), batchId)
            warn_of_null_rows(reports, plan)
            publish_to_kafka(self._how, reports, batch=batchId, plan=plan)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Abort what the batch's successful tasks wrote (driver)."""
        self._clean(messages)


class KafkaBatchWriter(_KafkaWriter, DataSourceArrowWriter):
    """The batch sink to Kafka."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the write, or reject it as a whole (driver)."""
        publish_to_kafka(self._how, require_all(messages, StagedRecords), batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what the tasks wrote (driver), failed ones included."""
        self._clean(messages)
        if None in messages and self._how.plan.transactional:
            sweep(shared(self._how.plan.client), self._how.plan.stem_of(None), ())


def kafka_publication(
    options: SinkOptions, target: KafkaTarget, mode: SnapshotMode, schema: StructType, *, stream: bool
) -> KafkaPublication:
    """Run all checks that need no row; raises OptionError, InputError, UnavailableError."""
    inline = options.control_rows is ControlRows.INLINE
    if inline:
        _check_inline(target, schema, stream=stream)
    elif target.secret is not None:
        raise OptionError("option controlSecret has no effect without controlRows=inline: leave it out, or add that")
    sides = () if target.formats is None else tuple(schema_of_side(side, schema) for side in target.formats.sides)
    _check_columns(target, schema, frozenset(side.side for side in sides))
    if target.errors_to is not None:
        check_rejected(schema)
        check_error_column(schema[REJECTED].dataType)
    exactly_once = options.guarantee is Guarantee.EXACTLY_ONCE
    keeps_ledger = stream and (exactly_once or inline)
    if keeps_ledger and target.ledger is None:
        reason = "exactly-once to Kafka writes its decisions" if exactly_once else "controlRows=inline writes its state"
        raise OptionError(
            f"option ledger is missing: {reason} into a directory; set ledger, or checkpointLocation as an option of "
            f"this write, to a local path or an address of {', '.join(SCHEMES)}"
        )
    cluster = shared(target.client)
    for use in (Use.SINK, Use.EXACTLY_ONCE) if exactly_once else (Use.SINK,):
        cluster.require(use)
        cluster.warn_of_losses(use)
    for topic in (target.topic, target.errors_to):
        if topic is not None:
            partition_count(cluster, topic)
    if exactly_once:
        _check_timeout(target.timeout_ms, longest_timeout_ms(cluster))
    if keeps_ledger:
        _check_checkpoint(target)
    claim = None
    if keeps_ledger and exactly_once and target.ledger is not None:
        claim = recover(cluster, Ledger(target.ledger), owner=application(), prefix=target.id_prefix)
    place = target.ledger if stream and (keeps_ledger or _is_there(target)) else None
    return KafkaPublication(
        plan=KafkaStagePlan(
            client=target.client,
            topic=target.topic,
            stem=target.id_prefix if stream else f"{target.id_prefix or 'keyedwm'}-{uuid.uuid4().hex}",
            timeout_ms=target.timeout_ms,
            transactional=exactly_once,
            columns=tuple(name for name in _COLUMNS if name in schema.fieldNames()),
            has_control=has_control(schema),
            has_offsets=has_offsets(schema),
            compares_content=stream and options.compares_content(mode),
            event_times=event_time_columns(schema) if inline else (),
            errors_to=target.errors_to,
            writers=() if target.formats is None else side_writers(target.formats, sides, place),
        ),
        ledger=target.ledger if keeps_ledger else None,
        mode=mode,
        guarantee=options.guarantee,
        inline=inline,
        secret=target.secret,
        claim=claim,
        is_shared=target.is_shared,
    )


def _is_there(target: KafkaTarget) -> bool:
    """Whether a checkpoint at a path is on this machine: Spark creates it before it starts a writer."""
    return target.checkpoint is None or target.checkpoint.is_dir()


def _check_checkpoint(target: KafkaTarget) -> None:
    """Raise OptionError for a checkpoint that is not on this machine."""
    if not _is_there(target):
        raise OptionError(
            f"option checkpointLocation: {target.checkpoint} is no directory of this machine, so Spark keeps it on its "
            f"default file system (fs.defaultFS), and the ledger belongs beside it: give the whole address, such as "
            f"hdfs://namenode/path, or set ledger"
        )


def _check_inline(target: KafkaTarget, schema: StructType, *, stream: bool) -> None:
    """Reject options under which a reader would lack control rows."""
    if not stream:
        raise OptionError("option controlRows: 'inline' is for streams; a batch write has no control rows")
    if target.topic is None:
        raise OptionError(
            "option controlRows: 'inline' needs the option topic: control rows go to every partition of one topic, "
            "and a topic that first appears in the rows later would lack those before"
        )
    check_inline(schema)


def _check_columns(target: KafkaTarget, schema: StructType, sides: frozenset[str]) -> None:
    """Raise InputError for columns that cannot become records. sides: those with a format, which allows any type."""
    for name in schema.fieldNames():
        if name.lower() in _COLUMNS and name.lower() not in schema.fieldNames():
            raise InputError(f"the rows have a column {name}, Kafka's sink takes {name.lower()}: rename or drop it")
    if "value" not in schema.fieldNames() and "value" not in sides:
        raise InputError("the rows have no column value: records are made of it, and of key, headers and partition")
    if target.topic is None and "topic" not in schema.fieldNames():
        raise OptionError("option topic is missing, and the rows have no column topic: one of them names the topic")
    for name, (kinds, expected) in _COLUMNS.items():
        if name in schema.fieldNames() and name not in sides and not isinstance(schema[name].dataType, kinds):
            type_name = schema[name].dataType.simpleString()
            raise InputError(f"column {name} has type {type_name}, Kafka's sink takes {expected}: cast it")
    if "headers" in schema.fieldNames():
        _check_headers(schema["headers"].dataType)


def _check_headers(kind: DataType) -> None:
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    fields = [(field.name, type(field.dataType)) for field in pair.fields] if isinstance(pair, StructType) else []
    if fields != [("key", StringType), ("value", BinaryType)]:
        raise InputError(
            f"column headers has type {kind.simpleString()}, Kafka's sink takes "
            f"array<struct<key: string, value: binary>>: cast it"
        )


def _check_timeout(timeout_ms: int, longest_ms: int | None) -> None:
    """Raise OptionError for a time-out that brokers do not allow.

    Without the right to describe configs, the broker rejects the first task's transaction instead.
    """
    if longest_ms is not None and timeout_ms > longest_ms:
        raise OptionError(
            f"option transactionTimeout: {timeout_ms} ms is more than the brokers' transaction.max.timeout.ms allows, "
            f"which is {longest_ms} ms: lower it, or raise theirs"
        )
