"""Start several queries in one Spark session.

Rule: the next one starts when Spark has set up the sources of the one before. Spark 4.3 keeps one map of environment
variables for all queries of a Python source, and each query writes in it as its source is set up. Two that write at
the same moment can break the map for the life of the JVM: every query then ends with "Task not serializable", caused
by "Illegal size 5 of collection, expected 6".
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import named

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOOK_S = 0.02
# Spark's words for a query whose sources are not there yet: `Initializing StreamExecution`, `Initializing sources`.
_SETTING_UP = "Initializing"


def start_in_turn(*writers: DataStreamWriter) -> list[StreamingQuery]:
    """Start the queries one after another and return them in that order.

    A query that ends while it is set up is returned like the others; its own `exception()` says why. Raises
    OptionError before anything starts if one of them cannot be started.
    """
    for writer in writers:
        if not hasattr(writer, "start"):
            raise OptionError(
                f"start_in_turn: {named(writer)} is no writer of a stream: give df.writeStream..., not started"
            )
    queries = []
    for writer in writers:
        query = writer.start()
        while query.isActive and query.status["message"].startswith(_SETTING_UP):
            time.sleep(_LOOK_S)
        queries.append(query)
    return queries
