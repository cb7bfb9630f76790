"""A session that runs the first batches of windows, over loaded rows and with stage one in the source.

Run: python -m keyedwm.cli.warm.first_query ARCHIVE CLASS_PATH
Its JVM writes the classes that it has loaded into the file ARCHIVE when it ends. The file CLASS_PATH gets the JVM's
class path. There is no Kafka: the broker is the simulated one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from keyedwm.spark import aggregate, count, session_conf, tumbling
from keyedwm.spark.setup.cds_archive import SETTING, quoted
from keyedwm.testing import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Java's reasons for writing no archive are errors; its warnings name thousands of classes.
_LOG = "-Xlog:disable -Xlog:cds*=error:stderr"
_CORES = 2
_MINUTE_MS = 60_000


def main(archive: Path, class_path: Path) -> None:
    """Run the session."""
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        **session_conf(cores=_CORES),
        SETTING: f"{_LOG} -XX:ArchiveClassesAtExit={quoted(archive)}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    with TemporaryDirectory() as directory:
        os.chdir(directory)  # Spark may write beside it
        spark = SparkSession.builder.master(f"local[{_CORES}]").config(map=settings).getOrCreate()
        jvm: Any = spark._jvm  # noqa: SLF001  no public name
        class_path.write_text(jvm.System.getProperty("java.class.path"))
        steps = [[pipeline.Record(minute * _MINUTE_MS, key="warm", value="")] for minute in range(3)]
        for pushed in (False, True):
            pipeline.run(spark, _windows, steps, pushed=pushed)
        spark.stop()


def _windows(rows: Any) -> DataFrame:
    return aggregate(rows, "key", tumbling("1 minute"), {"n": count()})


if __name__ == "__main__":
    main(*(Path(argument).absolute() for argument in sys.argv[1:]))
