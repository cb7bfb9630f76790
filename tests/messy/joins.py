"""`join` and `join_latest`, against brute force: all pairs of all rows that were not late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.join.bounds import Bound
from keyedwm.operators.join.plan import LEFT, RIGHT, Axis, How, JoinInputSpec, JoinPlan
from keyedwm.operators.plan_checks import FARTHEST_MS
from tests.messy.drive import Pipeline
from tests.messy.feed import Column, Feed, Row, random_columns, random_feed

SIDES = ("left", "right")


def two_feeds(rng: random.Random, *, least_keys: int = 0, without: Sequence[str] = ()) -> tuple[Feed, Feed]:
    """Two inputs of as many batches, with the same keys, of which the second may call them otherwise."""
    keys = max(least_keys, rng.choice([0, 1, 1, 1, 2]))
    count = rng.randrange(2, 5)
    first, second = (random_columns(rng, keys, 2, without=without) for _ in SIDES)
    second[:keys] = [
        Column(left.name if rng.random() < 0.5 else right.name, left.kind, right.never_null)
        for left, right in zip(first[:keys], second[:keys], strict=True)
    ]
    names = [one.name.lower() for one in second]
    if len(set(names)) < len(names):
        second = [Column(f"{one.name}{at}", one.kind, one.never_null) for at, one in enumerate(second)]
    one = random_feed(rng, keys=keys, columns=first, batches=count, most=7)
    return one, random_feed(rng, keys=keys, columns=second, batches=count, most=7, when=(one.base, one.unit))


@dataclass(frozen=True)
class ResultRow:
    """What a row of the result says of its two rows."""

    left: Any
    right: Any
    late: bool = False


def side_of(feed: Feed, name: str) -> JoinInputSpec:
    """Without the record but a number of its own, by which rows are told apart."""
    return JoinInputSpec(name, feed.schema(), feed.by, (Axis(name, 0),))


def same_key(feeds: tuple[Feed, Feed], left: Row, right: Row) -> bool:
    keys = feeds[LEFT].key(left), feeds[RIGHT].key(right)
    return keys[LEFT] == keys[RIGHT] and None not in keys[LEFT]


def play_join(rng: random.Random) -> int:
    feeds = two_feeds(rng)
    low = rng.choice([-4, -1, 0, 1]) * feeds[LEFT].unit
    bound = Bound(0, 0, low, low + rng.choice([0, 1, 3, 8]) * feeds[LEFT].unit)
    how, late = rng.choice(list(How)), rng.choice([LatePolicy.DROP, LatePolicy.EMIT])
    plan = JoinPlan(
        left=side_of(feeds[LEFT], "left"), right=side_of(feeds[RIGHT], "right"), bounds=(bound,), how=how, late=late
    )
    actual = result_of(rng, plan, feeds)
    on_time, expected = judged(plan, feeds)
    matched: tuple[set, set] = (set(), set())
    for at_left, left in enumerate(on_time[LEFT]):
        for at_right, right in enumerate(on_time[RIGHT]):
            if None in (left.time, right.time) or not same_key(feeds, left, right):
                continue
            if bound.low_ms <= right.time - left.time <= bound.high_ms:
                matched[LEFT].add(at_left)
                matched[RIGHT].add(at_right)
                if plan.pairs_leave:
                    expected[ResultRow(left[2:], right[2:])] += 1
    for side in (LEFT, RIGHT):
        for at, row in enumerate(on_time[side]):
            semi = side == LEFT and how is How.LEFT_SEMI and at in matched[LEFT]
            if semi or (plan.pads(side) and at not in matched[side]):
                expected[unmatched_row(side, row)] += 1
    same(actual, expected, f"{how.value} {bound}")
    return actual.total()


def judged(plan: JoinPlan, feeds: tuple[Feed, Feed]) -> tuple[tuple[list[Row], list[Row]], Counter]:
    """Rows of each side that are not below its watermark, and what late ones show."""
    on_time: tuple[list[Row], list[Row]] = ([], [])
    results: Counter = Counter()
    for side, feed in enumerate(feeds):
        for batch in feed.batches:
            for row in batch.rows:
                late = None not in (row.time, batch.before) and row.time < batch.before
                if not late:
                    on_time[side].append(row)
                elif plan.late is LatePolicy.EMIT and (side == LEFT or plan.pairs_leave):
                    results[unmatched_row(side, row, late=True)] += 1
    return on_time, results


def unmatched_row(side: int, row: Row, *, late: bool = False) -> ResultRow:
    return ResultRow(row[2:], None, late) if side == LEFT else ResultRow(None, row[2:], late)


def same(actual: Counter, expected: Counter, at: str) -> None:
    assert actual == expected, f"{at}: strange {dict(actual - expected)}, missing {dict(expected - actual)}"


def result_of(rng: random.Random, plan: JoinPlan, feeds: tuple[Feed, Feed]) -> Counter:
    """Play both sides; every value of a result is held against the rows that it says it is made of."""
    has_keys = feeds[LEFT].keys > 0
    pipeline = Pipeline(plan, rng.choice([1, 2, 2, 3]) if has_keys else 1, others=1)
    rows = tuple({row[2:]: row for batch in feed.batches for row in batch.rows} for feed in feeds)
    results: Counter = Counter()
    for number, batches in enumerate(zip(*(feed.batches for feed in feeds), strict=True)):
        if has_keys and number and rng.random() < 0.15:
            pipeline.move(rng.choice([1, 2, 3]))
        for result_row in pipeline.batch(*zip(feeds, batches, strict=True)):
            if result_row["control"] is None:
                results[of_rows(plan, feeds, rows, result_row)] += 1
    return results


def of_rows(plan: JoinPlan, feeds: tuple[Feed, Feed], rows: tuple[dict, dict], result_row: dict[str, Any]) -> ResultRow:
    names = [{sources[at]: one.name for one, *sources in plan.columns if sources[at] is not None} for at in (0, 1)]
    places = [
        None if "partition" not in names[at] or result_row[names[at]["offset"]] is None
        else (result_row[names[at]["partition"]], result_row[names[at]["offset"]])
        for at in (LEFT, RIGHT)
    ]  # fmt: skip
    for at, place in enumerate(places):
        if place is None:
            continue
        row = rows[at][place]
        for number, column in enumerate(feeds[at].columns):
            actual, expected = result_row[names[at][column.name]], feeds[at].value(row, number)
            assert actual == expected, f"{SIDES[at]} {row}: {column.name} is {actual!r}, expected {expected!r}"
        time = result_row.get(f"event_time_{SIDES[at]}")
        assert time == (None if row.time is None else row.time * 1000), f"{SIDES[at]} {row}: its time is {time}"
    return ResultRow(places[LEFT], places[RIGHT], bool(result_row.get("late")))


def play_latest(rng: random.Random) -> int:
    feeds = two_feeds(rng)
    plan = JoinPlan(
        left=side_of(feeds[LEFT], "left"), right=side_of(feeds[RIGHT], "right"), bounds=(Bound(0, 0, -FARTHEST_MS, 0),),
        how=rng.choice([How.LEFT, How.INNER]), late=rng.choice([LatePolicy.DROP, LatePolicy.EMIT]), latest=True,
    )  # fmt: skip
    actual = result_of(rng, plan, feeds)
    on_time, expected = judged(plan, feeds)
    for row in on_time[LEFT]:
        earlier_changes = [
            (change.time, number, change)
            for number, change in enumerate(on_time[RIGHT])
            if None not in (row.time, change.time) and change.time <= row.time and same_key(feeds, row, change)
        ]
        if earlier_changes:
            expected[ResultRow(row[2:], max(earlier_changes)[2][2:])] += 1
        elif plan.how is How.LEFT:
            expected[unmatched_row(LEFT, row)] += 1
    same(actual, expected, f"latest {plan.how.value}")
    return actual.total()
