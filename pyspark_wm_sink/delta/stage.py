"""The Parquet files of a Delta table that a task stages: in the table's directory, not in its log.

Rule: a full VACUUM removes the files that a killed task leaves behind.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta.partitions import PartitionValues, directory_of, partitions_of
from pyspark_wm_sink.delta.stats import float_bounds, stats_json
from pyspark_wm_sink.delta.storage import discard, files_of
from pyspark_wm_sink.places.paths import local_directory
from pyspark_wm_sink.tables.stage import OpenFile, StagedFile, StagePlan

_COMPRESSION = "zstd"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaStagePlan(StagePlan):
    """A Delta table.

    partition_by: the columns that partition it. indexed: the columns whose bounds are in the log.
    """

    path: str
    storage: Mapping[str, str] = field(repr=False)
    partition_by: tuple[str, ...] = ()
    indexed: pa.Schema

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    @property
    def options(self) -> tuple[str, str]:
        """The options `path` and `errorsTo`."""
        return "path", "path or errorsTo"

    @property
    def local_directory(self) -> Path | None:
        """The path if it is on this machine, else None."""
        return local_directory(self.path)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file: a partition's own are in its name in the log, not in the file."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def partitions_of(self, rows: pa.Table) -> Iterator[tuple[PartitionValues, pa.Table]]:
        """Yield the rows of each partition with the texts of its values."""
        return partitions_of(rows, self.partition_by, has_offsets=self.has_offsets)

    def new_file(self, task: Task, partition: PartitionValues) -> _ParquetFile:
        """Begin a file in the directory of the partition."""
        return _ParquetFile(self, task, partition)

    def discard(self, names: Iterable[str]) -> None:
        """Remove files that no commit names."""
        discard(self.path, self.storage, names)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaFile(StagedFile):
    """One staged file, its name relative to the table, with what Delta's log records about it."""

    stats: str
    modified_ms: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


class _ParquetFile(OpenFile):
    def __init__(self, plan: DeltaStagePlan, task: Task, values: PartitionValues) -> None:
        self._plan = plan
        self._values = dict(zip(plan.partition_by, values, strict=True))
        self._floats = float_bounds(plan.file_schema, plan.indexed)
        name = f"part-{task.partition:05d}-{uuid.uuid4()}-c000.{_COMPRESSION}.parquet"
        name = directory_of(self._values) + name
        stream = files_of(plan.path, plan.storage).open_output_stream(name)
        super().__init__(name, stream, plan.file_schema, plan.limits.group_rows, compression=_COMPRESSION)

    def write(self, rows: pa.Table) -> None:
        """Append rows of this file's partition, without the columns that partition the table."""
        file_rows = rows.select(self._plan.file_schema.names)
        for name, bounds in self._floats.items():
            bounds.add(file_rows.column(name))
        super().write(file_rows)

    def _report(self, size: int, footer: pq.FileMetaData) -> DeltaFile:
        return DeltaFile(
            name=self._name,
            size=size,
            rows=footer.num_rows,
            stats=stats_json(footer, self._plan.file_schema, self._plan.indexed, self._floats),
            modified_ms=time.time_ns() // 1_000_000,
            partition=self._values,
        )
