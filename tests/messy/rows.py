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
    process_input = ProcessInput(schema=feed.schema(EVENT_TIME, pa.field(TIME, pa.int64())), by=feed.by, time=TIME)
    return ProcessPlan(inputs=(process_input,), make=make, result=result, called=called, version=version)


def play_running(rng: random.Random) -> int:
    feed = random_feed(rng)
    expectations = Maker(rng, feed, keeps_values=False).drawn(3)
    keep = rng.choice([None, None, 3, 50])
    keep_ms = None if keep is None else keep * feed.unit
    own = RunningPlan(
        schema=feed.schema(EVENT_TIME), by=feed.by, keep_ms=keep_ms,
        aggregates=tuple((one.name, one.spec) for one in expectations),
    )  # fmt: skip
    plan = process_plan(feed, partial(Running, own), own.result_schema, own.called)
    waiting: list[Row] = []
    before: dict[tuple, list[Row]] = {}
    compared = 0
    for number, result_rows in played(rng, feed, plan):
        batch = feed.batches[number]
        rows_by_place = {(row["partition"], row["offset"]): row for row in result_rows}
        assert len(rows_by_place) == len(result_rows), f"batch {number}: a row came twice"
        timed = [row for row in batch.rows if row.time is not None]
        waiting += [row for row in timed if batch.before is None or row.time >= batch.before]
        due = sorted(
            (row for row in waiting if batch.after is not None and row.time < batch.after), key=lambda r: r.place
        )
        waiting = [row for row in waiting if row not in due]
        assert rows_by_place.keys() == {(row.partition, row.offset) for row in due}, f"batch {number}"
        for row in due:
            rows_of_key = before.setdefault(feed.key(row), [])
            if keep_ms is not None and rows_of_key and row.time - rows_of_key[-1].time > keep_ms:
                rows_of_key.clear()
            rows_of_key.append(row)
            result_row = rows_by_place[row.partition, row.offset]
            assert result_row["event_time"] == row.time * 1000
            for at, column in enumerate(feed.columns):
                assert result_row[column.name] == feed.value(row, at), f"batch {number}, {row}: {column.name}"
            for one in expectations:
                assert one.fits(result_row[one.name], rows_of_key), (
                    f"batch {number}, {row}: {one.spec.describe()} gave {result_row[one.name]!r}, "
                    f"expected {one.expect(rows_of_key)!r} of {[each.values for each in rows_of_key]}"
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
        rows = self.state.read("rows")
        if rows is None:
            return []
        numbered = rows.append_column("__one", pa.array([1] * rows.num_rows, pa.int64()))
        counts = numbered.group_by(list(self.by)).aggregate([("__one", "sum"), ("event_time", "max")])
        counts = counts.rename_columns([*self.by, "n__", "event_time"])
        return [counts]


def play_process(rng: random.Random) -> int:
    feed = random_feed(rng, keys=rng.choice([1, 1, 2]))
    keys = [one.field.with_nullable(nullable=True) for one in feed.columns[: feed.keys]]
    result = pa.schema([*keys, ("n__", pa.int64())])
    plan = process_plan(feed, partial(Counting, feed.by), result, "counting")
    rows_so_far: list[Row] = []
    compared = 0
    for number, result_rows in played(rng, feed, plan):
        rows_so_far += [row for row in feed.batches[number].rows if row.time is not None]
        times: dict[tuple, list[int]] = {}
        for row in rows_so_far:
            times.setdefault(feed.key(row), []).append(row.time * 1000)
        expected = Counter((key, len(of_key), max(of_key)) for key, of_key in times.items())
        counts = Counter((tuple(row[name] for name in feed.by), row["n__"], row["event_time"]) for row in result_rows)
        assert counts == expected, f"batch {number}: {counts - expected}, expected {expected - counts}"
        compared += len(result_rows)
    return compared
