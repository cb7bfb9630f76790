"""The figures of all queries of a session, from the events of their listener to the samples of an exporter.

Rule: events arrive on one thread and exporters read on others, so every access takes the lock. Gauges are those of the
last batch. Counters begin at 0 with the listener; only the source's own counters begin with the query. Figures of a
query that ended stay until another query gets its name, or until _MOST_ENDED later queries have ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.text import words_of
from keyedwm.spark.metrics import catalogue as of
from keyedwm.spark.metrics.batch_figures import SourceFigures, operator_figures
from keyedwm.spark.metrics.catalogue import Metric
from keyedwm.spark.metrics.rising_counts import RisingCount

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

LOG = logging.getLogger("keyedwm.metrics")
_MOST_ENDED = 20
_UNREADABLE = (ArithmeticError, AttributeError, KeyedwmError, LookupError, TypeError, ValueError)
_COUNTERS = {
    of.LATE: "late_events",
    of.UNREADABLE: "bad_event_times",
    of.FUTURE: "future_event_times",
    of.CONTROL_RECORDS: "control_records",
    of.RESETS: "resets",
}


class Sample(NamedTuple):
    """One value of a metric; labels: the values of the metric's labels, in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


@dataclass
class _Source:
    """The figures of a source. advances: watermark key -> the watermark, and the time when it was first seen.

    counts: by metric and the labels after the source's. is_unreadable: a warning has said so.
    """

    figures: SourceFigures
    batch: int | None = None
    batch_reads: int = 0
    completed_s: float = 0.0
    advances: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    counts: dict[tuple[Metric, tuple[str, ...]], RisingCount] = field(default_factory=dict)
    is_unreadable: bool = False

    def update_counts(self) -> None:
        """Take the counts of the present offset; a reason that it has no more keeps its count."""
        facts = self.figures.facts
        present: dict[tuple[Metric, tuple[str, ...]], Mapping[str, Mapping[str, int]]] = {
            (metric, ()): facts.get(fact, {}) for metric, fact in _COUNTERS.items()
        }
        for reason, counts in facts.get("bad_values", {}).items():
            present[of.BAD_VALUES, (reason,)] = counts
        for place in {**self.counts, **present}:
            self.counts.setdefault(place, RisingCount()).update(present.get(place, {}))


@dataclass
class _Query:
    """The figures of a query. session: its listener's number. gauges, counts: by metric and the other labels."""

    id: str
    run: str
    name: str | None
    session: int
    active: bool
    last_event_s: float
    ended_s: float | None = None
    batch_duration_s: float | None = None
    sources: dict[str, _Source] = field(default_factory=dict)
    gauges: dict[tuple[Metric, tuple[str, ...]], float] = field(default_factory=dict)
    counts: dict[tuple[Metric, tuple[str, ...]], float] = field(default_factory=dict)

    def count(self, metric: Metric, value: float, *labels: str) -> None:
        """Add to a counter."""
        self.counts[metric, labels] = self.counts.get((metric, labels), 0.0) + value

    def forget_operators(self) -> None:
        """Begin a run, which may have other operators: drop all gauges, and counts of operators without a gauge."""
        last = {operator for _, (operator, *_) in self.gauges}
        self.counts = {
            (metric, labels): value
            for (metric, labels), value in self.counts.items()
            if "operator" not in metric.labels or labels[0] in last
        }
        self.gauges.clear()


class Figures:
    """The figures of a session's queries. partitions: the most partitions with samples, for each source and key."""

    def __init__(self, clock_s: Callable[[], float], partitions: int) -> None:
        self._clock_s = clock_s
        self.partitions = partitions
        self._queries: dict[str, _Query] = {}
        # Runs whose name a later query took before their end was reported: the name.
        self._replaced: dict[str, str] = {}
        self._lock = threading.Lock()

    def started(self, query_id: str, run: str, name: str | None, session: int = 0) -> None:
        """Add a run that starts. session: its listener's number; active queries of one session have different names."""
        with self._lock:
            query = self._query_at(query_id, run, name, session, self._label_of_start(query_id, name, session))
            if query.run != run:
                query.forget_operators()
            query.run, query.name, query.active, query.ended_s = run, name, True, None

    def resumed(self, query_id: str, run: str, committed: Mapping[int, SourceFigures]) -> None:
        """Add the figures of the last committed batch, by source, for sources that have no figures yet."""
        with self._lock:
            query = self._queries.get(self._label(query_id) or "")
            if query is not None and query.run == run:
                for number, figures in committed.items():
                    if str(number) not in query.sources:
                        self._take_source(query, str(number), figures)

    def progressed(self, progress: StreamingQueryProgress, session: int = 0) -> None:
        """Add the figures of a completed batch."""
        sources = {
            str(number): figures
            for number, source in enumerate(progress.sources)
            if (figures := SourceFigures.of(source)) is not None
        }
        operators = list(operator_figures(progress))
        with self._lock:
            query_id, name = str(progress.id), progress.name
            label = self._label(query_id) or self._free_label(query_id, name, session)
            if label is None:
                return
            query = self._query_at(query_id, str(progress.runId), name, session, label)
            query.batch_duration_s = progress.batchDuration / 1_000
            query.count(of.BATCHES, 1)
            query.count(of.INPUT_ROWS, progress.numInputRows or 0)
            for phase, ms in progress.durationMs.items():
                query.count(of.PHASES, ms / 1_000, _snake_case(phase))
            for number, figures in sources.items():
                self._take_source(query, number, figures)
            for metric, labels, value in operators:
                if metric.kind is of.Kind.COUNTER:
                    query.count(metric, value, *labels)
                else:
                    query.gauges[metric, labels] = value

    def idle(self, query_id: str, run: str) -> None:
        """Record that a query had nothing to read."""
        with self._lock:
            query = self._queries.get(self._label(query_id) or "")
            if query is not None and query.run == run:
                query.last_event_s = self._clock_s()

    def terminated(self, query_id: str, run: str, *, failed: bool) -> None:
        """Record the end of a run; its figures stay, and its delays no longer grow.

        Spark may report the start of the next run before this end, and a listener may report the same end twice.
        """
        with self._lock:
            label = self._replaced.pop(run, None) or self._label(query_id) or ""
            query = self._queries.get(label)
            if query is None or (query.run == run and not query.active):
                return
            query.count(of.QUERY_FAILURES, float(failed))
            if query.run == run:
                query.active, query.ended_s = False, self._clock_s()
                self._queries[label] = self._queries.pop(label)  # the last one of the order
            ended = [label for label, one in self._queries.items() if not one.active]
            for label in ended[:-_MOST_ENDED]:
                del self._queries[label]

    def samples(self) -> list[Sample]:
        """Return all current samples, in the catalogue's order of metrics."""
        with self._lock:
            result = [sample for name, query in self._queries.items() for sample in self._of_query(name, query)]
        place = {metric: number for number, metric in enumerate(of.METRICS)}
        return sorted(result, key=lambda sample: place[sample.metric])

    def _label(self, query_id: str) -> str | None:
        return next((label for label, query in self._queries.items() if query.id == query_id), None)

    def _label_of_start(self, query_id: str, name: str | None, session: int) -> str:
        """Return the label of a query that starts. It keeps its label unless its name has changed."""
        label = self._label(query_id)
        if label is not None and self._queries[label].name == name:
            return label
        return self._free_label(query_id, name, session) or name or query_id

    def _free_label(self, query_id: str, name: str | None, session: int) -> str | None:
        """Return the label of a query by its name; None if an active query of the session has the name.

        A query that starts takes the name then: the other one has ended. A batch is then one of the last of a query
        that has ended: Spark reports starts at once, but batches and ends through a queue.
        """
        label = name or query_id
        owner = self._queries.get(label)
        if owner is None or owner.id == query_id or not owner.active:
            return label
        return None if owner.session == session else f"{label} {query_id}"

    def _query_at(self, query_id: str, run: str, name: str | None, session: int, label: str) -> _Query:
        """Return the query as the last one of the order, with this label; drop another query that had the label.

        Only a start changes the query's run: Spark may report the last batches of a run after the next start.
        """
        now_s = self._clock_s()
        query = self._queries.pop(self._label(query_id) or "", None)
        if query is None:
            query = _Query(id=query_id, run=run, name=name, session=session, active=True, last_event_s=now_s)
            query.count(of.QUERY_FAILURES, 0.0)
        query.session, query.last_event_s = session, now_s
        replaced = self._queries.pop(label, None)
        if replaced is not None and replaced.active:
            self._replaced[replaced.run] = label
        self._queries[label] = query
        return query

    def _take_source(self, query: _Query, number: str, figures: SourceFigures) -> None:
        now_s = self._clock_s()
        source = query.sources.setdefault(number, _Source(figures))
        source.figures = figures
        source.update_counts()
        if figures.has_batch and figures.batch != source.batch:
            source.batch, source.batch_reads, source.completed_s = figures.batch, figures.reads, now_s
            query.count(of.RECORDS, source.batch_reads, number)
            query.count(of.SNAPSHOTS, 1, number)
        for key, ms in figures.watermarks_ms().items():
            if key not in source.advances or source.advances[key][0] != ms:
                source.advances[key] = ms, now_s

    def _of_query(self, name: str, query: _Query) -> Iterator[Sample]:
        now_s = self._clock_s() if query.ended_s is None else query.ended_s
        yield Sample(of.QUERY_ACTIVE, (name,), float(query.active))
        yield Sample(of.LAST_EVENT, (name,), query.last_event_s)
        if query.batch_duration_s is not None:
            yield Sample(of.BATCH_DURATION, (name,), query.batch_duration_s)
        for (metric, labels), value in (*query.counts.items(), *query.gauges.items()):
            yield Sample(metric, (name, *labels), value)
        for number, source in query.sources.items():
            yield from self._readable_samples((name, number), source, now_s)

    def _readable_samples(self, subject: tuple[str, str], source: _Source, now_s: float) -> Sequence[Sample]:
        """Return the samples of a source; none if its offset cannot be read: other figures do not depend on it."""
        try:
            return list(self._of_source(subject, source, now_s))
        except _UNREADABLE as error:
            if not source.is_unreadable:
                query, number = subject
                LOG.warning("metrics: source %s of query %s cannot be read: %s", number, query, words_of(error))
            source.is_unreadable = True
            return []

    def _of_source(self, subject: tuple[str, str], source: _Source, now_s: float) -> Iterator[Sample]:
        if source.batch is not None:
            yield Sample(of.SNAPSHOT_ID, subject, source.batch)
            yield Sample(of.SNAPSHOT_TIME, subject, source.completed_s)
            yield Sample(of.BATCH_RECORDS, subject, source.batch_reads)
        for (metric, labels), count in source.counts.items():
            yield Sample(metric, (*subject, *labels), count.total)
        yield from _of_watermarks(subject, source, now_s)
        yield from _of_facts(subject, source.figures)
        yield from self._of_partitions(subject, source.figures, now_s)

    def _of_partitions(self, subject: tuple[str, ...], figures: SourceFigures, now_s: float) -> Iterator[Sample]:
        for key, skew_ms in figures.skews_ms():
            yield Sample(of.WATERMARK_SKEW, (*subject, str(key)), skew_ms / 1_000)
        for key, topic, partition, ms in figures.slowest_ms(self.partitions):
            yield Sample(of.PARTITION_DELAY, (*subject, str(key), topic, str(partition)), now_s - ms / 1_000)
        for topic, partition, backlog in figures.longest_backlogs(self.partitions):
            yield Sample(of.PARTITION_BACKLOG, (*subject, topic, str(partition)), backlog)


def _of_watermarks(subject: tuple[str, ...], source: _Source, now_s: float) -> Iterator[Sample]:
    for key, (ms, seen_s) in source.advances.items():
        yield Sample(of.WATERMARK_CHANGED, (*subject, key), seen_s)
        if ms is not None:
            yield Sample(of.WATERMARK, (*subject, key), ms / 1_000)
            yield Sample(of.WATERMARK_DELAY, (*subject, key), now_s - ms / 1_000)


def _of_facts(subject: tuple[str, ...], figures: SourceFigures) -> Iterator[Sample]:
    facts = figures.facts
    idle = facts["idle"]
    yield Sample(of.PARTITIONS, (*subject, "active"), len(figures.offset.channels) - idle)
    yield Sample(of.PARTITIONS, (*subject, "idle"), idle)
    if facts["backlog"] is not None:
        yield Sample(of.BACKLOG, subject, facts["backlog"])
    yield Sample(of.RECOVERY_READS, subject, facts["recovery_reads"])
    yield Sample(of.COORDINATOR, subject, float("coordinator" not in facts))
    for key, causes in facts["causes"].items():
        for cause, count in causes.items():
            yield Sample(of.HOLDERS, (*subject, key, cause), count)


def _snake_case(phase: str) -> str:
    """Return Spark's name of a phase (`addBatch`) in snake case."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in phase)
