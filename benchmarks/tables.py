"""Rows into a Delta and an Iceberg table in turn: what a task stages in a second of CPU, and a commit of eight tasks.

Run: python -m benchmarks.tables [--rows 500000] [--pairs 5]
Tasks and commits are plain calls in one process, as Spark makes them; both tables are on the local disk, the Iceberg
table in a catalog of SQLite. Each side's rows are counted before a figure is shown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.measure import how_many
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.tables.publication import Publication
from pyspark_wm_sink.tables.publish import publish
from pyspark_wm_sink.tables.stage import stage
from pyspark_wm_sink.writer import stream_writer

TASKS = 8


def _rows(count: int) -> pa.Table:
    """Rows of about 110 bytes."""
    numbers = np.arange(count)
    return pa.table({
        "id": numbers,
        "at": pa.array(numbers * 1_000, pa.timestamp("us", "UTC")),
        "amount": numbers / 7,
        "text": pa.array([f"{n % 1_000:0>80}" for n in range(count)]),
    })  # fmt: skip


def _publication(options: dict[str, str], schema: StructType) -> Publication:
    return stream_writer({**options, "replayCheck": "counts"}, schema, overwrite=False)._how  # noqa: SLF001 - ours


def _run(how: Publication, rows: pa.Table, batch: int) -> tuple[float, float]:
    """Stage and publish one batch; returns rows per second of CPU, and milliseconds of the commit."""
    began = time.process_time()
    reports = [
        stage(how.stage, Task(query="q", run="r", batch=batch, partition=task, attempt=0), rows.to_batches())
        for task in range(TASKS)
    ]
    staged_s, requested_s = time.process_time() - began, time.perf_counter()
    publish(how, reports, batch=batch)
    return rows.num_rows * TASKS / staged_s, (time.perf_counter() - requested_s) * 1e3


def main() -> None:
    """Measure in turn and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=how_many, default=500_000, help="of a task")
    parser.add_argument("--pairs", type=how_many, default=5)
    options = parser.parse_args()
    rows = _rows(options.rows)
    schema = from_arrow_schema(rows.schema)
    with tempfile.TemporaryDirectory() as place:
        catalog = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": place}
        load_catalog("default", **catalog).create_namespace("db")
        of_iceberg = {"table": "db.t", "createTable": "true", **{f"catalog.{name}": of for name, of in catalog.items()}}
        sides: dict[str, tuple[Publication, Callable[[], int]]] = {
            "delta": (_publication({"path": f"{place}/delta"}, schema), partial(_in_delta, Path(place) / "delta")),
            "iceberg": (_publication(of_iceberg, schema), partial(_in_iceberg, catalog)),
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for batch in range(options.pairs + 1):  # the first warms
            for name, (how, _) in sides.items():
                figures[name].append(_run(how, rows, batch))
        for name, (_, count) in sides.items():
            if (arrived := count()) != (expected := rows.num_rows * TASKS * (options.pairs + 1)):
                raise SystemExit(f"{name}: {arrived} of {expected} rows arrived: no figure")
            rates, commits = (statistics.median(of) for of in zip(*figures[name][1:], strict=True))
            print(f"{name:>8} {rates:12,.0f} rows/s of CPU  {commits:6.1f} ms a commit")
    ratios = [
        iceberg[0] / delta[0] for iceberg, delta in zip(figures["iceberg"][1:], figures["delta"][1:], strict=True)
    ]
    print(f"iceberg / delta {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def _in_delta(path: Path) -> int:
    return DeltaTable(path).to_pyarrow_dataset().count_rows()


def _in_iceberg(catalog: dict[str, str]) -> int:
    return load_catalog("default", **catalog).load_table("db.t").scan().count()


if __name__ == "__main__":
    main()
