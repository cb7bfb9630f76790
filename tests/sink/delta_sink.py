"""A query's sink to a Delta table, driven without Spark: tasks and commits are plain calls."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructType

from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.delta.publish import DeltaPublication
from pyspark_wm_sink.delta.stage import DeltaStagePlan
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.tables.stage import StagedFiles, stage

COLUMNS = pa.schema([("n", pa.int64())])
SPARK_COLUMNS = StructType().add("n", LongType())


def how(table: Path, mode: SnapshotMode = SnapshotMode.BATCH, schema: pa.Schema = COLUMNS) -> DeltaPublication:
    plan = DeltaStagePlan(
        path=str(table), storage={}, schema=schema, has_control=False, inline=False, has_offsets=False
    )
    return DeltaPublication(stage=plan, mode=mode, guarantee=Guarantee.EXACTLY_ONCE, overwrite=False)


def staged(
    to: DeltaPublication, numbers: list[int], batch: int = 0, query: str = "q", control: tuple = ()
) -> StagedFiles:
    task = Task(query=query, run="r", batch=batch, partition=0, attempt=0)
    rows = [pa.record_batch({"n": pa.array(numbers, pa.int64())})] if numbers else []
    message = stage(to.stage, task, rows)
    return StagedFiles(
        task=task, files=message.files, event_rows=message.event_rows, control=control, event_tops=message.event_tops
    )


def numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table().column("n").to_pylist())


def files(table: Path) -> int:
    return len(list(table.glob("*.parquet")))


def barrier(snapshot: int, offset: int = 0) -> ControlRow:
    return ControlRow(kind=ControlKind.BARRIER, channel="t-0", snapshot=snapshot, channels=1, offset=offset)


def disk_full(*_args, **_options):
    raise OSError("No space left on device")


def answer_lost(real):
    def append(*args, **options):
        real(*args, **options)
        raise OSError("connection reset")

    return append
