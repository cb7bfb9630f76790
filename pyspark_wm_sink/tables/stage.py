"""Stage one task's rows: Parquet files that no log of the table names, and a report of them.

Rule: staging decides nothing and publishes nothing. A staged file is visible to no reader of the table until the
driver's commit names it. A file that a killed task leaves behind stays invisible.
"""

from __future__ import annotations

import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from keyedwm.arrow.columns import valid_texts
from keyedwm.arrow.hashing import MODULUS, content_sum
from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.core.rows import CONTROL, REJECTED, channel_name
from pyspark_wm_sink.batch.reports import TaskReport
from pyspark_wm_sink.batch.source_columns import split_rejected
from pyspark_wm_sink.batch.task import Task, TaskInput
from pyspark_wm_sink.limits import LIMITS, Limits
from pyspark_wm_sink.tables.library_errors import one_line, shown_cause
from pyspark_wm_sink.tables.row_rules import NO_RULES, RowRules
from pyspark_wm_sink.tables.row_values import as_written

_MAX_OPEN_FILES = 64  # partitions that one task writes at the same time
# Trying again cannot help.
_UNWRITABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})
# Words of file systems and of S3.
_TOO_LONG = re.compile("File name too long|KeyTooLong")


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One staged file: its name, which is unique, bytes and rows."""

    name: str
    size: int
    rows: int


class OpenFile(ABC):
    """One Parquet file that is being written."""

    def __init__(self, name: str, stream: Any, schema: pa.Schema, group_rows: int, **how: Any) -> None:
        """Begin the file. name: as in reports. group_rows: the most rows of a row group. how: options of the writer."""
        self._name, self._stream, self._group_rows = name, stream, group_rows
        statistics = columns_with_statistics(schema)
        self._writer = pq.ParquetWriter(stream, schema, write_statistics=statistics, **how)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Append rows of this file's partition."""
        self._writer.write_table(rows, row_group_size=self._group_rows)

    def close(self) -> StagedFile:
        """Finish the file; returns what the table's log records about it."""
        self._writer.close()
        size = self.size
        self._stream.close()
        return self._report(size, self._writer.writer.metadata)

    @abstractmethod
    def _report(self, size: int, footer: pq.FileMetaData) -> StagedFile:
        """Return what the table's log records about the finished file. size: its bytes."""

    def abandon(self) -> str:
        """Close the file without finishing it; returns its name."""
        with suppress(OSError):
            self._writer.close()
            self._stream.close()
        return self._name


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan(ABC):
    """How every task of a query stages; pickled to the executors. Each format of tables has its own.

    schema: the columns of the rows as the table has them. has_control: the frame has the `control` column. inline:
    control rows go into the file. has_offsets: the frame has Kafka's topic, partition and offset columns, so that rows
    behind a barrier can be detected. compares_content: the content of the written rows is summed up. rules: the rules
    of the table's columns for a row.
    """

    schema: pa.Schema
    has_control: bool
    inline: bool
    has_offsets: bool
    compares_content: bool = False
    rules: RowRules = NO_RULES
    limits: Limits = LIMITS

    @property
    @abstractmethod
    def place(self) -> str:
        """The table as messages name it."""

    @property
    @abstractmethod
    def options(self) -> tuple[str, str]:
        """The options that name the table's place, and those that name the places of both tables, for messages."""

    @property
    @abstractmethod
    def local_directory(self) -> Path | None:
        """The directory of this machine that holds the table; None if it is on no local path."""

    def local_path(self, name: str) -> Path | None:
        """The path of a staged file on this machine; None if it is on no local path."""
        return None if self.local_directory is None else self.local_directory / name

    @abstractmethod
    def partitions_of(self, rows: pa.Table) -> Iterator[tuple[Hashable, pa.Table]]:
        """Yield the rows of each partition of the table, in the order in which they came."""

    @abstractmethod
    def new_file(self, task: Task, partition: Any) -> OpenFile:
        """Begin a file for rows of one partition."""

    @abstractmethod
    def discard(self, names: Iterable[str]) -> None:
        """Remove files that no commit names, now or later; ignore missing files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFiles(TaskReport):
    """The files that one task staged; no file if it had no row to write.

    begins: the lowest offset of each channel's event rows, in a query's first batch.
    """

    files: tuple[StagedFile, ...]
    errors: StagedFiles | None = None
    begins: Mapping[str, int] = field(default_factory=dict)


def stage(
    plan: StagePlan, task: Task, batches: Iterable[pa.RecordBatch], errors: StagePlan | None = None
) -> StagedFiles:
    """Write the rows of one task; raises UnavailableError, or OptionError for a place that cannot be written.

    errors: the plan of the table of rejected messages, None if they are rows like all others.
    """
    files = _TaskFiles(plan, task)
    rejected = None if errors is None else _TaskErrors(errors, task)
    content = [name for name in plan.schema.names if name != CONTROL] + ([] if rejected is None else [REJECTED])
    task_input = TaskInput(
        has_control=plan.has_control, has_offsets=plan.has_offsets, group_bytes=plan.limits.table_group_bytes,
        content=content if plan.compares_content else None, limits=plan.limits,
    )  # fmt: skip
    begins: dict[str, int] = {}
    try:
        for rows, events in task_input.groups(batches):
            if plan.has_offsets and task.batch == 0:
                _update_begins(begins, events)
            rows_to_write = rows if plan.inline else events
            files.write(rows_to_write if rejected is None else rejected.split_off(rows_to_write))
        files_written, of_errors = files.close(), None if rejected is None else rejected.close()
    except BaseException as error:
        files.remove()
        if rejected is not None:
            rejected.remove()
        if isinstance(error, OSError):
            raise _explained(error, plan, errors) from shown_cause(error)
        raise
    return StagedFiles(
        task=task,
        event_rows=task_input.event_rows - (0 if of_errors is None else of_errors.event_rows),
        control=tuple(task_input.control),
        event_tops=task_input.event_tops,
        content=task_input.content,
        null_rows=task_input.null_rows,
        files=files_written,
        errors=of_errors,
        begins=begins,
    )


def _update_begins(begins: dict[str, int], events: pa.Table) -> None:
    """Record the lowest offset of each channel's event rows."""
    lowest = events.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
    for row in lowest.to_pylist():
        if None not in row.values():
            channel = channel_name(row["topic"], row["partition"])
            begins[channel] = min(row["offset_min"], begins.get(channel, row["offset_min"]))


def _explained(error: OSError, plan: StagePlan, errors: StagePlan | None) -> OptionError | UnavailableError:
    """Return our error for an error of the file system; a table of errors is in the same store."""
    where = plan.place if errors is None else f"{plan.place} or {errors.place}"
    if error.errno in _UNWRITABLE:
        name = plan.options[errors is not None]
        return OptionError(
            f"option {name}: {where} cannot be written ({error}); it must be a place that this user may write to"
        )
    if _TOO_LONG.search(str(error)):
        return OptionError(
            f"option {plan.options[errors is not None]}: a file of {where} has a name that is too long for its store "
            f"({one_line(error)}): partition the table by shorter values or fewer columns, or name a shorter place"
        )
    return UnavailableError(f"the rows of table {where} could not be staged: {one_line(error)}")


class _TaskFiles:
    """The files of one task: one per partition of the table, and the next one when a file is full."""

    def __init__(self, plan: StagePlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._open: dict[str, OpenFile] = {}  # by the partition in words: -0.0 is not 0.0, and NaN is NaN
        self._closed: list[StagedFile] = []

    def write(self, rows: pa.Table) -> None:
        """Append rows, each to the file of its partition."""
        if not rows.num_rows:
            return
        plan = self._plan
        table_rows = as_written(valid_texts(rows), plan.schema, plan.rules, has_offsets=plan.has_offsets)
        for partition, of_partition in plan.partitions_of(table_rows):
            which = repr(partition)
            if which not in self._open and len(self._open) == _MAX_OPEN_FILES:
                self._close(list(self._open))
            if which not in self._open:
                self._open[which] = plan.new_file(self._task, partition)
            self._open[which].write(of_partition)
            if self._open[which].size >= plan.limits.table_file_bytes:
                self._close([which])

    def close(self) -> tuple[StagedFile, ...]:
        """Finish all files; returns every one that was staged."""
        self._close(list(self._open))
        return tuple(self._closed)

    def remove(self) -> None:
        """Delete the files; those that cannot be deleted stay, visible to no reader."""
        with suppress(OSError):
            names = [output.abandon() for output in self._open.values()] + [file.name for file in self._closed]
            self._plan.discard(names)

    def _close(self, which: list[str]) -> None:
        for partition in which:
            self._closed.append(self._open[partition].close())
            del self._open[partition]


class _TaskErrors:
    """The rejected messages of one task: rows of a separate table."""

    def __init__(self, plan: StagePlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._files = _TaskFiles(plan, task)
        self._rows = self._content = 0

    def split_off(self, rows: pa.Table) -> pa.Table:
        """Write the messages among the rows; returns the other rows."""
        results, rejected = split_rejected(rows)
        if rejected.num_rows:
            messages = pa.Table.from_struct_array(rejected.column(REJECTED))
            self._rows += messages.num_rows
            if self._plan.compares_content:
                self._content = (self._content + content_sum(messages.select(self._plan.schema.names))) % MODULUS
            self._files.write(messages)
        return results

    def close(self) -> StagedFiles:
        """Finish the files; returns the report for the table of errors, which has no control rows."""
        content = self._content if self._plan.compares_content else None
        return StagedFiles(
            task=self._task, event_rows=self._rows, control=(), event_tops={}, content=content,
            files=self._files.close(),
        )  # fmt: skip

    def remove(self) -> None:
        """Delete the files."""
        self._files.remove()


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns with statistics in the Parquet file: all but floats, at any depth.

    Parquet's bounds of floats ignore NaN, the largest number for Spark: with such bounds Spark would skip a row group
    with NaN.
    """
    empty = pa.BufferOutputStream()
    pq.write_metadata(schema, empty)
    columns = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    every = [columns.column(i) for i in range(len(columns))]
    floats = {column.path for column in every if column.physical_type in {"FLOAT", "DOUBLE"}}
    return [column.path for column in every if column.path not in floats]  # a.b may be a column and a field of a
