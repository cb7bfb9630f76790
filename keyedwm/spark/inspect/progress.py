"""What a query's keyedwm sources say of its batches, as values and in the log of the user's own program.

Rule: batches are planned in a Python process that Spark starts, whose log the program does not see. What it says goes
through Spark's progress, where PySpark makes one JSON text of it: it is read back here.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import named, require_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery

LOG = logging.getLogger("keyedwm.source")
_MARK = "held_by"  # a field that only our sources report


def source_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return what each keyedwm source said in the query's last progress: log ends, watermarks, who holds them and why.

    The fields stand on the page of the source ("What you see"). Empty before the first progress.
    """
    if not hasattr(query, "lastProgress"):
        raise OptionError(f"source_progress: query={named(query)}: a query is expected, as start() gives it")
    last = query.lastProgress
    return [] if last is None else _facts(last)


def log_progress(spark: SparkSession) -> StreamingQueryListener:
    """Write what `source_progress` returns to the logger `keyedwm.source`, level INFO: a line per batch and source.

    For all queries of the session, those included that run already. `logging.basicConfig(level=logging.INFO)` shows it;
    `spark.streams.removeListener` of what is returned ends it.
    """
    require_session(spark, "log_progress")
    listener = _Listener()
    spark.streams.addListener(listener)
    return listener


def _facts(progress: StreamingQueryProgress) -> list[dict[str, Any]]:
    found = []
    for source in progress.sources:
        try:
            told = json.loads(source.latestOffset or "null")
        except ValueError:
            continue  # another source's own format
        if isinstance(told, dict) and _MARK in told:
            found.append(told)
    return found


class _Listener(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name = event.progress.name or event.progress.id
        for facts in _facts(event.progress):
            LOG.info("query %s planned %s", name, json.dumps(facts))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
