"""Stage one task's rows: a Parquet file next to the table, not in its log, and a message that says what is in it.

Rule: staging decides nothing and publishes nothing. A staged file is visible to no reader of the table until the
driver's commit names it. What a killed task leaves behind stays invisible for ever and is VACUUM's business.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from keyedwm.core.errors import UnavailableError
from pyspark_wm_sink.partitions import PartitionValues, directory_of, partitions_of
from pyspark_wm_sink.stats import stats_json
from pyspark_wm_sink.storage import discard, files_of
from pyspark_wm_sink.task import Intake, Report, Task

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_FILE_BYTES = 128 << 20  # large enough that compaction has nothing to do, small enough that a reader can share it out
_MOST_OPEN = 64  # partitions of one task that are written at the same time
_COMPRESSION = "zstd"


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    """What every task of a query does; travels to the executors.

    schema: the columns of the rows as the table has them. partition_by: those of them that partition it.
    has_control: the frame has the `control` column. inline: control rows go into the file. has_offsets: the frame has
    Kafka's topic, partition and offset columns, so the cut can be proven.
    """

    path: str
    storage: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    has_control: bool
    inline: bool
    has_offsets: bool
    partition_by: tuple[str, ...] = ()

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file: a partition's own are in its name in the log, not in the file."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One staged file, its name relative to the table, with what Delta wants to know about it."""

    name: str
    size: int
    rows: int
    stats: str
    modified_ms: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged(Report):
    """What one task staged; no file if it had no row to write."""

    files: tuple[StagedFile, ...]


def stage(plan: StagePlan, task: Task, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Write the rows of one task; raises UnavailableError when the storage refuses them."""
    intake = Intake(has_control=plan.has_control, has_offsets=plan.has_offsets, group_bytes=_GROUP_BYTES)
    output = _Files(plan, task)
    try:
        for rows, events in intake.groups(batches):
            output.write(rows if plan.inline else events)
        files = output.close()
    except OSError as error:
        output.remove()
        raise UnavailableError(f"the rows of table {plan.path} could not be staged: {error}") from error
    except BaseException:
        output.remove()
        raise
    return Staged(
        task=task,
        event_rows=intake.event_rows,
        control=tuple(intake.control),
        event_tops=intake.event_tops,
        files=files,
    )


class _Files:
    """The files of one task: one per partition of the table, a new one whenever one is full."""

    def __init__(self, plan: StagePlan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._open: dict[PartitionValues, _Output] = {}
        self._closed: list[StagedFile] = []

    def write(self, rows: pa.Table) -> None:
        """Append rows, each to the file of its partition."""
        if not rows.num_rows:
            return
        for values, of_partition in partitions_of(rows, self._plan.partition_by):
            if values not in self._open and len(self._open) == _MOST_OPEN:
                self._close(list(self._open))
            if values not in self._open:
                self._open[values] = _Output(self._plan, self._task, values)
            self._open[values].write(of_partition)
            if self._open[values].size >= _FILE_BYTES:
                self._close([values])

    def close(self) -> tuple[StagedFile, ...]:
        """Finish all files; returns every one that was staged."""
        self._close(list(self._open))
        return tuple(self._closed)

    def remove(self) -> None:
        """Leave nothing behind; if even that fails the files stay, invisible."""
        with suppress(OSError):
            names = [output.abandon() for output in self._open.values()] + [file.name for file in self._closed]
            discard(self._plan.path, self._plan.storage, names)

    def _close(self, which: list[PartitionValues]) -> None:
        for values in which:
            self._closed.append(self._open[values].close())
            del self._open[values]


class _Output:
    """One Parquet file."""

    def __init__(self, plan: StagePlan, task: Task, values: PartitionValues) -> None:
        self._plan = plan
        self._values = dict(zip(plan.partition_by, values, strict=True))
        name = f"part-{task.partition:05d}-{uuid.uuid4()}-c000.{_COMPRESSION}.parquet"
        self._name = directory_of(self._values) + name
        self._footer: list[pq.FileMetaData] = []
        self._stream = files_of(plan.path, plan.storage).open_output_stream(self._name)
        self._writer = pq.ParquetWriter(
            self._stream, plan.file_schema, compression=_COMPRESSION, metadata_collector=self._footer
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def write(self, rows: pa.Table) -> None:
        """Append rows of this file's partition."""
        schema = self._plan.file_schema
        self._writer.write_table(rows.select(schema.names).cast(schema), row_group_size=_GROUP_ROWS)

    def close(self) -> StagedFile:
        """Finish the file; returns what the table's log has to know of it."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        footer = self._footer[0]
        return StagedFile(
            name=self._name,
            size=size,
            rows=footer.num_rows,
            stats=stats_json(footer, self._plan.file_schema),
            modified_ms=time.time_ns() // 1_000_000,
            partition=self._values,
        )

    def abandon(self) -> str:
        """Let go of the file; returns its name."""
        with suppress(OSError):
            self._writer.close()
            self._stream.close()
        return self._name
