"""Progress of a query's keyedwm sources, as values and in the log of the user's own program.

Rule: batches are planned in a Python process that Spark starts, whose log the program does not see. Its facts go
through Spark's progress, where PySpark makes one JSON text of them: this module parses the text.

A status line has the watermark of a query, the partition that blocks it with the cause, and the backlog. It is due at
the first batch, once in an interval, and when the watermark has stood for a minute or advances again. The slowest
partition changes from batch to batch in a healthy query, so that alone makes no line.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from keyedwm.arrow.instants import instant_ms
from keyedwm.config.validation import duration_ms
from keyedwm.core.errors import OptionError
from keyedwm.core.text import about_span
from keyedwm.spark.arguments import argument_text, require_session
from keyedwm.spark.failures.checkpoint_errors import Failures, checkpoint_of
from keyedwm.spark.metrics.batch_figures import facts_of, facts_of_log
from pyspark_wm_source.values.checkpoint import committed_sources

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


_STANDS_S = 60.0


@dataclass
class _SourceProgress:
    """The status lines of a source. advances: key → the watermark, and when it was first reported (s).

    printed_s: the time of the last line, None before the first. stood: whether a watermark stood in the last line.
    """

    printed_s: float | None = None
    stood: bool = False
    advances: dict[str, tuple[str | None, float]] = field(default_factory=dict)


class StatusLines:
    """Decides of each source of each query when its line is due. every_s: the interval."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._sources: dict[tuple[str, int], _SourceProgress] = {}

    def line(self, query: str, source: int, facts: Mapping[str, Any], now_s: float) -> str | None:
        """Return the line after a batch; None if none is due. facts: as `source_progress` gives them."""
        state = self._sources.setdefault((query, source), _SourceProgress())
        for key, watermark in facts["watermark"].items():
            if key not in state.advances or state.advances[key][0] != watermark:
                state.advances[key] = watermark, now_s
        stands = any(now_s - since_s >= _STANDS_S for _, since_s in state.advances.values())
        is_due = state.printed_s is None or now_s - state.printed_s >= self._every_s
        if not is_due and stands == state.stood:
            return None
        state.printed_s, state.stood = now_s, stands
        subject = f"query {query}" + (f", source {source}" if source else "")
        since_s = {key: moved_s for key, (_, moved_s) in state.advances.items()}
        return f"{subject}: " + "; ".join([*_watermarks(facts, since_s, now_s), *_rest(facts)])

    def forget(self, query: str) -> None:
        """Forget a query that ended."""
        self._sources = {place: progress for place, progress in self._sources.items() if place[0] != query}


def _watermarks(facts: Mapping[str, Any], since_s: Mapping[str, float], now_s: float) -> Iterator[str]:
    for key, watermark in facts["watermark"].items():
        of_key = f" of key {key}" if len(facts["watermark"]) > 1 else ""
        if watermark is None:
            text = f"no watermark{of_key} yet"
        else:
            delay_ms = round(1_000 * now_s) - instant_ms(watermark)
            side = "behind" if delay_ms >= 0 else "ahead of"
            text = f"watermark{of_key} {watermark}, {about_span(abs(delay_ms))} {side} the clock"
        stood_s = now_s - since_s[key]
        if stood_s >= _STANDS_S:
            text += f", unmoved for {about_span(round(1_000 * stood_s))}"
        holders = facts["held_by"].get(key)
        if holders:
            first, *others = holders.split("; ")
            count = sum(facts["causes"].get(key, {}).values()) - 1
            text += f", held by {first}" + (f" and {count} more" if others else "")
        yield text


def _rest(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["backlog"] is not None:
        yield f"backlog {facts['backlog']}"
    if facts["idle"]:
        count = sum(map(len, facts["offsets"].values()))
        yield f"idle {facts['idle']}" + (f" of {count}" if count else "")
    if "coordinator" in facts:
        yield facts["coordinator"]


LOG = logging.getLogger("keyedwm.source")


def source_progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the facts of each keyedwm source in the query's last progress: log ends, watermarks, what blocks them.

    The page of the source ("What you see") has the fields. Before the first progress of a started query: the facts of
    the batch that was committed last, without log ends. The list is empty without such a batch, or with Spark Connect.
    """
    if not hasattr(query, "lastProgress"):
        raise OptionError(f"source_progress: query={argument_text(query)}: a query is expected, as start() gives it")
    last = query.lastProgress
    if last is not None:
        return _facts(last)
    checkpoint = checkpoint_of(query)
    committed = {} if checkpoint is None else committed_sources(checkpoint)
    return [facts_of_log(offset) for offset in committed.values()]


def log_progress(spark: SparkSession, every: str = "5 minutes") -> StreamingQueryListener:
    """Write to the logger `keyedwm.source`, level INFO, the status of each source: its watermark, and what blocks it.

    A line comes at the first batch, once in `every`, and when the watermark has stood for a minute or moves again; what
    `source_progress` returns follows each batch at level DEBUG. For all queries of the session, also those already
    running. The error of a query that fails is left in its checkpoint, for `keyedwm watch`.
    `logging.basicConfig(level=logging.INFO)` shows the lines; `spark.streams.removeListener(returned)` ends them.
    """
    require_session(spark, "log_progress")
    listener = _Listener(StatusLines(duration_ms("every", every) / 1_000), Failures(spark))
    spark.streams.addListener(listener)
    return listener


def _facts(progress: StreamingQueryProgress) -> list[dict[str, Any]]:
    return [facts for source in progress.sources if (facts := facts_of(source)) is not None]


class _Listener(StreamingQueryListener):
    def __init__(self, lines: StatusLines, failures: Failures) -> None:
        self._lines = lines
        self._failures = failures
        self._names: dict[uuid.UUID, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._failures.started(str(event.id))

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
        self._failures.terminated(str(event.id), event.exception)
        if event.id in self._names:
            self._lines.forget(self._names.pop(event.id))
