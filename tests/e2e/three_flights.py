"""The program that the windows' tests kill: three queries over real flights in one Spark, each into tables of its own.

Run: python -m tests.e2e.three_flights BOOTSTRAP DIRECTORY TOPIC...   (a topic for each of QUERIES, in that order)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.e2e.per_key_flights import hours_of_keys
from tests.e2e.store_flights import medians
from tests.e2e.window_flights import hours, session

QUERIES = ("windows", "keys", "store")  # the name of a query is that of its directory
LAG_MINUTES, BITE_OF_KEYS = 15, 1_500


def main(bootstrap: str, directory: str, *topics: str) -> None:
    from keyedwm.spark import start_in_turn

    spark = session()
    of_query = zip(QUERIES, topics, strict=True)
    windows, keys, store = ((spark, bootstrap, topic, Path(directory, of)) for of, topic in of_query)
    for query in start_in_turn(hours(*windows), hours_of_keys(*keys, LAG_MINUTES, BITE_OF_KEYS), medians(*store)):
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    main(*sys.argv[1:])
