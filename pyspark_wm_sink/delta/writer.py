"""Spark's two writer interfaces to a Delta table, and what is refused before a row is written.

Rule: a writer holds the user's options and nothing else. Spark pickles it to the executors for `write`, and makes a
new one in a fresh process for each `commit` or `abort`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from pyspark_wm_sink.batch.errors_to import check_rejected
from pyspark_wm_sink.batch.reports import require_all
from pyspark_wm_sink.batch.source_columns import (
    check_inline,
    has_control,
    has_offsets,
    warn_of_sparks_watermark,
)
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta.columns import table_columns
from pyspark_wm_sink.delta.foreign_files import check_no_foreign_files
from pyspark_wm_sink.delta.partitions import check_columns
from pyspark_wm_sink.delta.publish import DeltaPublication, publish
from pyspark_wm_sink.delta.row_rules import NO_RULES, RowRules, row_rules
from pyspark_wm_sink.delta.stage import DeltaStagePlan, StagedFiles, stage
from pyspark_wm_sink.delta.storage import check_may_write, discard
from pyspark_wm_sink.delta.table import arrow_schema, check_names, check_table, columns_of, delta_schema, open_table
from pyspark_wm_sink.options.sink_options import ControlRows, DeltaTarget, SinkOptions, SnapshotMode


class _DeltaWriter(VersionChecked):
    """The common part of both interfaces."""

    def __init__(self, how: DeltaPublication, late_by_spark: tuple[str, ...] = ()) -> None:
        """late_by_spark: the columns on which Spark's own watermark is set."""
        self._how = how
        self._late_by_spark = late_by_spark

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:
        """Stage one task's rows (executor)."""
        errors = self._how.errors
        staged = stage(self._how.stage, Task.current(), iterator, None if errors is None else errors.stage)
        freeze_gc()
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
        reports = require_all(staged, StagedFiles)
        _discard(self._how, reports)
        if self._how.errors is not None:
            _discard(self._how.errors, [report.errors for report in reports if report.errors is not None])


def _discard(how: DeltaPublication, reports: Sequence[StagedFiles]) -> None:
    discard(how.stage.path, how.stage.storage, [file.name for report in reports for file in report.files])


class DeltaStreamWriter(_DeltaWriter, DataSourceStreamArrowWriter):
    """The streaming sink to Delta."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch, or refuse it as a whole (driver)."""
        warn_of_sparks_watermark(self._late_by_spark)
        publish(self._how, require_all(messages, StagedFiles), batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove what the batch's successful tasks staged (driver)."""
        self._clean(messages)


class DeltaBatchWriter(_DeltaWriter, DataSourceArrowWriter):
    """The batch sink to Delta."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the write, or refuse it as a whole (driver)."""
        publish(self._how, require_all(messages, StagedFiles), batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the successful tasks staged (driver)."""
        self._clean(messages)


def delta_publication(
    chosen: SinkOptions, target: DeltaTarget, mode: SnapshotMode, schema: StructType, *, overwrite: bool, stream: bool
) -> DeltaPublication:
    """Check all that can be known before a row is written; raises OptionError, InputError, UnavailableError."""
    inline = chosen.control_rows is ControlRows.INLINE
    if inline:
        check_inline(schema)
    errors = None
    if target.errors_to is not None:
        errors = _errors_publication(chosen, target, mode, schema, overwrite=overwrite)
        schema = StructType([field for field in schema.fields if field.name != REJECTED])
    columns = table_columns(schema, drop_control=has_control(schema) and not inline)
    place = _checked_place(target, columns, overwrite=overwrite)
    return DeltaPublication(
        stage=DeltaStagePlan(
            path=target.path,
            storage=target.storage,
            schema=place.schema,
            has_control=has_control(schema),
            inline=inline,
            has_offsets=has_offsets(schema),
            partition_by=place.partition_by,
            rules=place.rules,
            compares_content=stream and chosen.compares_content(mode),
        ),
        mode=mode,
        guarantee=chosen.guarantee,
        overwrite=overwrite,
        merge_schema=target.merge_schema,
        is_shared=target.is_shared,
        errors=errors,
    )


def _errors_publication(
    chosen: SinkOptions, target: DeltaTarget, mode: SnapshotMode, schema: StructType, *, overwrite: bool
) -> DeltaPublication:
    """The second table: rejected messages, batch by batch as the results."""
    check_rejected(schema)
    kind = schema[REJECTED].dataType
    if not isinstance(kind, StructType):
        raise InputError(
            f"option errorsTo: column {REJECTED} has type {kind.simpleString()}, the rows of a table are made of the "
            f"struct that aggregate(..., late='emit') gives: leave it as it is"
        )
    if overwrite:
        raise OptionError("option errorsTo: output mode complete replaces the table's rows in each batch; use append")
    errors = replace(target, path=target.errors_to or "", partition_by=None)
    place = _checked_place(errors, table_columns(kind, drop_control=False), overwrite=False)
    return DeltaPublication(
        stage=DeltaStagePlan(
            path=errors.path, storage=errors.storage, schema=place.schema, has_control=False, inline=False,
            has_offsets=False, partition_by=place.partition_by, rules=place.rules,
            compares_content=chosen.compares_content(mode),
        ),
        mode=SnapshotMode.BATCH,
        guarantee=chosen.guarantee,
        overwrite=False,
        merge_schema=target.merge_schema,
        is_shared=target.is_shared,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """How rows are written to a table that is there, or to be made: their columns as it has them, and its rules."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    rules: RowRules = NO_RULES


def _checked_place(target: DeltaTarget, columns: pa.Schema, *, overwrite: bool) -> _Place:
    """Refuse a table that these columns do not fit."""
    table = open_table(target.path, target.storage)
    wanted = delta_schema(columns)
    by = target.partition_by
    if by is None:
        by = () if table is None else tuple(table.metadata().partition_columns)
    partition_by = check_columns(by, columns) if by else ()
    if table is None:
        check_names(wanted)
        check_may_write(target.path)
        check_no_foreign_files(target.path, target.storage)
        return _Place(schema=columns, partition_by=partition_by)
    fitted = check_table(table, wanted, partition_by, merge=target.merge_schema, overwrite=overwrite)
    same = columns_of(fitted.schema) == columns_of(wanted)
    schema = columns if same else arrow_schema(fitted.schema)
    check_columns(partition_by, schema)
    rules = row_rules(table.schema(), schema, partition_by)
    return _Place(schema=schema, partition_by=partition_by, rules=rules)
