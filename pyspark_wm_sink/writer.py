"""Spark's two writer interfaces over stage and publish.

Rule: a writer holds what the user decided and nothing else. Spark pickles it to the executors for `write`, and makes a
new one in a fresh process for each `commit` or `abort`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from keyedwm.core.errors import OptionError
from keyedwm.worker import settle_worker
from pyspark_wm_sink.columns import check_inline, has_control, has_offsets
from pyspark_wm_sink.delta_columns import table_columns
from pyspark_wm_sink.kafka_options import KafkaTarget
from pyspark_wm_sink.kafka_writer import KafkaBatchWriter, KafkaStreamWriter, kafka_publication
from pyspark_wm_sink.options import ControlRows, DeltaTarget, SinkOptions, SnapshotMode
from pyspark_wm_sink.partitions import check_columns
from pyspark_wm_sink.publish import Publication, publish
from pyspark_wm_sink.stage import Staged, StagePlan, stage
from pyspark_wm_sink.storage import discard
from pyspark_wm_sink.table import check_table, delta_schema, open_table
from pyspark_wm_sink.task import Task, all_of


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the streaming sink; everything that can be refused before a row is written is refused here.

    overwrite: Spark's complete mode, each batch replaces the table's rows.
    """
    chosen = SinkOptions.parse(options)
    mode = chosen.snapshot or (SnapshotMode.BARRIER if has_control(schema) else SnapshotMode.BATCH)
    if mode is SnapshotMode.BARRIER and not has_control(schema):
        raise OptionError(
            "option snapshot: 'barrier' needs the source's control column, which the rows lack; "
            "keep the column, or set snapshot=batch"
        )
    if isinstance(chosen.target, KafkaTarget):
        return KafkaStreamWriter(kafka_publication(chosen, chosen.target, mode, schema, stream=True))
    return DeltaStreamWriter(_publication(chosen, chosen.target, mode, schema, overwrite=overwrite))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """Return the batch sink; a batch write is one snapshot."""
    chosen = SinkOptions.parse(options)
    if chosen.snapshot is SnapshotMode.BARRIER:
        raise OptionError("option snapshot: 'barrier' is for streams; a batch write is one snapshot: leave it out")
    if isinstance(chosen.target, KafkaTarget):
        if "ledger" in {name.lower() for name in options}:
            raise OptionError("option ledger is for streams; a batch write keeps none: leave it out")
        if overwrite:
            raise OptionError("save mode overwrite: Kafka's records cannot be replaced; use append")
        return KafkaBatchWriter(kafka_publication(chosen, chosen.target, SnapshotMode.BATCH, schema, stream=False))
    return DeltaBatchWriter(_publication(chosen, chosen.target, SnapshotMode.BATCH, schema, overwrite=overwrite))


class _Writer:
    """What both interfaces share."""

    def __init__(self, how: Publication) -> None:
        self._how = how

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage one task's rows (executor)."""
        staged = stage(self._how.stage, Task.current(), iterator)
        settle_worker()
        return staged

    def _clean(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged, if no commit can have been asked for.

        With every message present a commit may still be on its way in another process, when the query was stopped in
        the middle of it; its files stay. Should it not have come through, they are invisible and VACUUM's business;
        a commit that refuses its batch has removed them itself.
        """
        staged = [message for message in messages if message is not None]
        if len(staged) == len(messages):
            return
        how = self._how.stage
        discard(how.path, how.storage, [file.name for message in all_of(staged, Staged) for file in message.files])


class DeltaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The streaming sink to Delta."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch, or refuse it as a whole (driver)."""
        publish(self._how, all_of(messages, Staged), batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove what the batch's successful tasks staged (driver)."""
        self._clean(messages)


class DeltaBatchWriter(_Writer, DataSourceArrowWriter):
    """The batch sink to Delta."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the write, or refuse it as a whole (driver)."""
        publish(self._how, all_of(messages, Staged), batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the successful tasks staged (driver)."""
        self._clean(messages)


def _publication(
    chosen: SinkOptions, target: DeltaTarget, mode: SnapshotMode, schema: StructType, *, overwrite: bool
) -> Publication:
    inline = chosen.control_rows is ControlRows.INLINE
    if inline:
        check_inline(schema)
    columns = table_columns(schema, drop_control=has_control(schema) and not inline)
    table = open_table(target.path, target.storage)
    wanted = delta_schema(columns)
    by = target.partition_by
    if by is None:
        by = () if table is None else tuple(table.metadata().partition_columns)
    partition_by = check_columns(by, columns) if by else ()
    if table is not None:
        check_table(table, wanted, partition_by, merge=target.merge_schema, overwrite=overwrite)
    return Publication(
        stage=StagePlan(
            path=target.path,
            storage=target.storage,
            schema=columns,
            has_control=has_control(schema),
            inline=inline,
            has_offsets=has_offsets(schema),
            partition_by=partition_by,
        ),
        mode=mode,
        guarantee=chosen.guarantee,
        overwrite=overwrite,
        merge_schema=target.merge_schema,
    )
