"""The exporters by name and their common contract, and the listener that reports a session's queries to them.

Rule: the listener runs on Spark's listener thread and never blocks; a thread of its own reads the checkpoint.
"""

from __future__ import annotations

import itertools
import logging
import threading
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.spark.failures.checkpoint_errors import Failures
from keyedwm.spark.metrics.batch_figures import SourceFigures
from keyedwm.spark.metrics.figures import Figures
from pyspark_wm_source.values.checkpoint import committed_sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery


LOG = logging.getLogger("keyedwm.metrics")
_NUMBERS = itertools.count(1)  # of listeners


class Exporter(Protocol):
    """An exporter of figures to one system."""

    @property
    def place(self) -> str:
        """Where the figures are: an address, a path, or a name."""

    def changed(self) -> None:
        """Notify the exporter that figures have changed; returns at once."""

    def close(self) -> None:
        """Send the last figures, if the exporter sends, and release port, thread or registration."""


class ExporterName(Enum):
    """The exporters, by the name that users give."""

    PROMETHEUS = "prometheus"
    PUSH_GATEWAY = "pushgateway"
    TEXT_FILE = "textfile"
    OPENTELEMETRY = "opentelemetry"

    @property
    def extra(self) -> str:
        """The extra of this package that installs the exporter's library."""
        return "otel" if self is ExporterName.OPENTELEMETRY else "prometheus"


def require_library(name: ExporterName) -> None:
    """Raise OptionError if the library of an exporter is not installed."""
    package, module = {
        "prometheus": ("prometheus-client", "prometheus_client"),
        "otel": ("opentelemetry-sdk", "opentelemetry.metrics"),
    }[name.extra]
    try:
        import_module(module)
    except ImportError as error:
        raise OptionError(
            f"metrics: exporter={name.value!r} needs {package}, which is not installed: "
            f"pip install 'keyedwm[{name.extra}]'"
        ) from error


class MetricsListener(StreamingQueryListener):
    """Passes events to the figures, notifies the exporter, and has errors of queries written to their checkpoints."""

    def __init__(self, figures: Figures, exporter: Exporter, failures: Failures) -> None:
        self._figures = figures
        self._exporter = exporter
        self._failures = failures
        self._session = next(_NUMBERS)

    def add_running(self, queries: Iterable[StreamingQuery]) -> None:
        """Add the runs that began before this listener: no event reports their starts."""
        for query in queries:
            self._add(str(query.id), str(query.runId), query.name)
            if not query.isActive:  # its end may have been reported before it was added
                self._figures.terminated(str(query.id), str(query.runId), failed=query.exception() is not None)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Add a run that starts."""
        self._add(str(event.id), str(event.runId), event.name)

    def _add(self, query: str, run: str, name: str | None) -> None:
        self._figures.started(query, run, name, self._session)
        self._exporter.changed()
        checkpoint = self._failures.started(query)
        if checkpoint is not None:
            threading.Thread(target=self._resume, args=(query, run, checkpoint), daemon=True).start()

    def _resume(self, query: str, run: str, checkpoint: str) -> None:
        """Show the last committed batch until the run has a batch: without new records a start plans no batch."""
        try:
            committed = committed_sources(checkpoint)
        except KeyedwmError as error:
            LOG.warning("query %s has no figures before its first batch: %s", query, error)
            return
        self._figures.resumed(query, run, {n: SourceFigures.of_log(one) for n, one in committed.items()})
        self._exporter.changed()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add the figures of a batch."""
        self._figures.progressed(event.progress, self._session)
        self._exporter.changed()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Update the time of the last event: there was nothing to read."""
        self._figures.idle(str(event.id), str(event.runId))
        self._exporter.changed()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Record the end of a run, and its error."""
        self._figures.terminated(str(event.id), str(event.runId), failed=event.exception is not None)
        self._exporter.changed()
        self._failures.terminated(str(event.id), event.exception)
