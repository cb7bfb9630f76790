"""The program that `join_kills` kills: each flight with the weather at its airport, into a Delta table.

Run: python -m tests.e2e.join_flights KIND BOOTSTRAP FLIGHTS WEATHER DIRECTORY
KIND: `join`, the weather of the flight's hour by `join`; `latest`, the latest weather before it by `join_latest`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.window_flights import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS_BITE, WEATHER_BITE = 40_000, 3_200  # of a year the same part
CLOSING = "closing"  # key of the records that end a topic


def rows(spark: SparkSession, bootstrap: str, topic: str, bite: int, number: str) -> DataFrame:
    return (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(bite))
        .option("watermarkLag", "1 hour")
        .option("idleTimeout", "none")
        .load()
        .selectExpr("cast(key as string) origin", f"cast(cast(value as string) as bigint) {number}", "event_time",
                    "watermark", "control")
        .where(f"control IS NOT NULL OR origin <> '{CLOSING}'")
    )  # fmt: skip


def main(kind: str, bootstrap: str, flights: str, weather: str, directory: str) -> None:
    from keyedwm.spark import join, join_latest

    spark = session()
    sides = (
        rows(spark, bootstrap, flights, FLIGHTS_BITE, "flight"),
        rows(spark, bootstrap, weather, WEATHER_BITE, "weather"),
    )
    names = ("flights", "weather")
    if kind == "join":
        joined = join(*sides, "origin", within=("0 seconds", "0 seconds"), how="left", names=names, name="flown")
    else:
        joined = join_latest(*sides, "origin", names=names, name="flown")
    results = joined.select("origin", "flight", "weather", "control")
    writer = results.writeStream.format("keyedwm").option("path", str(Path(directory) / "flown"))
    query = writer.option("checkpointLocation", str(Path(directory) / "check")).trigger(availableNow=True).start()
    query.awaitTermination()
    late = [batch.observedMetrics["flown"]["late_rows"] for batch in query.recentProgress if batch.observedMetrics]
    print(f"this run: {len(late)} batches, {sum(late)} late rows", flush=True)
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
