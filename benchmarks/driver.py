"""What the driver of a query does for each micro-batch, with tiny data: by reading tasks and by buckets.

Run: python -m benchmarks.driver [--tasks 10 100 1000] [--buckets 2 16 64 256] [--batches 5] [--limit-s 600]
A Spark cluster with one worker of two cores, so that tasks run beside the driver and not in it. A topic has as many
partitions as there are tasks; each batch brings one record of each, counted by key in the buckets, and both are taken
at every size while the other one is the smallest; beside them, Spark's own source and windows at the numbers of tasks.
Times are those of Spark's own progress; the driver's CPU is that of
this process and all below it: the JVM, and the planner of the source. A size that has not made its batches within the
limit is shown as not reached. Two batches of each size warm up, and the first size as a whole.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cpu import cpu_seconds
from benchmarks.measure import Sheet, how_many, scratch
from benchmarks.planning import HEAP_MB, PATIENT, SMALL_LOGS, append, make
from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.local import local_broker
from pyspark_wm_source.reader import row_schema, stream_reader
from tests.support.standalone import standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

KEYEDWM, NATIVE = "keyedwm", "spark"
WARMING = 2
MEMORY_MB = 4_096
_LOOK_S = 0.05
# Spark's names of what the driver does by itself, one step after the other, in a batch.
PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets", "commitBatch")


def main() -> None:
    """Run every size, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=how_many, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--buckets", type=how_many, nargs="+", default=[2, 16, 64, 256])
    parser.add_argument("--batches", type=how_many, default=5)
    parser.add_argument("--limit-s", type=float, default=600)
    options = parser.parse_args()
    by_tasks = [(tasks, options.buckets[0]) for tasks in options.tasks]
    by_buckets = [(options.tasks[0], buckets) for buckets in options.buckets[1:]]
    sizes = [(KEYEDWM, *size) for size in by_tasks + by_buckets] + [(NATIVE, *size) for size in by_tasks]
    setting = {"batches": options.batches, "records_per_task": 1, "worker_cores": 2}
    sheet = Sheet("driver", None, setting)
    with running() as room:
        for at, (side, tasks, buckets) in enumerate([sizes[0], *sizes]):  # the first one warms the JVM up, for all
            for figures in measured(room, side, (tasks, buckets), options.batches, options.limit_s):
                sheet.add(f"{side}, {tasks:,} tasks, {buckets:,} buckets", figures, warming=at == 0)
    sheet.finish()


@dataclass(frozen=True, slots=True)
class Room:
    """What runs. apart: the processes of the cluster. topics: number of partitions → topic."""

    cluster: Cluster
    spark: SparkSession
    apart: frozenset[int]
    topics: dict[int, str] = field(default_factory=dict)

    def topic(self, partitions: int) -> str:
        """Return the topic with so many partitions."""
        if partitions not in self.topics:
            topic = self.topics[partitions] = make(self.cluster, partitions)
            options = {"subscribe": topic, "startingOffsets": "earliest", **self.where}
            # Comes back once every partition has its leader in place.
            stream_reader(options, row_schema(options)).initialOffset()
        return self.topics[partitions]

    @property
    def where(self) -> dict[str, str]:
        """The options that name the broker, and wait for it."""
        patient = {f"kafka.{name}": value for name, value in PATIENT.items()}
        return {"kafka.bootstrap.servers": self.cluster.config.addresses, **patient}


@contextmanager
def running() -> Iterator[Room]:
    """Start a broker for thousands of small logs, a cluster, and a driver."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import recommended_conf

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with local_broker(heap_mb=HEAP_MB, extra=SMALL_LOGS) as kafka, standalone(1, cores=2, memory_mb=MEMORY_MB) as place:
        settings = {
            "spark.executor.memory": "2g",
            "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g", "spark.ui.enabled": "false",
            "spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC", **recommended_conf(),
            "spark.jars": ",".join(map(str, spark_kafka_connector_jars())),
        }  # fmt: skip
        builder = SparkSession.builder.master(place.url)
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap, **PATIENT}))
        yield Room(cluster, spark, frozenset(one.pid or 0 for one in (place.master, *place.workers)))
        spark.stop()
        cluster.close()


def measured(
    room: Room, side: str, size: tuple[int, int], batches: int, limit_s: float
) -> Iterator[dict[str, float | None]]:
    """Yield the figures of each batch but the first ones."""
    tasks, buckets = size
    cluster, topic = room.cluster, room.topic(tasks)
    with scratch() as checkpoint:
        rows = counted_rows(room, topic, tasks, buckets) if side == KEYEDWM else natively_counted(room, topic, buckets)
        writer = rows.writeStream.format("noop").outputMode("append")
        query = writer.option("checkpointLocation", checkpoint).start()
        deadline_s = time.monotonic() + limit_s
        try:
            for number in range(WARMING + batches):
                append(cluster, topic, tasks)
                began, last_batch = cpu_seconds(room.apart), query.lastProgress.batchId if query.lastProgress else -1
                if not progressed(query, last_batch, tasks, deadline_s):
                    print(f"{tasks:,} tasks, {buckets:,} buckets: not reached in {limit_s:g} s", flush=True)
                    return
                if number >= WARMING:
                    yield figures(query, checkpoint, cpu_seconds(room.apart) - began)
        finally:
            query.stop()


def counted_rows(room: Room, topic: str, tasks: int, buckets: int) -> DataFrame:
    """Rows of the topic, a task for each partition, counted by key and minute."""
    from keyedwm.spark import aggregate, count, tumbling

    rows = (
        room.spark.readStream.format("keyedwm")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("minPartitions", str(tasks))
        .options(**room.where)
        .load()
        .selectExpr("partition key", "event_time", "watermark", "control", "topic", "partition", "offset")
    )
    return aggregate(rows, "key", tumbling("1 minute"), {"n": count()}, buckets=buckets, name=f"n{tasks}x{buckets}")


def natively_counted(room: Room, topic: str, buckets: int) -> DataFrame:
    """The same by Spark's own source and windows; the buckets are its shuffle partitions."""
    from pyspark.sql import functions as F

    room.spark.conf.set("spark.sql.shuffle.partitions", str(buckets))
    options = {"subscribe": topic, "startingOffsets": "earliest", **room.where}
    rows = room.spark.readStream.format("kafka").options(**options).load().withWatermark("timestamp", "0 seconds")
    return rows.groupBy(F.window("timestamp", "1 minute"), F.expr("partition key")).agg(F.count("*").alias("n"))


def progressed(query: StreamingQuery, last_batch: int, records: int, deadline_s: float) -> bool:
    """Wait until the records of one append are read; whether they were in time."""
    while time.monotonic() < deadline_s:
        if query.exception() is not None:
            raise SystemExit(f"the query failed: {query.exception()}")
        done = [one for one in query.recentProgress if one.batchId > last_batch and one.numInputRows >= records]
        if done:
            return True
        time.sleep(_LOOK_S)
    return False


def figures(query: StreamingQuery, checkpoint: str, cpu_s: float) -> dict[str, float | None]:
    """Return what the last batch took, in ms, and what its offset log entry holds."""
    last = query.lastProgress
    ms = last.durationMs
    offsets = Path(checkpoint, "offsets", str(last.batchId)).stat().st_size
    return {
        "batch_ms": ms["triggerExecution"], "driver_ms": sum(ms.get(name, 0) for name in PLANNING),
        "jobs_ms": ms.get("addBatch"), "cpu_ms": cpu_s * 1e3, "offset_bytes": offsets,
    }  # fmt: skip


if __name__ == "__main__":
    main()
