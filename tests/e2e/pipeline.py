"""The program that the kill campaign kills: one Spark, two queries on one topic, each into its own Delta table.

Run: python -m tests.e2e.pipeline BOOTSTRAP TOPIC DIRECTORY forever|to-the-end
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# A killed run takes small bites, so that a kill falls into many different places; the last one eats up what is left.
BITE, REST = "120", "1000000"
LAG = "2 hours"


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        # Killed while it writes its very first offset, Spark leaves a part of it and then refuses the checkpoint.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .config("spark.sql.streaming.minBatchesToRetain", "100000")  # the whole offset log is looked at afterwards
        .getOrCreate()
    )


def source(spark: SparkSession, bootstrap: str, topic: str, bite: str) -> DataFrame:
    return (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", bite)
        .option("watermarkLag", LAG)
        .option("idleTimeout", "none")
        .load()
    )


def write(frame: DataFrame, directory: Path, name: str, snapshot: str, *, forever: bool) -> StreamingQuery:
    writer = frame.writeStream.format("keyedwm").queryName(name).option("snapshot", snapshot)
    writer = writer.option("path", str(directory / name)).option(
        "checkpointLocation", str(directory / f"{name}.checkpoint")
    )
    return (writer if forever else writer.trigger(availableNow=True)).start()


def main(bootstrap: str, topic: str, directory: str, mode: str) -> None:
    from pyspark.sql import functions as F

    from keyedwm.spark import with_watermark

    forever = mode == "forever"
    spark = session()
    rows = source(spark, bootstrap, topic, BITE if forever else REST)
    hours = (
        with_watermark(rows)
        .groupBy(F.window("event_time", "1 hour").alias("hour"), "partition")
        .count()
        .select(F.col("hour.start").alias("hour"), "partition", "count")
    )
    queries = [
        write(rows, Path(directory), "events", "barrier", forever=forever),
        write(hours, Path(directory), "hours", "batch", forever=forever),
    ]
    # Turn by turn: whichever fails ends the program.
    while not all([query.awaitTermination(1) for query in queries]):  # noqa: C419 - each has its turn
        pass
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
