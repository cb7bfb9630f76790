"""Flights per origin and hour by `aggregate`, into a Delta table; and the Spark of the programs that tests kill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.quick_batches import QUICK_BATCHES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

BITE = "60000"
LAG = "24 hours"  # a flight is up to 1,301 minutes late: with less, rows would be dropped


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    from keyedwm.spark import session_conf

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    for name, value in session_conf(cores=2).items():
        builder = builder.config(name, value)
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=dict(QUICK_BATCHES))
        # Killed while it writes its very first offset, Spark leaves a part of it and then refuses the checkpoint.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .getOrCreate()
    )


def hours(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> DataStreamWriter:
    """The query, which reads the topic to its end."""
    from keyedwm.spark import aggregate, count, tumbling

    rows = (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BITE)
        .option("watermarkLag", LAG)
        .option("idleTimeout", "none")
        .load()
        .selectExpr("cast(key as string) origin", "event_time", "watermark", "control")
    )
    windows = aggregate(rows, "origin", tumbling("1 hour"), {"flights": count()}, name="hours")
    rows_out = windows.selectExpr("origin", "window.start", "window.end", "flights", "control")
    writer = rows_out.writeStream.format("keyedwm").option("path", str(directory / "hours"))
    return writer.option("checkpointLocation", str(directory / "check")).trigger(availableNow=True)
