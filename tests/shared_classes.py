"""Files of the classes of Spark and of Kafka as a JVM keeps them in memory: the many JVMs of the tests load them and
start in half the processor time. Rule: JDK class data sharing, JEP 350; a JVM for which a file does not fit runs
without it.

Run: python -m tests.shared_classes spark|kafka FILE
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from keyedwm.testing import local

BUILD = Path(__file__).parents[1] / "build"
ARCHIVE, KAFKA = BUILD / "spark-classes.jsa", BUILD / "kafka-classes.jsa"
# Short programs: the optimising compiler and collector threads cost more than they bring.
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_TOPIC = "classes"
_BATCHES = 2


def java_options(archive: Path = ARCHIVE) -> str:
    """Options of a JVM in a test: of Spark's driver by SPARK_SUBMIT_OPTS, of a cluster's processes, of a broker."""
    return f"{SHORT} {_SILENT} -XX:SharedArchiveFile={archive}" if archive.exists() else SHORT


def _recording(archive: Path) -> str:
    archive.parent.mkdir(parents=True, exist_ok=True)
    return f"{SHORT} {_SILENT} -XX:ArchiveClassesAtExit={archive}"


def write_kafka(archive: Path) -> None:
    """Run a broker that does what tests ask of one, and write the classes that it loaded when it ends by itself."""
    from tests.tools import Record, make_internal_topics, make_topic, produce

    os.environ[local.JAVA_OPTIONS] = _recording(archive)
    with local.local_broker() as broker:
        make_internal_topics(broker.bootstrap)
        make_topic(broker.bootstrap, _TOPIC, 2)
        produce(broker.bootstrap, _TOPIC, [Record(at % 2, at * 300, b"%d" % at) for at in range(8)])
        broker.stop()


def write_spark(archive: Path) -> None:
    """Run what tests usually run, and write the classes that Spark loaded."""
    os.environ["SPARK_SUBMIT_OPTS"] = _recording(archive)
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
    # A broker has a working directory of its own.
    {"spark": write_spark, "kafka": write_kafka}[sys.argv[1]](Path(sys.argv[2]).resolve())
