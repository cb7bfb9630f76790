"""A Spark for the demo: two cores of this machine, and quiet.

Rule: what Spark writes while it starts and runs goes to a log file; the terminal is the demo's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from keyedwm.spark.setup.conf import FILE_SYSTEM, MANAGER

# Many tiny batches for a few minutes: on two cores the optimising compiler costs more than it brings.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
_END_LIMIT_S = 300


@contextmanager
def session(home: Path, jars: Sequence[Path]) -> Iterator[SparkSession]:
    """A running Spark with these jars; `home` takes its log and its scratch files."""
    # Spark looks our format up with this interpreter, and runs its workers with it.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    home.mkdir()
    with _output_to(home / "log"):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("keyedwm demo")
            .config("spark.jars", ",".join(map(str, jars)))
            .config("spark.local.dir", str(home / "scratch"))
            .config("spark.sql.warehouse.dir", str(home / "warehouse"))
            .config("spark.log.level", "ERROR")
            .config("spark.driver.extraJavaOptions", _JAVA)
            # The default one starts a process `readlink` for each look at a file of the checkpoint.
            .config(MANAGER, FILE_SYSTEM)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.streaming.numRecentProgressUpdates", "1000000")
            .getOrCreate()
        )
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 (no public way to wait for Spark's process)
    try:
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()  # or objects that are collected later would still tell Spark, and log that it is gone
        gateway.proc.stdin.close()  # Spark's Java ends when its stdin does
        gateway.proc.wait(_END_LIMIT_S)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Points this process's stdout and stderr at `log`: processes started within keep them there for good."""
    sys.stdout.flush()
    sys.stderr.flush()
    copies = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in copies:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, before in copies.items():
            os.dup2(before, number)
            os.close(before)
