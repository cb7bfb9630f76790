"""How long the first tasks of an executor take: nothing compiled, after `keyedwm warm`, and Spark's own, in turn.

Run: python -m benchmarks.first_task [--pairs 3]
Each run has a standalone cluster of its own, whose worker has an empty HOME and so no compiled code, and a driver of
its own. A query counts 1,000 records by key and minute in two buckets, in batches of 100. What the tasks took, from
launch to end, is read from Spark's event log: the first one that reads, the first one of a bucket, and the median of
those that follow after the second batch. Spark's own side reads by its Kafka source, through a function in Python that
gives back what it gets, and counts by its own windows: that is what an executor's start costs without this package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measure import Sheet, how_many, load_hundred_bytes, median, scratch, session
from benchmarks.turns import in_turn
from examples.demo.spark_jars import spark_kafka_connector_jars
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.spark.setup.conf import recommended_conf
from keyedwm.testing.broker import broker
from tests.support.standalone import standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLD, WARMED, SPARK = "nothing compiled", "after keyedwm warm", "Spark's own"
TOPIC, RECORDS, BATCH, BUCKETS = "bench-first-task", 1_000, 100, 2
CACHES = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
SETTLED_AFTER = 2  # batches


def run(master: str, bootstrap: str, events: str, side: str) -> None:
    """Count the records of the topic; the event log goes to a directory."""
    conf = {
        **recommended_conf(cores=BUCKETS), "spark.master": master, "spark.executor.memory": "1g",
        "spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false", "spark.eventLog.dir": Path(events).as_uri(),
    }  # fmt: skip
    spark = session(spark_kafka_connector_jars() if side == SPARK else (), memory="1g", conf=conf)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
    reader = spark.readStream.options(**options, maxOffsetsPerTrigger=str(BATCH))
    frame = native(reader.format("kafka").load()) if side == SPARK else keyedwm_windows(reader.format("keyedwm").load())
    with scratch() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def keyedwm_windows(rows: DataFrame) -> DataFrame:
    """Windows of this package."""
    from keyedwm.spark import aggregate, count, tumbling

    return aggregate(rows, "key", tumbling("1 minute"), {"n": count()}, buckets=BUCKETS)


def native(rows: DataFrame) -> DataFrame:
    """Spark's own windows, over rows that went through Python."""
    from pyspark.sql import functions as F

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    timed_rows = rows.select("key", "timestamp").mapInArrow(same, "key binary, timestamp timestamp")
    timed = timed_rows.withWatermark("timestamp", "0 seconds")
    return timed.groupBy("key", F.window("timestamp", "1 minute")).count()


def took(events: Path) -> dict[str, float | None]:
    """Return the figures of a run, in ms."""
    (log,) = events.iterdir()
    log_events = [json.loads(line) for line in log.read_text().splitlines()]
    stages: dict[int, list[float]] = {}
    for one in log_events:
        if one["Event"] == "SparkListenerTaskEnd":
            info = one["Task Info"]
            stages.setdefault(one["Stage ID"], []).append(info["Finish Time"] - info["Launch Time"])
    in_order = [stages[number] for number in sorted(stages)]  # reading, buckets, reading, ...
    later = [ms for tasks in in_order[2 * SETTLED_AFTER :] for ms in tasks]
    return {"reading_ms": in_order[0][0], "bucket_ms": in_order[1][0], "later_ms": median(later)}


def measured(bootstrap: str, side: str) -> dict[str, float | None]:
    """One run on a cluster of its own."""
    with standalone(1, cores=1, memory_mb=2_048) as place, tempfile.TemporaryDirectory() as events:
        (worker,) = place.workers
        if side == WARMED:
            home = {"HOME": str(worker.home / "home"), "TMPDIR": str(worker.home / "tmp")}
            rest_environment = {
                name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
            }
            command = [sys.executable, "-c", "from keyedwm.cli.main import main; main(['warm'])"]
            subprocess.run(command, env={**rest_environment, **home}, check=True, stdout=subprocess.DEVNULL)
        command = [sys.executable, "-m", "benchmarks.first_task", "--driver", place.url, bootstrap, events, side]
        subprocess.run(command, check=True)
        return took(Path(events))


def main() -> None:
    """Run both sides in turn, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=how_many, default=3, help="so many rounds, and one to warm up")
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        return run(*options.driver)
    with broker() as kafka:
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        load_hundred_bytes(cluster, TOPIC, RECORDS)
        cluster.close()
        sides = {side: partial(measured, kafka.bootstrap, side) for side in (COLD, WARMED, SPARK)}
        in_turn(Sheet("first-task", SPARK, {"records": RECORDS, "batch": BATCH}), sides, options.pairs)
    return None


if __name__ == "__main__":
    main()
