"""Kafka to Kafka and Kafka to files: keyedwm's source and sinks beside Spark's own, in turn, on one broker.

Run: python -m benchmarks.sink [--case kafka|guarantees|files] [--records 4000000] [--pairs 5]
`kafka`: Spark's connector (at-least-once) against both of ours; `guarantees`: what exactly-once costs at 100,000 rows a
batch; `files`: Spark's parquet sink against our Delta sink. Each side has its own source, the columns it needs and an
output of its own, whose records are counted before a figure is shown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
from deltalake import DeltaTable

from benchmarks.measure import PARTITIONS, Run, Sheet, cpu_seconds, load_hundred_bytes, session, steady_rate
from keyedwm.kafka.admin import create_topic, delete_topic
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.fetch import Range, read_ranges
from keyedwm.kafka.records import Wanted
from keyedwm.kafka.values import Isolation
from keyedwm.testing.broker import broker
from keyedwm.testing.connector import spark_kafka_connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = "bench-sink-in"
OUT = "bench-sink-out"


@dataclass(frozen=True, slots=True)
class Side:
    """A source format, a sink format, the sink's options; `files`: it writes to a directory, not to a topic."""

    source: str
    sink: str
    options: dict[str, str] = field(default_factory=dict)
    files: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Sides by name, the rival first, and the rows of a micro-batch."""

    batch: int
    sides: dict[str, Side]


AT_LEAST = Side("keyedwm", "keyedwm", {"guarantee": "at-least-once"})
EXACTLY = Side("keyedwm", "keyedwm", {"guarantee": "exactly-once"})
CASES = {
    "kafka": Case(
        500_000,
        {"spark": Side("kafka", "kafka"), "keyedwm at-least-once": AT_LEAST, "keyedwm exactly-once": EXACTLY},
    ),
    "guarantees": Case(100_000, {"at-least-once": AT_LEAST, "exactly-once": EXACTLY}),
    "files": Case(
        500_000,
        {
            "spark parquet": Side("kafka", "parquet", files=True),
            "keyedwm delta": Side("keyedwm", "keyedwm", files=True),
        },
    ),
}


def committed(cluster: Cluster, topic: str) -> int:
    """Count the records that a read_committed reader finds."""
    ends = cluster.latest([(topic, p) for p in range(PARTITIONS)], Isolation.READ_COMMITTED)
    ranges = [Range(where.topic, where.partition, 0, end) for where, end in sorted(ends.items())]
    parts = read_ranges(cluster, ranges, Wanted(key=False, value=False), Isolation.READ_COMMITTED)
    return sum(part.records.count for part in parts)


def written(place: str, side: Side) -> int:
    """Count the rows of a directory's table."""
    if side.sink == "parquet":
        return int(pyarrow.dataset.dataset(place, format="parquet", exclude_invalid_files=True).count_rows())
    return int(DeltaTable(place).to_pyarrow_dataset().count_rows())


def rows(spark: SparkSession, where: dict[str, str], side: Side, batch: int) -> DataFrame:
    """Describe the read of one side: key and value, and what our sink needs beside them."""
    reading = {"subscribe": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch)}
    if side.source == "keyedwm":
        reading["columns"] = "key,value,control"
    frame = spark.readStream.format(side.source).options(**where, **reading).load()
    return frame.select("key", "value") if side.source == "kafka" else frame


def run(spark: SparkSession, cluster: Cluster, side: Side, batch: int, records: int) -> Run:
    """Copy the source once; raises SystemExit if the output does not hold every record once."""
    where = {"kafka.bootstrap.servers": cluster.config.addresses}
    with tempfile.TemporaryDirectory() as place:
        target = {"path": str(Path(place, "out"))} if side.files else {"topic": OUT}
        if not side.files:
            create_topic(cluster, OUT, PARTITIONS)
            target |= where
        before, began = cpu_seconds(), time.perf_counter()
        writer = rows(spark, where, side, batch).writeStream.format(side.sink).options(**target, **side.options)
        query = writer.option("checkpointLocation", f"{place}/check").trigger(availableNow=True).start()
        query.awaitTermination()
        took, used = time.perf_counter() - began, cpu_seconds() - before
        found = written(target["path"], side) if side.files else committed(cluster, OUT)
        if not side.files:
            delete_topic(cluster, OUT)
    if found != records:
        raise SystemExit(f"{side}: {found} of {records} records arrived: no figure")
    return Run(records / took, steady_rate(query.recentProgress, records), used / records * 1e6)


def main() -> None:
    """Run the cases and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        load_hundred_bytes(cluster, SOURCE, chosen.records)
        spark = session(spark_kafka_connector_jars())
        for name in chosen.case or CASES:
            case = CASES[name]
            sheet = Sheet(f"sink-{name}", next(iter(case.sides)), {"records": chosen.records, "batch": case.batch})
            for number in range(chosen.pairs + 1):
                for side, what in case.sides.items():
                    sheet.add(side, run(spark, cluster, what, case.batch, chosen.records), warming=number == 0)
            sheet.finish()
        spark.stop()
        cluster.close()


if __name__ == "__main__":
    main()
