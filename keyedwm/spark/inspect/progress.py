"""What a query's keyedwm sources say of its batches, as values and in the log of the user's own program.

Rule: batches are planned in a Python process that Spark starts, whose log the program does not see. What it says goes
through Spark's progress, where PySpark makes one JSON text of it: it is read back here.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.spark.arguments import named, require_session
from keyedwm.spark.facts import facts_of
from keyedwm.spark.inspect.status_line import StatusLines

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


def source_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return what each keyedwm source said in the query's last progress: log ends, watermarks, who holds them and why.

    The fields stand on the page of the source ("What you see"). Empty before the first progress.
    """
    if not hasattr(query, "lastProgress"):
        raise OptionError(f"source_progress: query={named(query)}: a query is expected, as start() gives it")
    last = query.lastProgress
    return [] if last is None else _facts(last)


def log_progress(spark: SparkSession, every: str = "5 minutes") -> StreamingQueryListener:
    """Write to the logger `keyedwm.source`, level INFO, where each source stands: its watermark, who holds it and why.

    A line comes at the first batch, once in `every`, and when the watermark has stood for a minute or moves again; what
    `source_progress` returns follows each batch at level DEBUG. For all queries of the session, those included that run
    already. `logging.basicConfig(level=logging.INFO)` shows it; `spark.streams.removeListener` of what is returned ends
    it.
    """
    require_session(spark, "log_progress")
    listener = _Listener(StatusLines(duration_ms("every", every) / 1_000))
    spark.streams.addListener(listener)
    return listener


def _facts(progress: StreamingQueryProgress) -> list[dict[str, Any]]:
    return [facts for source in progress.sources if (facts := facts_of(source)) is not None]


class _Listener(StreamingQueryListener):
    def __init__(self, lines: StatusLines) -> None:
        self._lines = lines
        self._names: dict[uuid.UUID, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name = self._names[event.progress.id] = event.progress.name or str(event.progress.id)
        for number, source in enumerate(event.progress.sources):
            facts = facts_of(source)
            if facts is None:
                continue
            line = self._lines.line(name, number, facts, time.time())
            if line is not None:
                LOG.info("%s", line)
            if LOG.isEnabledFor(logging.DEBUG):
                LOG.debug("query %s planned %s", name, json.dumps(facts))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.id in self._names:
            self._lines.forget(self._names.pop(event.id))
