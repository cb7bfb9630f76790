"""Errors of a session's queries, written into their checkpoints: a listener reports them, whatever raised them.

Rule: a thread of its own writes the error, since a listener waits for nobody. The end of the program waits for this
thread: most programs end with the error of their query. A session of Spark Connect writes nothing: it does not know
where a checkpoint is.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from keyedwm.core.text import MOST_WORDS, shortened
from keyedwm.last_error import leave_error
from keyedwm.savepoint_files import Files
from keyedwm.spark.failures.reason import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Failures:
    """Knows the checkpoint of each query that runs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._checkpoints = {str(query.id): checkpoint_of(query) for query in spark.streams.active}

    def started(self, query_id: str) -> str | None:
        """Take note of a query. Returns where its checkpoint is, None if this side does not know."""
        query = self._spark.streams.get(query_id)
        if query is not None:
            self._checkpoints[query_id] = checkpoint_of(query)
        return self._checkpoints.get(query_id)

    def terminated(self, query_id: str, exception: str | None) -> None:
        """Write the error, if the query ended with one. exception: Spark's text, with its stack."""
        checkpoint = self._checkpoints.get(query_id)  # kept: Spark may have reported the next run's start before
        if exception is not None and checkpoint is not None:
            text = reason(exception) or shortened(exception.splitlines()[0], MOST_WORDS)
            threading.Thread(target=leave_error, args=(Files(checkpoint), text)).start()


def checkpoint_of(query: StreamingQuery) -> str | None:
    """Return where Spark keeps the checkpoint; None if this side does not know."""
    java = getattr(query, "_jsq", None)
    return None if java is None else str(java.streamingQuery().resolvedCheckpointRoot())
