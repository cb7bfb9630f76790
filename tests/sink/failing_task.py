"""A batch write whose task fails once, after it has written: Spark runs it again.

Run: python -m tests.sink.failing_task BOOTSTRAP TOPIC DIRECTORY
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

ROWS = 6_000


def main(bootstrap: str, topic: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    from tests.tools import cluster_at, register_where_spark_cannot_find, wait_until

    failed = Path(directory) / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not failed.exists():
            wait_until(lambda: cluster_at(bootstrap).latest([(topic, 0)])[topic, 0], "records in the log")
            failed.write_text("")
            raise RuntimeError("a task that fails once")

    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")  # rows must flow on while the task still runs
        .getOrCreate()
    )
    register_where_spark_cannot_find(spark)
    # Larger than what a task holds back: some of it is in Kafka when the task fails.
    values = spark.range(0, ROWS, 1, 2).selectExpr("concat(id, repeat(' ', 8000)) as value")
    rows = values.mapInArrow(fail_once, "value string")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    rows.write.format("keyedwm").mode("append").options(**options).save()
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
