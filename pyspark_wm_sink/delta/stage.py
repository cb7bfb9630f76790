"""Stage one task's rows: Parquet files in the table's directory, not in its log, and a report of them.

Rule: staging decides nothing and publishes nothing. A staged file is visible to no reader of the table until the
driver's commit names it. What a killed task leaves behind stays invisible and is removed by a full VACUUM.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from keyedwm.arrow.hashing import MODULUS, content_sum
from keyedwm.arrow.valid_text import valid_texts
from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.core.rows import CONTROL, REJECTED, channel_name
from pyspark_wm_sink.batch.errors_to import split_rejected
from pyspark_wm_sink.batch.reports import TaskReport
from pyspark_wm_sink.batch.task import Task, TaskInput
from pyspark_wm_sink.delta.library_errors import one_line, shown_cause
from pyspark_wm_sink.delta.partitions import PartitionValues, directory_of, partitions_of
from pyspark_wm_sink.delta.row_rules import NO_RULES, RowRules
from pyspark_wm_sink.delta.stats import columns_with_statistics, float_bounds, stats_json
from pyspark_wm_sink.delta.storage import discard, files_of
from pyspark_wm_sink.delta.written import as_written
from pyspark_wm_sink.limits import LIMITS, Limits

_MAX_OPEN_FILES = 64  # partitions that one task writes at the same time
_COMPRESSION = "zstd"
# Trying again cannot help.
_UNWRITABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaStagePlan:
    """How every task of a query stages; pickled to the executors.

    schema: the columns of the rows as the table has them. partition_by: those of them that partition it.
    has_control: the frame has the `control` column. inline: control rows go into the file. has_offsets: the frame has
    Kafka's topic, partition and offset columns, so that rows behind a barrier can be detected. compares_content: the
    content of what is written is summed up. rules: what the table's columns forbid in a row.
    """

    path: str
    storage: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    has_control: bool
    inline: bool
    has_offsets: bool
    partition_by: tuple[str, ...] = ()
    compares_content: bool = False
    rules: RowRules = NO_RULES
    limits: Limits = LIMITS

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file: a partition's own are in its name in the log, not in the file."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One staged file, its name relative to the table, with what Delta's log records about it."""

    name: str
    size: int
    rows: int
    stats: str
    modified_ms: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFiles(TaskReport):
    """The files that one task staged; no file if it had no row to write.

    begins: the lowest offset of each channel's event rows, in a query's first batch.
    """

    files: tuple[StagedFile, ...]
    errors: StagedFiles | None = None
    begins: Mapping[str, int] = field(default_factory=dict)


def stage(
    plan: DeltaStagePlan, task: Task, batches: Iterable[pa.RecordBatch], errors: DeltaStagePlan | None = None
) -> StagedFiles:
    """Write the rows of one task; raises UnavailableError, or OptionError for a place that cannot be written.

    errors: of the table that rejected messages go to, None where they are rows like all others.
    """
    files = _TaskFiles(plan, task)
    rejected = None if errors is None else _TaskErrors(errors, task)
    content = [name for name in plan.schema.names if name != CONTROL] + ([] if rejected is None else [REJECTED])
    task_input = TaskInput(
        has_control=plan.has_control, has_offsets=plan.has_offsets, group_bytes=plan.limits.delta_group_bytes,
        content=content if plan.compares_content else None, limits=plan.limits,
    )  # fmt: skip
    begins: dict[str, int] = {}
    try:
        for rows, events in task_input.groups(batches):
            if plan.has_offsets and task.batch == 0:
                _update_begins(begins, events)
            written = rows if plan.inline else events
            files.write(written if rejected is None else rejected.take(written))
        staged, of_errors = files.close(), None if rejected is None else rejected.close()
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
        files=staged,
        errors=of_errors,
        begins=begins,
    )


def _update_begins(begins: dict[str, int], events: pa.Table) -> None:
    """Record the lowest offset of each channel's event rows."""
    found = events.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "min")])
    for row in found.to_pylist():
        if None not in row.values():
            channel = channel_name(row["topic"], row["partition"])
            begins[channel] = min(row["offset_min"], begins.get(channel, row["offset_min"]))


def _explained(error: OSError, plan: DeltaStagePlan, errors: DeltaStagePlan | None) -> OptionError | UnavailableError:
    """Return what an error of the file system means; a table of errors lies in the same store."""
    where = plan.path if errors is None else f"{plan.path} or {errors.path}"
    if error.errno in _UNWRITABLE:
        name = "path" if errors is None else "path or errorsTo"
        return OptionError(
            f"option {name}: {where} cannot be written ({error}); it must be a place that this user may write to"
        )
    return UnavailableError(f"the rows of table {where} could not be staged: {one_line(error)}")


class _TaskFiles:
    """The files of one task: one per partition of the table, a new one whenever one is full."""

    def __init__(self, plan: DeltaStagePlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._open: dict[PartitionValues, _ParquetFile] = {}
        self._closed: list[StagedFile] = []

    def write(self, rows: pa.Table) -> None:
        """Append rows, each to the file of its partition."""
        if not rows.num_rows:
            return
        plan = self._plan
        written = as_written(valid_texts(rows), plan.schema, plan.rules, has_offsets=plan.has_offsets)
        for values, of_partition in partitions_of(written, plan.partition_by):
            if values not in self._open and len(self._open) == _MAX_OPEN_FILES:
                self._close(list(self._open))
            if values not in self._open:
                self._open[values] = _ParquetFile(self._plan, self._task, values)
            self._open[values].write(of_partition)
            if self._open[values].size >= plan.limits.delta_file_bytes:
                self._close([values])

    def close(self) -> tuple[StagedFile, ...]:
        """Finish all files; returns every one that was staged."""
        self._close(list(self._open))
        return tuple(self._closed)

    def remove(self) -> None:
        """Delete the files; those that cannot be deleted stay, visible to no reader."""
        with suppress(OSError):
            names = [output.abandon() for output in self._open.values()] + [file.name for file in self._closed]
            discard(self._plan.path, self._plan.storage, names)

    def _close(self, which: list[PartitionValues]) -> None:
        for values in which:
            self._closed.append(self._open[values].close())
            del self._open[values]


class _TaskErrors:
    """The rejected messages of one task: rows of a table of their own."""

    def __init__(self, plan: DeltaStagePlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._files = _TaskFiles(plan, task)
        self._rows = self._content = 0

    def take(self, rows: pa.Table) -> pa.Table:
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


class _ParquetFile:
    """One Parquet file that is being written."""

    def __init__(self, plan: DeltaStagePlan, task: Task, values: PartitionValues) -> None:
        self._plan = plan
        self._values = dict(zip(plan.partition_by, values, strict=True))
        name = f"part-{task.partition:05d}-{uuid.uuid4()}-c000.{_COMPRESSION}.parquet"
        self._name = directory_of(self._values) + name
        self._footer: list[pq.FileMetaData] = []
        self._floats = float_bounds(plan.file_schema)
        self._stream = files_of(plan.path, plan.storage).open_output_stream(self._name)
        self._writer = pq.ParquetWriter(
            self._stream, plan.file_schema, compression=_COMPRESSION, metadata_collector=self._footer,
            write_statistics=columns_with_statistics(plan.file_schema),
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def write(self, rows: pa.Table) -> None:
        """Append rows of this file's partition."""
        written = rows.select(self._plan.file_schema.names)
        for name, seen in self._floats.items():
            seen.take(written.column(name))
        self._writer.write_table(written, row_group_size=self._plan.limits.group_rows)

    def close(self) -> StagedFile:
        """Finish the file; returns what the table's log records about it."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        footer = self._footer[0]
        return StagedFile(
            name=self._name,
            size=size,
            rows=footer.num_rows,
            stats=stats_json(footer, self._plan.file_schema, self._floats),
            modified_ms=time.time_ns() // 1_000_000,
            partition=self._values,
        )

    def abandon(self) -> str:
        """Close the file without finishing it; returns its name."""
        with suppress(OSError):
            self._writer.close()
            self._stream.close()
        return self._name
