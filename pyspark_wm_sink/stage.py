"""Stage one task's rows: a Parquet file next to the table, not in its log, and a message that says what is in it.

Rule: staging decides nothing and publishes nothing. A staged file is visible to no reader of the table until the
driver's commit names it. What a killed task leaves behind stays invisible for ever and is VACUUM's business.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from keyedwm.core.errors import UnavailableError
from pyspark_wm_sink.stats import stats_json
from pyspark_wm_sink.storage import discard, files_of
from pyspark_wm_sink.task import Intake, Report, Task

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_COMPRESSION = "zstd"


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    """What every task of a query does; travels to the executors.

    schema: the table's columns. has_control: the frame has the `control` column. inline: control rows go into the file.
    has_offsets: the frame has Kafka's topic, partition and offset columns, so the cut can be proven.
    """

    path: str
    storage: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    has_control: bool
    inline: bool
    has_offsets: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One staged file, its name relative to the table, with what Delta wants to know about it."""

    name: str
    size: int
    rows: int
    stats: str
    modified_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged(Report):
    """What one task staged; `file` is None when it had no row to write."""

    file: StagedFile | None


def stage(plan: StagePlan, task: Task, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Write the rows of one task; raises UnavailableError when the storage refuses them."""
    intake = Intake(has_control=plan.has_control, has_offsets=plan.has_offsets, group_bytes=_GROUP_BYTES)
    output = _Output(plan, task)
    try:
        for rows, events in intake.groups(batches):
            output.write(rows if plan.inline else events)
        file = output.close()
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
        file=file,
    )


class _Output:
    """One Parquet file, opened with the first row: no rows, no file."""

    def __init__(self, plan: StagePlan, task: Task) -> None:
        self._plan = plan
        self._name = f"part-{task.partition:05d}-{uuid.uuid4()}-c000.{_COMPRESSION}.parquet"
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        schema = self._plan.schema
        if self._writer is None:
            self._stream = files_of(self._plan.path, self._plan.storage).open_output_stream(self._name)
            self._writer = pq.ParquetWriter(
                self._stream, schema, compression=_COMPRESSION, metadata_collector=self._footer
            )
        self._writer.write_table(rows.select(schema.names).cast(schema), row_group_size=_GROUP_ROWS)

    def close(self) -> StagedFile | None:
        if self._writer is None or self._stream is None:
            return None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        footer = self._footer[0]
        return StagedFile(
            name=self._name,
            size=size,
            rows=footer.num_rows,
            stats=stats_json(footer, self._plan.schema),
            modified_ms=time.time_ns() // 1_000_000,
        )

    def remove(self) -> None:
        """Leave nothing behind; if even that fails the file stays, invisible."""
        if self._writer is None or self._stream is None:
            return
        try:
            self._writer.close()
            self._stream.close()
            discard(self._plan.path, self._plan.storage, [self._name])
        except OSError:
            return
