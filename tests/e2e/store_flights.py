"""Median delays by origin and hour from a store into a Delta table, and into another the flights that come too late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

BITE = "1500"
LAG = "1 minute"  # flights are up to 1,301 minutes late: some change their hour's median, some come too late
RETENTION, MOST_MESSAGES = "6 hours", 150


def medians(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> DataStreamWriter:
    """The query, which reads the topic to its end."""
    from keyedwm.spark import Store, aggregate, count, median, tumbling

    rows = (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BITE)
        .option("watermarkLag", LAG)
        .option("idleTimeout", "none")
        .load()
        .selectExpr(
            "cast(key as string) origin", "cast(get_json_object(cast(value as string), '$.dep_delay') as double) delay",
            "topic", "partition", "offset", "event_time", "watermark", "control",
        )
    )  # fmt: skip
    hours = aggregate(
        rows, "origin", tumbling("1 hour"), {"flights": count(), "delay": median("delay")}, name="hours",
        store=Store(retention=RETENTION, max_messages=MOST_MESSAGES), late="emit",
    )  # fmt: skip
    places = {name: str(directory / name) for name in ("hours", "rejected", "check")}
    writer = hours.writeStream.format("keyedwm").option("path", places["hours"]).option("errorsTo", places["rejected"])
    return writer.option("checkpointLocation", places["check"]).trigger(availableNow=True)
