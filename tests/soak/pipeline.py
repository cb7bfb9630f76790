"""The program that a soak kills: windows into Delta and a copy into Kafka, in one session, as the README has them.

Run: python -m tests.soak.pipeline BOOTSTRAP TOPIC DIRECTORY
A query that failed starts again from its checkpoint; `failures.jsonl` has the reason. The program ends with its parent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

TRIGGER = "1 second"
LOOK_S, AGAIN_S = 0.5, 1.0
DIGITS = 12  # of an offset in the copy


def started_windows(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> StreamingQuery:
    """Start the windows: the count and the sum of the offsets of each key."""
    from pyspark.sql import functions as F

    from keyedwm.spark import aggregate, count, kafka, tumbling
    from keyedwm.spark import sum as sum_of

    rows = kafka(
        spark, bootstrap, subscribe=topic, starting_offsets="earliest", watermark_lag="1 second", idle_timeout="none"
    )
    windows = aggregate(rows, "key", tumbling("10 seconds"), {"n": count(), "offsets": sum_of("offset")})
    windows = windows.withColumn("start_ms", F.unix_millis("window.start")).drop("window")
    writer = windows.writeStream.format("keyedwm").queryName("windows").option("path", str(directory / "windows"))
    return _start(writer, directory / "windows.checkpoint")


def started_copy(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> StreamingQuery:
    """Start the copy: each record's offset, as digits, in the partition that the record has."""
    from keyedwm.spark import kafka

    rows = kafka(
        spark, bootstrap, subscribe=topic, starting_offsets="earliest", watermark_lag="1 second", idle_timeout="none"
    ).load()
    rows = rows.selectExpr(
        "partition", f"lpad(string(offset), {DIGITS}, '0') value", "event_time", "watermark", "control"
    )
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": f"{topic}-copy",
        "ledger": str(directory / "ledger"),
    }
    writer = rows.writeStream.format("keyedwm").queryName("copy").options(**options)
    return _start(writer, directory / "copy.checkpoint")


def _start(writer: object, checkpoint: Path) -> StreamingQuery:
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=TRIGGER).start()


def main(bootstrap: str, topic: str, directory: Path) -> None:
    """Keep both queries running until the parent ends."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    import keyedwm.spark  # noqa: F401  registers the formats before the session begins
    from keyedwm.spark import session_conf

    parent = os.getppid()
    conf = {**session_conf(cores=2), "spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    starts: dict[str, Callable[[], StreamingQuery]] = {
        "windows": partial(started_windows, spark, bootstrap, topic, directory),
        "copy": partial(started_copy, spark, bootstrap, topic, directory),
    }
    running: dict[str, StreamingQuery] = {}
    while os.getppid() == parent:
        for name, start in starts.items():
            query = running.get(name)
            try:
                if query is None:
                    running[name] = start()
                elif not query.isActive:
                    raise query.exception() or RuntimeError(f"query {name} ended without an error")
            except PySparkException as error:
                running.pop(name, None)
                with (directory / "failures.jsonl").open("a") as file:
                    file.write(json.dumps({"at_s": time.time(), "query": name, "error": str(error)}) + "\n")
                time.sleep(AGAIN_S)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
