"""The program that runs in an environment which was shipped: it copies a topic into files, and says what ran where.

Run: environment/bin/python shipped.py JSON   (no checkout on the path; the fields of `test_shipped`)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import keyedwm.spark  # noqa: F401  says the reason last


def noting(place: str) -> Any:
    """A function of `mapInArrow` that passes rows on, and notes which Pythons its executor runs, and which keyedwm."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import uuid

        import keyedwm

        # The parent of this process is PySpark's daemon, its parent is the JVM, which has one daemon for each Python.
        executor = field(os.getppid(), 1)
        below = [int(name) for name in os.listdir("/proc") if name.isdigit() and field(int(name), 1) == executor]  # noqa: PTH208
        note = {
            "pythons": [words[0] for words in map(command, below) if "-m" in words],
            "package": keyedwm.__file__,
            "at": os.getcwd(),  # noqa: PTH109
        }
        with open(f"{place}/{uuid.uuid4().hex}", "w") as file:  # noqa: PTH123  the closure travels to executors
            json.dump(note, file)
        yield from batches

    def command(pid: int) -> list[str]:
        try:
            with open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123
                return file.read().split("\0")
        except OSError:
            return []  # it has ended meanwhile

    def field(pid: int, number: int) -> int:
        try:
            with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
                return int(file.read().rpartition(")")[2].split()[number])
        except OSError:
            return -1

    return rows


def main(given: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(given["master"]).appName("shipped")
    for name, value in given["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for path in given["py_files"]:
        spark.sparkContext.addPyFile(path)  # what `--py-files` does
    rows = (
        spark.readStream.format("keyedwm")
        .option("kafka.bootstrap.servers", given["bootstrap"])
        .option("subscribe", given["topic"])
        .option("startingOffsets", "earliest")
        .option("minPartitions", "2")
        .load()
        .filter("control is null")
        .select("value")
    )
    query = (
        rows.mapInArrow(noting(given["notes"]), rows.schema)
        .writeStream.format("parquet")
        .option("path", given["out"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
