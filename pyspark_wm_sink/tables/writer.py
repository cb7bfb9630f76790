"""Spark's two writer interfaces to a table.

Rule: a writer holds only the user's options. Spark pickles it to the executors for `write`, and makes a
new one in a fresh process for each `commit` or `abort`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from keyedwm.last_error import leaving_error
from keyedwm.runtime.worker import VersionChecked, freeze_gc
from pyspark_wm_sink.batch.batch_plan import read_plan
from pyspark_wm_sink.batch.reports import query_of, require_all
from pyspark_wm_sink.batch.source_columns import warn_of_null_rows, warn_of_sparks_watermark
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.tables.publication import Publication
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import StagedFiles, stage


class _TableWriter(VersionChecked):
    """The common part of both interfaces."""

    def __init__(self, how: Publication, late_by_spark: tuple[str, ...] = (), checkpoint: str | None = None) -> None:
        """late_by_spark: the columns on which Spark's own watermark is set. checkpoint: the query's, if it is known."""
        self._how = how
        self._late_by_spark = late_by_spark
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:
        """Stage one task's rows (executor)."""
        errors, task = self._how.errors, Task.current()
        with leaving_error(self._checkpoint, task.batch):
            report = stage(self._how.stage, task, iterator, None if errors is None else errors.stage)
        freeze_gc()
        return report

    def _clean(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the staged files, unless a commit may have been requested.

        If every message is present, a commit may still run in another process, after the query was stopped in the
        middle of it; its files stay. If it fails, the files are invisible, and the table's maintenance removes them. A
        commit that rejects its batch has removed them itself.
        """
        reports_present = [message for message in messages if message is not None]
        if len(reports_present) == len(messages):
            return
        reports = require_all(reports_present, StagedFiles)
        _discard(self._how, reports)
        if self._how.errors is not None:
            _discard(self._how.errors, [report.errors for report in reports if report.errors is not None])


def _discard(how: Publication, reports: Sequence[StagedFiles]) -> None:
    how.stage.discard([file.name for report in reports for file in report.files])


class TableStreamWriter(_TableWriter, DataSourceStreamArrowWriter):
    """The streaming sink to a table."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch, or reject it as a whole (driver)."""
        warn_of_sparks_watermark(self._late_by_spark)
        with leaving_error(self._checkpoint, batchId):
            reports = require_all(messages, StagedFiles)
            plan = read_plan(self._checkpoint, query_of(reports), batchId)
            warn_of_null_rows(reports, plan)
            publish(self._how, reports, batch=batchId, plan=plan)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Remove the files that the batch's successful tasks staged (driver)."""
        self._clean(messages)


class TableBatchWriter(_TableWriter, DataSourceArrowWriter):
    """The batch sink to a table."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the write, or reject it as a whole (driver)."""
        publish(self._how, require_all(messages, StagedFiles), batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files that the successful tasks staged (driver)."""
        self._clean(messages)
