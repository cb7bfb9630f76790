"""The program that is killed: flights per hour and carrier, destination and aircraft, by watermarks of their own.

Run: python -m tests.e2e.per_key_flights BOOTSTRAP TOPIC DIRECTORY LAG_MINUTES RECORDS_A_BATCH
Rows that are lost leave as expired ones, so that the table counts them exactly, whatever is killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.window_flights import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

KEYS = ("carrier", "dest", "tailnum")
TABLE = "hours"
BEHIND = "60 days"


def hours_of_keys(
    spark: SparkSession, bootstrap: str, topic: str, directory: Path, lag_minutes: int, most: int
) -> DataStreamWriter:
    """The query, which reads the topic to its end in batches of so many records."""
    from keyedwm.spark import aggregate, count, per_key, tumbling

    one = ", ".join(f"named_struct('what', '{name}', 'key', values[{at}])" for at, name in enumerate(KEYS))
    rows = (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(most))
        .option("watermarkLag", "1 day")
        .option("idleTimeout", "none")
        .load()
        .where("control IS NOT NULL OR value IS NOT NULL")  # one without a value closes all windows
        .selectExpr("*", "split(cast(value AS string), ',') values")
        .selectExpr(
            f"inline(CASE WHEN control IS NULL THEN array({one}) ELSE array(named_struct('what', '', 'key', '')) END)",
            "topic", "partition", "offset", "event_time", "watermark", "control",
        )
    )  # fmt: skip
    hours = aggregate(
        rows, ["what", "key"], tumbling("1 hour"), {"flights": count()}, late="emit", name="hours",
        key_watermark=per_key(f"{lag_minutes} minutes", behind=BEHIND),
    )  # fmt: skip
    results = hours.selectExpr("what", "key", "window.end", "flights", "pane.timing", "control")
    writer = results.writeStream.format("keyedwm").option("path", str(directory / TABLE))
    return writer.option("checkpointLocation", str(directory / "check")).trigger(availableNow=True)


def main(bootstrap: str, topic: str, directory: str, lag_minutes: str, most: str) -> None:
    spark = session()
    hours_of_keys(spark, bootstrap, topic, Path(directory), int(lag_minutes), int(most)).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
