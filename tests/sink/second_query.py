"""A second copy of a query, in a Spark of its own: one Spark does not run two queries of one id.

Run: python -m tests.sink.second_query BOOTSTRAP TOPIC TABLE CHECKPOINT   (prints the error that stopped it)
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PATIENCE_S = 300


def start(spark: SparkSession, bootstrap: str, topic: str, table: str, checkpoint: str) -> StreamingQuery:
    """The query; every copy is the same but for its checkpoint."""
    rows = spark.readStream.format("keyedwm").option("kafka.bootstrap.servers", bootstrap)
    rows = rows.options(subscribe=topic, startingOffsets="earliest", idleTimeout="none").load()
    return rows.writeStream.format("keyedwm").options(path=table, checkpointLocation=checkpoint).start()


def main(bootstrap: str, topic: str, table: str, checkpoint: str) -> None:
    from pyspark.errors import StreamingQueryException

    from tests.e2e.pipeline import session

    query = start(session(), bootstrap, topic, table, checkpoint)
    try:
        print("it went on" if query.awaitTermination(PATIENCE_S) is False else "it ended", flush=True)
    except StreamingQueryException as error:
        print(error, flush=True)


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
