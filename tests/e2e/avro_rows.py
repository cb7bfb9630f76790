"""Rows of Avro through the source into a Delta table, by a program that is killed; a query that fails starts again.

Run: python -m tests.e2e.avro_rows BOOTSTRAP REGISTRY TOPIC DIRECTORY CACHE ON_BAD
Each error of a query is a line of DIRECTORY/errors.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "avro:$.number::bigint, avro:$.kind, avro:$.note, schema_id, topic, partition, offset, event_time, watermark, "
    "control"
)
_PAUSE_S = 0.3


def rows(spark: SparkSession, bootstrap: str, url: str, topic: str, cache: str, on_bad: str) -> DataFrame:
    """The rows of a topic, with the reason of those that are rejected."""
    from keyedwm.spark import kafka

    rejects = on_bad == "reject"
    read = kafka(
        spark, bootstrap, subscribe=topic, starting_offsets="earliest", max_offsets_per_trigger=40,
        value_format="avro-confluent", schema_registry_url=url, schema_registry_cache=cache,
        schema_registry_timeout="600 milliseconds", on_bad_value=on_bad, event_time="avro:$.ts",
        columns=COLUMNS + (", rejected" if rejects else ""),
    )  # fmt: skip
    return read.load().selectExpr(
        "number", "kind", "note", "schema_id", "partition", "offset", "event_time", "watermark", "control",
        "rejected.reason AS reason" if rejects else "cast(null AS string) AS reason",
    )  # fmt: skip


def main(bootstrap: str, url: str, topic: str, place: str, cache: str, on_bad: str) -> None:
    """Run the query until this process is killed."""
    from tests.e2e.window_flights import session

    directory = Path(place)
    spark = session()
    spark.sparkContext.setLogLevel("OFF")
    frame = rows(spark, bootstrap, url, topic, cache, on_bad)
    while True:
        writer = frame.writeStream.format("keyedwm").option("path", str(directory / "table"))
        query = writer.option("checkpointLocation", str(directory / "check")).start()
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  whatever it is, it is written down and the query starts again
            message = " ".join(str(error).split("\n\nDriver stacktrace")[0].split())
            with (directory / "errors").open("a", encoding="utf-8") as errors:
                errors.write(f"{message}\n")
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
