"""The publication of a query to a Delta table: the checks before a row is written, and the table as a commit needs it.

Rule: a commit carries (query, batch) as an application transaction, and deltalake rejects the commit if another one has
changed the same query's transaction meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from keyedwm.core.errors import UnavailableError
from pyspark_wm_sink.batch.record import Record
from pyspark_wm_sink.delta import table as delta
from pyspark_wm_sink.delta.features import row_rules
from pyspark_wm_sink.delta.foreign_files import check_no_foreign_files
from pyspark_wm_sink.delta.library_errors import is_refusal
from pyspark_wm_sink.delta.partitions import check_columns
from pyspark_wm_sink.delta.stage import DeltaFile, DeltaStagePlan
from pyspark_wm_sink.delta.stats import indexed_columns
from pyspark_wm_sink.delta.storage import check_may_write
from pyspark_wm_sink.options.sink_options import DeltaTarget, SinkOptions
from pyspark_wm_sink.tables.library_errors import one_line, shown_cause
from pyspark_wm_sink.tables.publication import CurrentTable, Publication, TableMessages
from pyspark_wm_sink.tables.row_rules import NO_RULES
from pyspark_wm_sink.tables.rows import TableRows
from pyspark_wm_sink.tables.stage import StagedFile

_MESSAGES = TableMessages(
    kind="Delta table",
    place="the option path",
    restored="restored to an older version, or to a point in time,",
    undo="restore the version before that RESTORE",
    forgotten="forgets transactions (delta.setTransactionRetentionDuration)",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaPublication(Publication):
    """A Delta table; merge_schema: columns that it lacks are added."""

    stage: DeltaStagePlan
    merge_schema: bool = False

    conflicts: ClassVar = (CommitFailedError,)
    failures: ClassVar = (DeltaError, OSError)
    messages: ClassVar = _MESSAGES

    def open(self) -> CurrentDelta | None:
        """Read the newest version."""
        table = delta.open_table(self.stage.path, self.stage.storage)
        return None if table is None else CurrentDelta(self, table)

    def created(self) -> CurrentDelta | None:
        """Create the table and open it."""
        stage = self.stage
        schema = delta.delta_schema(stage.schema)
        try:
            delta.create(stage.path, stage.storage, schema, stage.partition_by)
        except (DeltaError, OSError) as error:
            if delta.open_table(stage.path, stage.storage) is None:
                raise UnavailableError(
                    f"the Delta table {stage.path} could not be created: {one_line(error)}"
                ) from shown_cause(error)
            return None
        return self.open()

    def is_refusal(self, error: Exception) -> bool:
        """Whether deltalake rejects the commit because of the table itself."""
        return is_refusal(error)


class CurrentDelta(CurrentTable):
    """One version of a Delta table."""

    def __init__(self, how: DeltaPublication, table: DeltaTable) -> None:
        super().__init__(f"the Delta table {how.stage.path}", table.version(), delta.DeltaLog(table))
        self._how, self._table = how, table

    def check_fits(self) -> str | None:
        """Reject rows that do not fit; says whether columns or constraints changed."""
        how, stage = self._how, self._how.stage
        rows_schema = delta.delta_schema(stage.schema)
        fitted = delta.check_table(
            self._table, rows_schema, stage.partition_by, merge=how.merge_schema, overwrite=how.overwrite
        )
        rules = row_rules(self._table.schema(), stage.schema, stage.partition_by)
        if delta.columns_of(fitted) != delta.columns_of(rows_schema) or rules != stage.rules:
            return f"the columns of {self.where} or their constraints"
        return None

    def add_missing(self) -> bool:
        """Add the columns, and fields of structs, that the table lacks."""
        schema = delta.delta_schema(self._how.stage.schema)
        return self._how.merge_schema and delta.add_missing(self._table, schema)

    def append(self, files: Sequence[StagedFile], record: Record) -> None:
        """Publish in one commit of the log."""
        delta_files = [file for file in files if isinstance(file, DeltaFile)]
        delta.append(self._table, delta_files, record, overwrite=self._how.overwrite)


def delta_publication(
    options: SinkOptions, target: DeltaTarget, rows: TableRows, *, overwrite: bool, errors: DeltaPublication | None
) -> DeltaPublication:
    """Return the publication of rows to a table that they fit; see `tables.rows.with_errors`."""
    return DeltaPublication(
        stage=_stage_plan(target, rows, overwrite=overwrite),
        mode=rows.mode,
        guarantee=options.guarantee,
        overwrite=overwrite,
        merge_schema=target.merge_schema,
        is_shared=target.is_shared,
        errors=errors,
    )


def _stage_plan(target: DeltaTarget, rows: TableRows, *, overwrite: bool) -> DeltaStagePlan:
    """Return how rows are written to an existing or new table; reject a table that they do not fit."""
    columns = schema = every = rows.columns("a Delta table")
    table = delta.open_table(target.path, target.storage)
    rows_schema = delta.delta_schema(columns)
    by = target.partition_by
    if by is None:
        by = () if table is None else tuple(table.metadata().partition_columns)
    partition_by = check_columns(by, columns) if by else ()
    rules, settings = NO_RULES, {}
    if table is None:
        delta.check_names(rows_schema)
        check_may_write(target.path)
        check_no_foreign_files(target.path, target.storage)
    else:
        fitted = delta.check_table(table, rows_schema, partition_by, merge=target.merge_schema, overwrite=overwrite)
        if delta.columns_of(fitted) != delta.columns_of(rows_schema):
            schema = delta.arrow_schema(fitted)
        check_columns(partition_by, schema)
        rules, settings = row_rules(table.schema(), schema, partition_by), table.metadata().configuration
        there = delta.arrow_schema(table.schema())  # mergeSchema adds the others
        every = pa.schema([*there, *(field for field in schema if field.name not in there.names)])
    return DeltaStagePlan(
        path=target.path,
        storage=target.storage,
        schema=schema,
        has_control=rows.has_control,
        inline=rows.inline,
        has_offsets=rows.has_offsets,
        partition_by=partition_by,
        indexed=indexed_columns(every, partition_by, settings),
        rules=rules,
        compares_content=rows.compares_content,
    )
