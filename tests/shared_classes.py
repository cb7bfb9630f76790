"""A file of Spark's classes as a JVM keeps them in memory: the many Spark processes of the tests load it and start in
half the processor time. Rule: JDK class data sharing, JEP 350; a JVM for which the file does not fit goes without it.

Run: python -m tests.shared_classes FILE
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "build" / "spark-classes.jsa"
# Short programs: the optimising compiler and collector threads cost more than they bring.
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
_BATCHES = 2
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def java_options(archive: Path = ARCHIVE) -> str:
    """What a JVM of Spark is given in a test: the driver's by spark-submit (SPARK_SUBMIT_OPTS), and a cluster's."""
    return f"{SHORT} {_SILENT} -XX:SharedArchiveFile={archive}" if archive.exists() else SHORT


def main(archive: Path) -> None:
    """Run what tests usually run, and write the classes that it loaded."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT} {_SILENT} -XX:ArchiveClassesAtExit={archive}"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from keyedwm.spark import recommended_conf

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false")
    for name, value in recommended_conf(cores=2).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        changed = rows.mapInArrow(lambda batches: batches, rows.schema).withWatermark("timestamp", "1 second")
        counts = changed.groupBy(F.window("timestamp", "1 second")).count()
        writer = counts.writeStream.format("memory").queryName("counts").option("checkpointLocation", checkpoint)
        query = writer.start()
        while query.isActive and len(query.recentProgress) < _BATCHES:
            query.awaitTermination(1)
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
