"""`running` and `process`, against brute force: each row with the rows of its key that were before it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.process.running import Running
from keyedwm.operators.process.running_state import RunningPlan
from tests.messy.drive import Pipeline
from tests.messy.feed import TIME, Feed, Row, random_feed
from tests.messy.scalar import Maker

EVENT_TIME = pa.field("event_time", pa.timestamp("us", tz="UTC"))


def played(rng: random.Random, feed: Feed, plan: ProcessPlan) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    """Number of the batch and its results."""
    pipeline = Pipeline(plan, rng.choice([1, 2, 2, 3]) if feed.keys else 1)
    for number, batch in enumerate(feed.batches):
        if feed.keys and number and rng.random() < 0.15:
            pipeline.move(rng.choice([1, 2, 3]))
        yield number, [row for row in pipeline.batch((feed, batch)) if row["control"] is None]


def process_plan(feed: Feed, make: Any, result: pa.Schema, called: str, version: int = 1) -> ProcessPlan:
    given = ProcessInput(schema=feed.schema(EVENT_TIME, pa.field(TIME, pa.int64())), by=feed.by, time=TIME)
    return ProcessPlan(inputs=(given,), make=make, result=result, called=called, version=version)


def play_running(rng: random.Random) -> int:
    feed = random_feed(rng)
    wanted = Maker(rng, feed, kept=False).drawn(3)
    keep = rng.choice([None, None, 3, 50])
    keep_ms = None if keep is None else keep * feed.unit
    own = RunningPlan(
        schema=feed.schema(EVENT_TIME), by=feed.by, keep_ms=keep_ms,
        aggregates=tuple((one.name, one.spec) for one in wanted),
    )  # fmt: skip
    plan = process_plan(feed, partial(Running, own), own.result_schema, own.called)
    waiting: list[Row] = []
    before: dict[tuple, list[Row]] = {}
    compared = 0
    for number, made in played(rng, feed, plan):
        batch = feed.batches[number]
        found = {(row["partition"], row["offset"]): row for row in made}
        assert len(found) == len(made), f"batch {number}: a row came twice"
        timed = [row for row in batch.rows if row.time is not None]
        waiting += [row for row in timed if batch.before is None or row.time >= batch.before]
        due = sorted(
            (row for row in waiting if batch.after is not None and row.time < batch.after), key=lambda r: r.place
        )
        waiting = [row for row in waiting if row not in due]
        assert found.keys() == {(row.partition, row.offset) for row in due}, f"batch {number}"
        for row in due:
            mine = before.setdefault(feed.key(row), [])
            if keep_ms is not None and mine and row.time - mine[-1].time > keep_ms:
                mine.clear()
            mine.append(row)
            shown = found[row.partition, row.offset]
            assert shown["event_time"] == row.time * 1000
            for at, column in enumerate(feed.columns):
                assert shown[column.name] == feed.value(row, at), f"batch {number}, {row}: {column.name}"
            for one in wanted:
                assert one.fits(shown[one.name], mine), (
                    f"batch {number}, {row}: {one.spec.describe()} gave {shown[one.name]!r}, "
                    f"expected {one.shown(mine)!r} of {[each.values for each in mine]}"
                )
            compared += 1
    assert not waiting
    return compared


class Counting(Processor):
    """Holds all rows; at each barrier it tells how many rows each of its keys has, and at which times."""

    def __init__(self, by: tuple[str, ...]) -> None:
        self.by = by

    def on_rows(self, input_number: int, rows: pa.Table) -> Iterable[pa.Table]:  # noqa: ARG002  one input
        self.state.append("rows", rows)
        return ()

    def on_barrier(self, snapshot: int) -> Iterable[pa.Table]:  # noqa: ARG002  each is alike
        held = self.state.read("rows")
        if held is None:
            return []
        numbered = held.append_column("__one", pa.array([1] * held.num_rows, pa.int64()))
        counted = numbered.group_by(list(self.by)).aggregate([("__one", "sum"), ("event_time", "max")])
        counted = counted.rename_columns([*self.by, "n__", "event_time"])
        return [counted]


def play_process(rng: random.Random) -> int:
    feed = random_feed(rng, keys=rng.choice([1, 1, 2]))
    keys = [one.field.with_nullable(nullable=True) for one in feed.columns[: feed.keys]]
    result = pa.schema([*keys, ("n__", pa.int64())])
    plan = process_plan(feed, partial(Counting, feed.by), result, "counting")
    held: list[Row] = []
    compared = 0
    for number, made in played(rng, feed, plan):
        held += [row for row in feed.batches[number].rows if row.time is not None]
        times: dict[tuple, list[int]] = {}
        for row in held:
            times.setdefault(feed.key(row), []).append(row.time * 1000)
        expected = Counter((key, len(of_key), max(of_key)) for key, of_key in times.items())
        found = Counter((tuple(row[name] for name in feed.by), row["n__"], row["event_time"]) for row in made)
        assert found == expected, f"batch {number}: {found - expected}, expected {expected - found}"
        compared += len(made)
    return compared
