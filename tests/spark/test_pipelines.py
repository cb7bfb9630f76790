"""The example of declarative pipelines runs as it is, and a second run continues."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sink.conftest import records_of
from tests.tools import Record, make_topic, produce

EXAMPLE = Path(__file__).parents[2] / "examples/pipelines"
START_MS = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
MISSING = [name for name in ("grpc", "grpc_status", "yaml") if importlib.util.find_spec(name) is None]
IN_FUNCTION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from keyedwm.spark import aggregate, count, kafka, tumbling

@dp.table
def loaded():
    rows = kafka(SparkSession.active(), "localhost:1", subscribe="orders").load()
    return aggregate(rows, "key", tumbling("1 minute"), {"orders": count()})
"""


@pytest.fixture
def project(kafka, topic: str, tmp_path: Path) -> Path:
    """The example with its paths in a folder of this test, and with this test's Kafka and topic."""
    shutil.copytree(EXAMPLE, tmp_path / "orders")
    spec = tmp_path / "orders/spark-pipeline.yml"
    text = spec.read_text().replace("/data/orders", str(tmp_path / "data")).replace("localhost:9092", kafka.bootstrap)
    spec.write_text(text)
    python = tmp_path / "orders/transformations/orders.py"
    text = python.read_text().replace('subscribe="orders"', f'subscribe="{topic}"')
    python.write_text(text.replace('"topic": "per_minute"', f'"topic": "{topic}-out"'))
    return spec


@pytest.fixture
def in_function(project: Path) -> Path:
    """A pipeline that aggregates loaded rows in a decorated function."""
    spec = project.parent / "in_function/spark-pipeline.yml"
    (spec.parent / "transformations").mkdir(parents=True)
    (spec.parent / "transformations/loaded.py").write_text(IN_FUNCTION)
    spec.write_text(project.read_text())
    return spec


def orders(first: int) -> Iterator[Record]:
    """300 orders, one each second, of three partitions and five customers."""
    for n in range(first, first + 300):
        yield Record(n % 3, START_MS + n * 1000, b'{"amount": %d}' % n, b"customer %d" % (n % 5))


def read(path: Path) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds

    return ds.dataset(path, format="parquet", exclude_invalid_files=True).to_table().to_pylist()


def by_minute(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """How many orders of a customer and minute are counted, over all rows."""
    counted: Counter[tuple[str, int]] = Counter()
    for row in rows:
        start = row["window"]["start"].replace(tzinfo=dt.timezone.utc)
        counted[row["customer"], int(start.timestamp() * 1000 - START_MS) // 60_000] += row["orders"]
    return counted


@pytest.mark.skipif(bool(MISSING), reason=f"spark-pipelines needs {', '.join(MISSING)}, which are not installed")
def test_the_example_of_pipelines_counts_each_order_once_and_a_second_run_continues(kafka, topic, project, in_function):
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    make_topic(kafka.bootstrap, topic, 3)
    make_topic(kafka.bootstrap, f"{topic}-out", 1)
    data = project.parents[1] / "data"
    arguments = map(str, (data / "warehouse", project, project, in_function))
    command = [sys.executable, "-m", "tests.spark.pipeline_runs", *arguments]
    produce(kafka.bootstrap, topic, orders(0))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runs:
        ends = (line.strip() for line in runs.stdout if line.startswith("RAN"))
        assert next(ends) == "RAN"
        produce(kafka.bootstrap, topic, orders(300))
        print(file=runs.stdin, flush=True)
        assert next(ends) == "RAN"
        print(file=runs.stdin, flush=True)
        sentence = next(ends)
    assert "aggregate: Spark gives no columns of a frame to a decorated function of a pipeline" in sentence
    # Each partition ends at about 600 s less the lag of 5 s: nine minutes are closed.
    minutes = {(f"customer {n % 5}", n // 60): 12 for n in range(540)}
    assert by_minute(read(data / "warehouse/per_minute")) == minutes
    assert by_minute(DeltaTable(data / "per_minute_delta").to_pyarrow_table().to_pylist()) == minutes
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{data}/catalog.db", warehouse=f"file://{data}/lake")
    assert by_minute(catalog.load_table("db.per_minute").scan().to_arrow().to_pylist()) == minutes
    counted: Counter[tuple[str, int]] = Counter()
    for _, key, value, _ in records_of(kafka.bootstrap, f"{topic}-out"):
        row = json.loads(value)
        start = dt.datetime.fromisoformat(row["start"])
        counted[key.decode(), int(start.timestamp() * 1000 - START_MS) // 60_000] += row["orders"]
    assert counted == minutes
    assert sum(row["amount"] for row in read(data / "warehouse/per_customer")) == sum(range(540))
    assert len(read(data / "warehouse/orders")) == len(read(data / "warehouse/order_times")) == 600
