"""The listener that takes the events of a session's queries.

Rule: it works on Spark's listener thread and waits for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyedwm.spark.metrics.exporter import Exporter
from keyedwm.spark.metrics.figures import Figures

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class MetricsListener(StreamingQueryListener):
    """Hands events to the figures, and says to the exporter that there are new ones."""

    def __init__(self, figures: Figures, exporter: Exporter) -> None:
        self._figures = figures
        self._exporter = exporter

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Take note of a run that begins."""
        self._figures.started(str(event.id), str(event.runId), event.name, id(self))
        self._exporter.changed()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take the figures of a batch."""
        self._figures.progressed(event.progress, id(self))
        self._exporter.changed()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Take note that there was nothing to read."""
        self._figures.idle(str(event.id), str(event.runId))
        self._exporter.changed()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Take note of the end of a run."""
        self._figures.terminated(str(event.id), str(event.runId), failed=event.exception is not None)
        self._exporter.changed()
