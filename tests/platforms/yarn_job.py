"""The program that runs on YARN: windows of a topic into a Delta table, and the topic as it is into another topic.

Submit: spark-submit --master yarn [...] yarn_job.py JSON   (the fields of `Job`; no checkout is on the path)

Rule: with `dies_at` the driver of YARN's first attempt kills itself with SIGKILL, in a batch after this number.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# The last line of a driver that is not killed: a line before the kill can be lost in the application master's pipe.
ENDED = "all queries ended"


@dataclass(frozen=True, kw_only=True)
class Job:
    """place: an address in HDFS, of checkpoints and table. bite: offsets of a batch. dies_at: -1 for no kill."""

    bootstrap: str
    topic: str
    place: str
    bite: int = 200
    dies_at: int = -1


def source(job: Job, spark: SparkSession) -> DataFrame:
    """Return the rows of the topic."""
    return (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.bite))
        .option("idleTimeout", "none")
        .load()
    )


def windows(job: Job, rows: DataFrame) -> DataStreamWriter:
    """Return the query that counts the events of a name and a second into the Delta table `place`/table."""
    from keyedwm.spark import aggregate, count, tumbling

    events = rows.selectExpr("cast(key as string) name", "event_time", "watermark", "control")
    seconds = aggregate(events, "name", tumbling("1 second"), {"events": count()}, name="seconds")
    columns = seconds.selectExpr("name", "window.start second", "events", "control")
    return writer(job, columns, "windows", {"path": f"{job.place}/table"})


def copy(job: Job, rows: DataFrame) -> DataStreamWriter:
    """Return the query that copies the topic; its ledger is in the checkpoint, in HDFS."""
    options = {"kafka.bootstrap.servers": job.bootstrap, "topic": f"{job.topic}-out"}
    return writer(job, rows.drop("partition"), "copy", options)


def writer(job: Job, rows: DataFrame, name: str, options: dict[str, str]) -> DataStreamWriter:
    """Return a query that ends with the topic."""
    stream = rows.writeStream.format("keyedwm").options(**options)
    return stream.option("checkpointLocation", f"{job.place}/{name}").trigger(availableNow=True)


def last_batch(query: StreamingQuery) -> int:
    """Return the number of the last batch with a progress, -1 without one."""
    return -1 if query.lastProgress is None else int(query.lastProgress.batchId)


def die() -> None:
    """End the application master's JVM and this process, which has no time to stop a query."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main(job: Job) -> None:
    """Run the queries to their end, or until the driver kills itself."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import session_conf, start_in_turn

    # The name of a container contains the number of the attempt: container_TIME_APPLICATION_ATTEMPT_NUMBER.
    dies = job.dies_at >= 0 and os.environ["CONTAINER_ID"].split("_")[-2] == "01"
    spark = SparkSession.builder.config(map=session_conf(cores=2)).getOrCreate()
    queries = start_in_turn(*(query(job, source(job, spark)) for query in (windows, copy)))
    newest = -1
    while any(query.isActive for query in queries):
        batch = min(map(last_batch, queries))
        if batch > newest:
            newest = batch
            print(f"batch {batch}", flush=True)
        if dies and batch >= job.dies_at and spark.sparkContext.statusTracker().getActiveJobsIds():
            die()
        queries[-1].awaitTermination(0.05)
    for query in queries:
        query.awaitTermination()
    print(ENDED, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
