"""A Spark of its own, run as a program: other jars, another order of the plugin packages. Prints its findings as JSON.

Run: python -m tests.spark.other_session TASK BOOTSTRAP TOPIC DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def session(**settings: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stream(spark: SparkSession, form: str, bootstrap: str, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format(form).options(**(given | options)).load()


def to_the_end(frame: DataFrame, name: str, directory: Path) -> list[dict[str, Any]]:
    """Run a stream over all there is into the table `name` of this session's memory; gives Spark's progress."""
    writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(directory / name))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def side_by_side(bootstrap: str, topic: str, directory: Path) -> dict[str, Any]:
    """The same topic by Spark's own connector and by ours: schemas, rows, and what a skewed watermark loses."""
    from pyspark.sql import functions as F

    from examples.demo.spark_jars import spark_kafka_connector_jars

    spark = session(**{"spark.jars": ",".join(map(str, spark_kafka_connector_jars()))})
    both = {form: stream(spark, form, bootstrap, topic, includeHeaders="true") for form in ("kafka", "keyedwm")}
    for form, frame in both.items():
        to_the_end(frame, form, directory)
    native = spark.table("kafka").select(*KAFKA_COLUMNS)
    ours = spark.table("keyedwm").where("control IS NULL").select(*KAFKA_COLUMNS)
    counted = (
        stream(spark, "kafka", bootstrap, topic, maxOffsetsPerTrigger="10")
        .withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "1 minute"), "partition")
        .count()
    )
    progress = to_the_end(counted, "counted", directory)
    return {
        "native_schema": [(f.name, f.dataType.simpleString()) for f in both["kafka"].schema],
        "our_schema": [(f.name, f.dataType.simpleString()) for f in both["keyedwm"].schema],
        "rows": native.count(),
        "only_native": native.exceptAll(ours).count(),
        "only_ours": ours.exceptAll(native).count(),
        "dropped": sum(op["numRowsDroppedByWatermark"] for p in progress for op in p["stateOperators"]),
    }


def through(bootstrap: str, topic: str, directory: Path) -> dict[str, Any]:
    """Read and write in one query, found by discovery alone."""
    import pyspark_wm_sink
    import pyspark_wm_source

    spark = session()
    frame = stream(spark, "keyedwm", bootstrap, topic)
    writer = frame.writeStream.format("keyedwm").option("path", str(directory / "table"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return {
        "packages": [str(Path(module.__file__).parent.parent) for module in (pyspark_wm_sink, pyspark_wm_source)],
        "order": [name for name in discovered() if name.startswith("pyspark_wm_")],
    }


def discovered() -> list[str]:
    """Top-level modules in the order in which Spark's discovery meets them."""
    from pkgutil import iter_modules

    return [module.name for module in iter_modules()]


if __name__ == "__main__":
    task = {"side_by_side": side_by_side, "through": through}[sys.argv[1]]
    found = task(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    print(json.dumps(found))
