"""Two queries in a chain: Kafka to Kafka with control rows inline, and from there, propagated, to a Delta table.

Run: python -m tests.e2e.chain BOOTSTRAP TOPIC DIRECTORY forever|to-the-end   (the topic between is TOPIC-between)
To the end twice: the file `came-through` says when the first time is over, and the second one begins with `more`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from keyedwm.spark import start_in_turn
from tests.e2e.pipeline import session
from tests.tools import wait_for_markers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

BITE = "40"  # offsets a batch


def between(topic: str) -> str:
    return f"{topic}-between"


def _source(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("keyedwm").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def upstream(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> DataStreamWriter:
    rows = _source(spark, bootstrap, topic, eventTime="json:$.t", maxOffsetsPerTrigger=BITE, idleTimeout="none").drop(
        "partition"
    )
    options = {"kafka.bootstrap.servers": bootstrap, "topic": between(topic), "controlRows": "inline"}
    return rows.writeStream.format("keyedwm").options(
        **options, checkpointLocation=str(directory / "upstream.checkpoint")
    )


def downstream(spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> DataStreamWriter:
    rows = _source(spark, bootstrap, between(topic), propagate="true")  # event times are those that upstream wrote
    return rows.writeStream.format("keyedwm").options(
        path=str(directory / "table"), checkpointLocation=str(directory / "downstream.checkpoint")
    )


def to_the_end(writers: list[DataStreamWriter], bootstrap: str, topic: str) -> None:
    for writer in writers:
        writer.trigger(availableNow=True).start().awaitTermination()
        wait_for_markers(bootstrap, between(topic))  # what the first one committed last must be there for the second


def main(bootstrap: str, topic: str, directory: str, mode: str) -> None:
    spark = session()
    writers = [make(spark, bootstrap, topic, Path(directory)) for make in (upstream, downstream)]
    if mode == "to-the-end":
        to_the_end(writers, bootstrap, topic)
        (Path(directory) / "came-through").touch()
        while not (Path(directory) / "more").exists():
            time.sleep(0.05)
        to_the_end(writers, bootstrap, topic)
    else:
        start_in_turn(*writers)
        (Path(directory) / "running").touch()
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
