"""The program that the stores' test kills: median delays by origin and hour, and the flights that come too late.

Run: python -m tests.e2e.store_flights BOOTSTRAP TOPIC DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.e2e.window_flights import session

BITE = "1500"
LAG = "1 minute"  # flights are up to 1,301 minutes late: some change their hour's median, some come too late
RETENTION, MOST_MESSAGES = "6 hours", 150


def main(bootstrap: str, topic: str, directory: str) -> None:
    from keyedwm.spark import Store, aggregate, count, median, tumbling

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
        .selectExpr(
            "cast(key as string) origin", "cast(get_json_object(cast(value as string), '$.dep_delay') as double) delay",
            "topic", "partition", "offset", "event_time", "watermark", "control",
        )
    )  # fmt: skip
    hours = aggregate(
        rows, "origin", tumbling("1 hour"), {"flights": count(), "delay": median("delay")}, name="hours",
        store=Store(retention=RETENTION, max_messages=MOST_MESSAGES), late="emit",
    )  # fmt: skip
    places = {name: str(Path(directory) / name) for name in ("hours", "rejected", "check")}
    writer = hours.writeStream.format("keyedwm").option("path", places["hours"]).option("errorsTo", places["rejected"])
    query = writer.option("checkpointLocation", places["check"]).trigger(availableNow=True).start()
    query.awaitTermination()
    told = [one for progress in query.recentProgress for one in progress.observedMetrics.values()]
    print("dropped", sum(one.dropped_rows or 0 for one in told), flush=True)
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
