"""A query's sink to a Delta table, driven without Spark: tasks and commits are plain calls."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import LongType, StructType

from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.delta import table as delta
from pyspark_wm_sink.delta.publish import DeltaPublication
from pyspark_wm_sink.delta.stage import DeltaStagePlan
from pyspark_wm_sink.delta.stats import indexed_columns
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.table_sink import answer_lost, barrier, disk_full, stage_rows

__all__ = ["answer_lost", "barrier", "disk_full", "stage_rows"]
COLUMNS = pa.schema([("n", pa.int64())])
KIND = "Delta"
LOG = delta
CONFLICT = CommitFailedError
SPARK_COLUMNS = StructType().add("n", LongType())


def how(table: Path, mode: SnapshotMode = SnapshotMode.BATCH, schema: pa.Schema = COLUMNS) -> DeltaPublication:
    plan = DeltaStagePlan(
        path=str(table), storage={}, schema=schema, has_control=False, inline=False, has_offsets=False,
        indexed=indexed_columns(schema, (), {}),
    )  # fmt: skip
    return DeltaPublication(stage=plan, mode=mode, guarantee=Guarantee.EXACTLY_ONCE, overwrite=False)


def rows(place: Path) -> list[dict]:
    return DeltaTable(place).to_pyarrow_table().to_pylist()


def numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table().column("n").to_pylist())


def foreign_append(place: Path, *values: int) -> None:
    write_deltalake(place, pa.table({"n": values}), mode="append")


def newest_text(place: Path) -> str:
    return DeltaTable(place).history(1)[0]["keyedwm"]


def files(table: Path) -> int:
    return len(list(table.glob("*.parquet")))
