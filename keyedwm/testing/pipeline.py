"""Tests of a pipeline without Kafka. The test decides partitions, times, batches, silence and restarts.

Rule: the pipeline runs in Spark over the real source. Only the broker is simulated, behind Kafka's own protocol. The
planner's clock stands still unless a step moves it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import CONTROL, REJECTED
from keyedwm.registry.options import is_of_registry
from keyedwm.spark import recommended_conf, source, source_progress, start_in_turn
from keyedwm.spark.hosting.lineage import follows_clock
from keyedwm.testing.schemas import Schema, Schemas
from keyedwm.testing.simulated_kafka.log import Clock
from keyedwm.testing.simulated_kafka.server import SimulatedKafka, simulated_kafka
from keyedwm.testing.steps import RESTART, TOPIC, Columns, Record, Restart, Silence, Step, columns_of, records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RESTART", "Record", "Restart", "Result", "Schema", "Silence", "Step", "run"]

_CLOCK = "clock"
# `run` sets these itself, from the steps.
_OWN_OPTIONS = ("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets", "testClock")


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one step, from all micro-batches that followed it.

    rows: the results, a dict each, without control rows and rejected messages. rejected: the messages that no window
    accepted, and the source's unreadable records. progress: `keyedwm.spark.source_progress` after the step.

    The others are of the first source and its first time axis. watermark: the coalesced watermark, None before the
    first one. held_by: the partitions that block the watermark, and the cause. idle: the number of idle partitions.
    """

    rows: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    watermark: datetime | None
    held_by: str | None
    idle: int
    progress: list[dict[str, Any]]


def run(
    spark: SparkSession,
    pipeline: Callable[[Any], DataFrame],
    steps: Sequence[Step],
    *,
    options: Mapping[str, str] | None = None,
    topics: Mapping[str, int] | None = None,
    pushed: bool = False,
    restart_each_step: bool = False,
    schemas: Sequence[Schema] = (),
) -> list[Result]:
    """Run a pipeline over a test's records and return the outcome of each step.

    pipeline: a function from the input's rows to the results; with `pushed`, from `source(spark)` with all options,
    which is not loaded. steps: lists of records, each one batch of the input, or `Silence(span)`, or `RESTART`.
    options: the source's options, such as `watermarkLag`. topics: topic -> number of partitions, by default as many as
    the records name. restart_each_step: whether to restart the query after every step; the results must not change.
    schemas: those of the registry, with the ids 1, 2 and so on; schemas of the records' values are added.

    Raises OptionError or InputError for a wrong option or step, and the query's own error if the query fails.
    """
    source_options = _checked_options(options or {})
    records = records_of(steps)
    sizes = _sizes(records, topics)
    clock = Clock(max((one.timestamp_ms for one in records), default=0))
    registered = Schemas(schemas, source_options)
    columns = [None if isinstance(step, Silence | Restart) else columns_of(step, registered) for step in steps]
    with (
        tempfile.TemporaryDirectory(prefix="keyedwm-pipeline-") as home,
        simulated_kafka(clock) as broker,
        registered.registry() as registry_options,
    ):
        if registered.schemas and not any(map(is_of_registry, source_options)):
            source_options |= registry_options
        for topic, partitions in sizes.items():
            broker.create_topic(topic, partitions)
        source_options |= {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": ",".join(sizes)}
        source_options |= {"startingOffsets": "earliest", "testClock": str(Path(home) / _CLOCK)}
        running = _Running(
            spark=spark,
            pipeline=pipeline,
            broker=broker,
            clock=clock,
            home=Path(home),
            options=source_options,
            pushed=pushed,
        )
        with few_tasks(spark):
            try:
                return [
                    running.step(step, records, restart=restart_each_step)
                    for step, records in zip(steps, columns, strict=True)
                ]
            finally:
                running.stop()


@dataclass(kw_only=True)
class _Running:
    """The query, its broker and its clock. home: the directory of the checkpoint and the clock's file."""

    spark: SparkSession
    pipeline: Callable[[Any], DataFrame]
    broker: SimulatedKafka
    clock: Clock
    home: Path
    options: Mapping[str, str]
    pushed: bool
    _query: StreamingQuery | None = None
    _batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    _next: int = 0

    def step(self, step: Step, columns: Columns | None, *, restart: bool) -> Result:
        """Run a step, wait until the query has no more input, and return the outcome. columns: the step's records."""
        if isinstance(step, Silence):
            self.clock.pass_ms(step.span_ms)
        elif isinstance(step, Restart):
            self.stop()
        elif columns is not None:
            self.broker.append(columns)
        self._set_clock()
        query = self._started()
        query.processAllAvailable()
        result = self._collected(query)
        if restart:
            self.stop()
        return result

    def stop(self) -> None:
        """Stop the query, if it runs."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def _started(self) -> StreamingQuery:
        if self._query is None:
            read = source(self.spark).options(**self.options)
            frame = self.pipeline(read if self.pushed else read.load())
            if follows_clock(frame):
                raise OptionError(
                    "run: the pipeline follows the clock (panes by the clock, or a processor with uses_clock), and a "
                    "step of it would have no end: make panes by event time (by='event'), or call the processor alone"
                )
            writer = frame.writeStream.foreachBatch(self._keep)
            (self._query,) = start_in_turn(writer.option("checkpointLocation", str(self.home / "checkpoint")))
        return self._query

    def _keep(self, batch: DataFrame, number: int) -> None:
        """Keep a batch under its number: Spark replays an interrupted batch under the same number."""
        self._batches[number] = [row.asDict(recursive=True) for row in batch.collect()]

    def _collected(self, query: StreamingQuery) -> Result:
        fresh = [row for number in sorted(self._batches) if number >= self._next for row in self._batches[number]]
        self._next = max(self._batches, default=-1) + 1
        data = [row for row in fresh if row.get(CONTROL) is None]
        progress = source_progress(query)
        last = progress[0] if progress else {}
        watermark = last.get("watermark", {}).get("0")
        return Result(
            rows=[
                {k: v for k, v in row.items() if k not in (CONTROL, REJECTED)} for row in data if not row.get(REJECTED)
            ],
            rejected=[row[REJECTED] for row in data if row.get(REJECTED) is not None],
            watermark=None if watermark is None else _instant(watermark),
            held_by=last.get("held_by", {}).get("0"),
            idle=last.get("idle", 0),
            progress=progress,
        )

    def _set_clock(self) -> None:
        new = self.home / f"{_CLOCK}.new"
        new.write_text(str(int(self.clock.now_ms)))
        new.replace(self.home / _CLOCK)  # in one step: the planner may read the file at any time


def _checked_options(options: Mapping[str, str]) -> dict[str, str]:
    own = {name.lower() for name in _OWN_OPTIONS}
    for name in options:
        if name.lower() in own:
            raise OptionError(f"run: option {name} is set by run itself, from the steps and topics: leave it out")
    return dict(options)


def _sizes(records: Sequence[Record], topics: Mapping[str, int] | None) -> dict[str, int]:
    """Return topic -> number of partitions: as in `topics`, or else those that the records name."""
    sizes: dict[str, int] = {}
    for one in records:
        sizes[one.topic] = max(sizes.get(one.topic, 0), one.partition + 1)
    if topics is None:
        return sizes or {TOPIC: 1}
    for topic, partitions in sizes.items():
        if topics.get(topic, 0) < partitions:
            raise InputError(
                f"run: a record is for partition {partitions - 1} of topic {topic!r}, which has {topics.get(topic, 0)} "
                "partitions by topics=: give it more, or correct the record"
            )
    return dict(topics)


def _instant(text: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    return None


@contextmanager
def few_tasks(spark: SparkSession) -> Iterator[None]:
    """Set one bucket, and the state store that windows need, for the time of a test, which has few rows."""
    conf = {**recommended_conf(cores=1)}
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in conf}
    try:
        for name, value in conf.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
