"""A Spark-shaped runner: plan, tasks in any order, twins, retries, the commit, and restarts from the checkpoint alone.

Rule: the planner, the reading tasks, the staging tasks and the publication are the product's. What survives a death is
what survives it in production: the offset log, the commit log, the target's disk and the brokers.
"""

from __future__ import annotations

import json
import pickle
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadMaxRows

from keyedwm.core.errors import KeyedwmError
from keyedwm.core.watermark import Status
from keyedwm.savepoint_files import Files, Savepoint, write_savepoint
from keyedwm.testing.simulated_kafka.log import Log
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_sink.writer import stream_writer
from pyspark_wm_source.options.source_options import LIMITS, Limits, SourceOptions
from pyspark_wm_source.reader import StreamReader, arrow_schema
from tests.system.world.faults import Faults, KilledError
from tests.system.world.targets import Target

_ATTEMPTS = 4
_SAME_DRIVER = 0.3  # how often a query is started again in the driver that it ran in


class SawTwoError(KeyedwmError):
    """What Spark raises when a batch that it is to write down stands in its log already."""


@dataclass(slots=True)
class Checkpoint:
    """What Spark keeps: the offset and the commit log. An entry is never replaced."""

    query: str
    offsets: list[str] = field(default_factory=list)
    committed: int = -1

    def plan(self, batch: int, offset: str) -> None:
        if batch != len(self.offsets):
            raise SawTwoError(f"batch {batch} was planned by another driver")
        self.offsets.append(offset)

    def commit(self, batch: int) -> None:
        if batch <= self.committed:
            raise SawTwoError(f"batch {batch} was committed by another driver")
        self.committed = batch


@dataclass(slots=True)
class Query:
    """One query over all its lives.

    rows: (batch, split) -> the rows that its attempts read, which must be equal while nothing is lost. unused: ids of
    the transactions of speculative attempts that ended well and whose messages no commit was given. replaced: the life
    that was taken for dead last. meanwhile: what happens beside a life whose tasks are done.
    """

    source: dict[str, str]
    sink: dict[str, str]
    mode: SnapshotMode
    target: Target
    faults: Faults
    chance: random.Random
    checkpoint: Checkpoint
    logs: dict[tuple[str, int], Log]
    meanwhile: Callable[[Life], None]
    limits: Limits = LIMITS
    rows: dict[tuple[int, int], pa.Table] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    unused: set[str] = field(default_factory=set)
    numbers: int = 0
    owner: str = ""
    starts: int = 0
    current: Life | None = None
    replaced: Life | None = None

    def life(self) -> Life:
        """Start the query, and run the batch again that was planned and not committed."""
        life = self.start()
        life.recover()
        return life

    def start(self) -> Life:
        """Start the query: in a new driver, or again in the one that it ran in."""
        if not self.owner or self.chance.random() >= _SAME_DRIVER:
            self.owner = f"{self.chance.getrandbits(64):016x}"
        if self.current is not None:
            self.replaced, self.current = self.current, None
        life = Life(self)
        self.current = life
        return life

    @property
    def has_lost(self) -> bool:
        """Whether records that were read are gone, and a read that comes again passes over them by its option."""
        gone = any(self.faults.struck[name] for name in ("recreated topic", "retention", "retention ahead"))
        return gone and self.source.get("failOnDataLoss") == "false"

    @property
    def zombie(self) -> Life | None:
        """The life that was taken for dead, in a driver of its own."""
        return self.replaced if self.replaced and self.replaced.owner != self.owner else None

    def end(self, *, is_dead: bool) -> None:
        """Take the life for ended, and the driver for dead; it may still be at work."""
        self.replaced, self.current = self.current or self.replaced, None
        if is_dead:
            self.owner = ""

    def copied(self, sink: dict[str, str]) -> Query:
        """A query on a copy of the checkpoint as it is now."""
        checkpoint = replace(self.checkpoint, offsets=list(self.checkpoint.offsets))
        return replace(
            self, sink=sink, checkpoint=checkpoint, rows=dict(self.rows), violations=[], owner="", current=None,
            replaced=None, numbers=1_000_000,
        )  # fmt: skip

    def continued(self, savepoint: Path, sink: dict[str, str]) -> Query:
        """A query with a checkpoint of its own that continues from a savepoint of this one, which has stopped."""
        last = len(self.checkpoint.offsets) - 1
        sources = [json.loads(self.checkpoint.offsets[last])]
        manifest = Savepoint(place=str(savepoint), checkpoint="world", batch=last, sources=sources, operators={})
        write_savepoint(Files(str(savepoint)), manifest)
        source = {name: value for name, value in self.source.items() if name != "startingOffsets"}
        return replace(
            self, source=source | {"continueFrom": str(savepoint)}, sink=sink, checkpoint=Checkpoint(str(uuid.uuid4())),
            rows={}, violations=list(self.violations), owner="", current=None, replaced=None,
        )  # fmt: skip

    def check_idle(self, end: dict) -> None:
        """Idle means caught up with the high watermark: no record of the channel is left, readable or not (rule 10)."""
        for topic, channels in end["channels"].items():
            for partition, (read, status, *_) in channels.items():
                log = self.logs[topic, int(partition)]
                left = [
                    batch
                    for batch in log.batches
                    if batch.last >= end["offsets"][topic][partition]
                    and not batch.is_control
                    and (batch.header.producer_id in log.open or not batch.is_transactional)
                ]
                if status == Status.IDLE.value and read:
                    self.violations.append(f"batch {end['batch']}: {topic}-{partition} is idle and has records to read")
                if status == Status.IDLE.value and left:
                    where = f"{topic}-{partition}"
                    self.violations.append(f"batch {end['batch']}: {where} is idle before its record {left[0].first}")

    def positions(self, topic_ids: Mapping[str, uuid.UUID]) -> dict[int, int]:
        """Up to which offset each partition was read by committed batches.

        topic_ids: of today. A batch that a stale answer planned with the id of an earlier topic has read nothing.
        """
        checkpoint = self.checkpoint
        if checkpoint.committed < 0:
            return {}
        last = json.loads(checkpoint.offsets[checkpoint.committed])  # holds no topic before there is one
        return {
            int(partition): offset
            for topic, partitions in last["offsets"].items()
            if last["topic_ids"].get(topic) == str(topic_ids[topic])
            for partition, offset in partitions.items()
        }


class Life:
    """One start of the query, until its driver dies or it stops.

    It runs the batches from `_first_batch` up to `_next`. `_rows`: those of the query at its start, since a deployment
    with other options gives the later lives rows of their own.
    """

    def __init__(self, query: Query) -> None:
        self.query, self._rows = query, query.rows
        self.run, self.owner = str(uuid.uuid4()), query.owner
        query.starts += 1
        self.number = query.starts
        self._first_batch = self._next = len(query.checkpoint.offsets)
        query.faults.note(f"run {self.run[:8]} starts at batch {self._next} in driver {query.owner[:8]}")
        self._options = replace(SourceOptions.parse(query.source).for_stream(), limits=query.limits)
        self._schema = arrow_schema(self._options)
        self._reader = StreamReader(self._options)
        options = {**query.sink, "snapshot": query.mode.value}
        with mock.patch("pyspark_wm_sink.kafka.writer.application", return_value=query.owner):
            self._writer = stream_writer(options, from_arrow_schema(self._schema), overwrite=False)
        self._initial: dict | None = None

    def recover(self) -> None:
        """Run the batch again that was planned and not committed."""
        if self.query.checkpoint.committed < self._next - 1:
            self._first_batch = self._next - 1
            self.batch(self._first_batch)

    def turn(self) -> bool:
        """Plan once, and run the batch if there is one."""
        query, batch = self.query, self._next
        start = self._start(batch)
        end = self._reader.latestOffset(start, ReadMaxRows(2**31 - 1))
        planned = json.dumps(end)
        query.faults.step("before the offset log")
        if planned == json.dumps(start):
            return False
        query.check_idle(end)
        query.checkpoint.plan(batch, planned)
        self._next += 1
        query.faults.step("after the offset log")
        self.batch(batch)
        return True

    def _start(self, batch: int) -> dict:
        if batch:
            return json.loads(self.query.checkpoint.offsets[batch - 1])
        if self._initial is None:
            self._initial = json.loads(json.dumps(self._reader.initialOffset()))
        return self._initial

    def again(self) -> None:
        """Run its last batch, or the one before, once more: as a driver does that was taken for dead in the middle.

        It runs no batch that another driver has planned: Spark stops a driver that finds its next batch in the log.
        """
        batches = range(self._first_batch, self._next)[-2:]
        if batches:
            self.batch(self.query.chance.choice(batches), is_again=True)

    def batch(self, batch: int, *, is_again: bool = False) -> None:
        """Run one batch."""
        query, faults = self.query, self.query.faults
        end = json.loads(query.checkpoint.offsets[batch])
        splits = [pickle.loads(pickle.dumps(split)) for split in self._reader.partitions(self._start(batch), end)]  # noqa: S301
        messages: list = [None] * len(splits)
        faults.note(f"batch {batch}: {len(splits)} tasks, offsets {end['offsets']}")
        try:
            for index in query.chance.sample(range(len(splits)), len(splits)):
                messages[index] = self._task(batch, index, splits[index])
                if faults.strikes("twin", f"of task {index} of batch {batch}"):
                    both = self._task(batch, index, splits[index]), messages[index]
                    messages[index], other = both if query.chance.random() < 0.5 else both[::-1]
                    if getattr(other, "transaction", None) is not None:
                        query.unused.add(other.transaction.transactional_id)
            faults.step("before the commit")
            query.meanwhile(self)
            query.target.asked_at_ms = faults.now_ms
            with inside(faults, "commit"):
                self._writer.commit(messages, batch)
        except KeyedwmError as error:
            faults.note(f"batch {batch} fails: {type(error).__name__}: {error}")
            self._writer.abort(messages, batch)
            raise
        faults.step("before the commit log")
        if not is_again:
            query.checkpoint.commit(batch)

    def _task(self, batch: int, index: int, split: object) -> object:
        """One task with its retries."""
        for attempt in range(_ATTEMPTS):
            try:
                with inside(self.query.faults, "task"):
                    return self._attempt(batch, index, split, attempt)
            except KilledError as killed:  # noqa: PERF203 - tries are what this loop is about
                if killed.what != "task" or attempt == _ATTEMPTS - 1:
                    raise KilledError("driver") from killed
            except KeyedwmError as error:
                self.query.faults.note(f"task {index} attempt {attempt}: {type(error).__name__}: {error}")
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _attempt(self, batch: int, index: int, split: object, attempt: int) -> object:
        query = self.query
        query.numbers += 1
        task = Task(
            query=query.checkpoint.query, run=self.run, batch=batch, partition=index, attempt=attempt,
            number=query.numbers,
        )  # fmt: skip
        read: list[pa.RecordBatch] = []

        def rows() -> object:
            for one in self._reader.read(split):  # type: ignore[arg-type]
                read.append(one)
                yield one

        with mock.patch.object(Task, "current", staticmethod(lambda: task)):
            staged = self._writer.write(rows())  # type: ignore[arg-type]
        table = pa.Table.from_batches(read, self._schema).combine_chunks()
        known = self._rows.setdefault((batch, index), table)
        is_same = query.has_lost or query.faults.struck["recreated topic"] or by_channel(known) == by_channel(table)
        if known is not table and not is_same:
            query.violations.append(f"batch {batch}, task {index}: an attempt read other rows than the one before")
        return pickle.loads(pickle.dumps(staged))  # noqa: S301


@contextmanager
def inside(faults: Faults, what: str | None) -> Iterator[None]:
    """What the faults are to take the steps in here for."""
    before, faults.inside = faults.inside, what
    try:
        yield
    finally:
        faults.inside = before


def by_channel(table: pa.Table) -> dict[str, list[dict]]:
    """The rows of each channel in order; between channels of a task there is none."""
    found: dict[str, list[dict]] = {}
    for row in table.to_pylist():
        control = row["control"]
        channel = f"{row['topic']}-{row['partition']}" if control is None else str(control["channel"])
        found.setdefault(channel, []).append(row)
    return found
