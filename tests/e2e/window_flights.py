"""The program that the windows' test kills: flights per origin and hour by `aggregate`, into a Delta table.

Run: python -m tests.e2e.window_flights BOOTSTRAP TOPIC DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BITE = "40000"
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
        # Killed while it writes its very first offset, Spark leaves a part of it and then refuses the checkpoint.
        .config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
        .getOrCreate()
    )


def main(bootstrap: str, topic: str, directory: str) -> None:
    from keyedwm.spark import aggregate, count, tumbling

    spark = session()
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
    hours = aggregate(rows, "origin", tumbling("1 hour"), {"flights": count()}, name="hours")
    told = hours.selectExpr("origin", "window.start", "window.end", "flights", "control")
    writer = told.writeStream.format("keyedwm").option("path", str(Path(directory) / "hours"))
    query = writer.option("checkpointLocation", str(Path(directory) / "check")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
