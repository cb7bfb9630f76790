"""`window_join`, against the model of tests/operators: pairs batch by batch, and messages that met none."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa

from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import LEFT, RIGHT, WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import HoppingWindow
from tests.messy.drive import Pipeline
from tests.messy.feed import TOPIC, Feed, Row
from tests.messy.joins import SIDES, two_feeds
from tests.messy.rows import EVENT_TIME
from tests.operators.stored import Message
from tests.operators.test_window_join_alone import UnmatchedModel

_NONE = (None, None)


def play(rng: random.Random) -> int:
    feeds = two_feeds(rng, least_keys=1, without=("reason", "timing"))
    unit = feeds[LEFT].unit
    size, step = rng.choice([1, 3, 6]) * unit, rng.choice([1, 2, 3]) * unit
    if rng.random() < 0.5:
        window: Any = SlidingWindow(size - size % step or step, step)
    else:
        window = HoppingWindow(size, step)
    unbounded = rng.choice(["", "", "", *SIDES])
    plan = WindowJoinPlan(
        left=side_of(feeds[LEFT], "left", unbounded), right=side_of(feeds[RIGHT], "right", unbounded), window=window,
        retention=Retention(time_ms=window.size_ms + rng.choice([0, 2, 20]) * unit),
        how=How.INNER if unbounded else rng.choice([How.INNER, How.LEFT, How.RIGHT, How.FULL]),
    )  # fmt: skip
    pipeline = Pipeline(BucketWindowJoin(plan=plan), rng.choice([1, 2, 2, 3]), others=1)
    model, labels = UnmatchedModel(plan), {}
    shift = feeds[LEFT].base - feeds[LEFT].base % (window.size_ms * step)
    rows = tuple({row[2:]: row for batch in feed.batches for row in batch.rows} for feed in feeds)
    compared = 0
    for number, batches in enumerate(zip(*(feed.batches for feed in feeds), strict=True)):
        steps = [("watermark", side, batch.before) for side, batch in zip(SIDES, batches, strict=True)]
        for side, feed, batch in zip(SIDES, feeds, batches, strict=True):
            steps.append(("add_message", side, [message(feed, row, shift, labels) for row in batch.rows]))
        steps += [("watermark", side, batch.after) for side, batch in zip(SIDES, batches, strict=True)]
        expected: Counter = Counter()
        for name, side, content in steps:
            if name == "watermark":
                content = None if content is None else content - shift  # noqa: PLW2901
            if content is not None:
                expected.update((*one[1:3], *one[4:]) for one in model.step(name, side, content))
        result_rows = [row for row in pipeline.batch(*zip(feeds, batches, strict=True)) if row["control"] is None]
        pairs = Counter(pair_of(plan, feeds, rows, shift, row) for row in result_rows)
        assert pairs == expected, (
            f"batch {number}, {plan.how.value} {window}, unbounded {unbounded!r}: strange {pairs - expected}, "
            f"missing {expected - pairs}"
        )
        compared += len(result_rows)
    return compared


def side_of(feed: Feed, name: str, unbounded: str) -> WindowJoinSide:
    schema = pa.schema([one.with_nullable(nullable=True) for one in feed.schema(EVENT_TIME)])
    return WindowJoinSide(name=name, schema=schema, on=feed.by, unbounded=name == unbounded)


def message(feed: Feed, row: Row, shift: int, labels: dict[tuple, str]) -> Message:
    key = feed.key(row)
    label = None if None in key else labels.setdefault(key, str(len(labels)))
    return Message(label, 0, None if row.time is None else row.time - shift, TOPIC, row.partition, row.offset)


def pair_of(
    plan: WindowJoinPlan, feeds: tuple[Feed, Feed], rows: tuple, shift: int, result_row: dict[str, Any]
) -> tuple:
    """Both records, the start of the window and the timing; every value is that of its record."""
    places: list[tuple] = []
    for side, feed in enumerate(feeds):
        name = SIDES[side]
        place = result_row[f"partition_{name}"], result_row[f"offset_{name}"]
        places += place
        if place == _NONE:
            continue
        row = rows[side][place]
        columns = {came_from: one.name for one, number, came_from in plan.columns if number == side}
        for at, column in enumerate(feed.columns):
            joined_name = columns.get(column.name)  # joined on under one name: the left side's column
            result_name = feeds[LEFT].columns[at].name if joined_name is None else joined_name
            actual, expected = result_row[result_name], feed.value(row, at)
            assert actual == expected, f"{name} {row}: {column.name} is {actual!r}, expected {expected!r}"
    return (*places, result_row["window"][0] // 1000 - shift, result_row["timing"])
