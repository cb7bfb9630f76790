"""`aggregate` with a store: every kind of window that keeps its messages, against the scalar models of the laws.

The models tell of each pane which messages it holds; what its aggregates must be is reckoned from those rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from keyedwm.core.window_rules import LatePolicy, Touching
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import window_function
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow, KeyRowWindow, RowWindow
from keyedwm.operators.panes import Early, EveryBy
from tests.messy.conditions import random_where
from tests.messy.drive import Pipeline
from tests.messy.feed import TOPIC, Feed, Row, random_feed
from tests.messy.rows import EVENT_TIME
from tests.messy.scalar import Expectation, Maker
from tests.messy.windows import check_in_order
from tests.operators.laws.grid import GridModel
from tests.operators.laws.key_rows import KeyRowModel
from tests.operators.laws.on_demand import OnDemandModel
from tests.operators.laws.sessions import SessionModel
from tests.operators.stored import KEEP_ALL, Message, records_text, table

_RECORD_TEXT = "told__"


def records(window: pa.Table) -> str:
    """The messages of a window, as the models tell them."""
    return records_text(window.select(["topic", "partition", "offset"]))


@dataclass
class Case:
    """A plan, and the model that goes with it; shift: what is taken from times before the model sees them."""

    feed: Feed
    plan: StorePlan
    expectations: Sequence[Expectation]
    model: Any
    shift: int
    opens: Callable[[Row], bool] = lambda _: False
    labels: dict[tuple, str] = field(default_factory=dict)

    def message(self, row: Row) -> Message:
        time = None if row.time is None else row.time - self.shift
        label = self.labels.setdefault(self.feed.key(row), str(len(self.labels)))
        return Message(label, int(self.opens(row)), time, TOPIC, row.partition, row.offset)

    def watermark(self, ms: int | None) -> None:
        if ms is not None and hasattr(self.model, "watermark"):
            self.model.watermark(ms - self.shift)

    def add_rows(self, rows: list[Row]) -> None:
        messages = [self.message(row) for row in rows]
        self.model.add_messages(messages, 0) if isinstance(self.model, SessionModel) else self.model.add_messages(
            messages
        )


def play(rng: random.Random) -> int:
    feed = random_feed(rng, keys=rng.choice([0, 1, 1, 1, 2]), without=("reason",))
    redelivered(rng, feed)
    expectations = Maker(rng, feed).drawn(3)
    case = rng.choice([hopping, hopping, sessions, on_demand, offsets, key_rows])(rng, feed, expectations)
    late = rng.choice([LatePolicy.EMIT, LatePolicy.DROP])
    needs_one_bucket = (
        not feed.keys or case.plan.full is CompletedBy.MESSAGE
    )  # windows by messages follow those of their bucket
    pipeline = Pipeline(BucketStore(plan=case.plan, late=late), 1 if needs_one_bucket else rng.choice([1, 2, 2, 3]))
    rows = {(row.partition, row.offset): row for batch in feed.batches for row in batch.rows}
    compared = 0
    for number, batch in enumerate(feed.batches):
        begin, given_back = len(case.model.results), len(case.model.rejected)
        case.watermark(batch.before)
        case.add_rows(batch.rows)
        case.watermark(batch.after)
        result_rows = [row for row in pipeline.batch((feed, batch)) if row["control"] is None]
        at = f"batch {number}, {case.plan.window}"
        panes = [row for row in result_rows if row["pane"] is not None]
        compare(case, rows, panes, case.model.results[begin:], at)
        if late is LatePolicy.EMIT:
            expected = Counter((one[4:], reason) for one, reason in case.model.rejected[given_back:])
            reasons = Counter(
                (row["rejected"][-4:-2], row["rejected"][-1]) for row in result_rows if row["pane"] is None
            )
            assert reasons == expected, f"{at}: given back {reasons - expected}, missing {expected - reasons}"
        else:
            assert len(panes) == len(result_rows)
        compared += len(panes)
    return compared


def compare(case: Case, rows: dict, panes: list[dict], expected: list[tuple], at: str) -> None:
    rows_by_pane: dict[tuple, dict] = {}
    for row in panes:
        label = case.labels[tuple(row[name] for name in case.feed.by)]
        place = (row["partition"],) if case.plan.is_rows else ()
        first, last = row["window"] if case.plan.is_rows else (one // 1000 - case.shift for one in row["window"])
        rows_by_pane[(*place, first, last, label, *row["pane"])] = row
    assert len(rows_by_pane) == len(panes), f"{at}: a pane came twice"
    expected_by_pane = {}
    for pane in expected:
        if isinstance(case.model, KeyRowModel):
            (_, partition), first, last, label, record_text, timing, _, is_last = pane
            expected_by_pane[partition, first, last, label, timing, 0, is_last] = record_text
        else:
            *place, record_text, timing, index, is_last = pane
            expected_by_pane[(*place, timing, index, is_last)] = record_text
    strange, missing = rows_by_pane.keys() - expected_by_pane.keys(), expected_by_pane.keys() - rows_by_pane.keys()
    assert rows_by_pane.keys() == expected_by_pane.keys(), (
        f"{at}: strange {strange}, missing {missing}, labels {case.labels}"
    )
    for place, record_text in expected_by_pane.items():
        row = rows_by_pane[place]
        assert row[_RECORD_TEXT] == record_text, f"{at}, {place}: holds {row[_RECORD_TEXT]!r}, expected {record_text!r}"
        if record_text is not None:
            inside = [rows[tuple(map(int, one.removeprefix(TOPIC).split(":")))] for one in record_text.split()]
            check_in_order(case.expectations, row, inside, f"{at}, {place}")


def redelivered(rng: random.Random, feed: Feed) -> None:
    """Records that come again in a later batch; two of one batch are several rows of a record, which is refused."""
    earlier: list[Row] = []
    for batch in feed.batches:
        fresh = batch.rows
        if earlier and rng.random() < 0.4:
            rng.choice(batch.tasks).extend(rng.sample(earlier, min(len(earlier), 3)))
        earlier += fresh


def plan_of(
    feed: Feed, expectations: Sequence[Expectation], window: Any, retention: Retention, **how: Any
) -> StorePlan:
    aggregates = (
        *((one.name, one.spec) for one in expectations),
        (_RECORD_TEXT, window_function(records, pa.string())),
    )
    schema = pa.schema(
        [one.with_nullable(nullable=True) for one in feed.schema(EVENT_TIME)]
    )  # as the frame's columns are made
    return StorePlan(schema=schema, by=feed.by, window=window, aggregates=aggregates, retention=retention, **how)


def hopping(rng: random.Random, feed: Feed, expectations: Sequence[Expectation]) -> Case:
    step, unit = rng.choice([1, 2, 3]) * feed.unit, feed.unit
    offset = rng.choice([0, 0, step // 2])
    if rng.random() < 0.5:
        window: Any = SlidingWindow(step * rng.choice([1, 1, 3]), step, offset)
        size = window.size_ms
    else:
        window = HoppingWindow(size := rng.choice([1, 2, 5]) * unit, step, offset)
    shift = feed.base - feed.base % step
    how: dict[str, Any] = {"accumulating": rng.random() < 0.7}
    model: dict[str, Any] = dict(how)
    if rng.random() < 0.3:
        how["early"], model["rows"] = Early(rows=2), 2
    if rng.random() < 0.3:
        how["late_rows"] = model["late_rows"] = 2
    retention = Retention(time_ms=size + rng.choice([0, 2, 10]) * unit)
    return Case(
        feed, plan_of(feed, expectations, window, retention, **how), expectations,
        GridModel(size, step, offset, retention=retention, horizon=-(2**60), floor=-(2**60), **model), shift,
    )  # fmt: skip


def sessions(rng: random.Random, feed: Feed, expectations: Sequence[Expectation]) -> Case:
    window = SessionWindow(rng.choice([1, 2, 4]) * feed.unit, rng.choice(list(Touching)))
    every = 3 * feed.unit
    how: dict[str, Any] = rng.choice([
        {}, {}, {"early": Early(rows=2)}, {"late_rows": 2}, {"late_every_ms": every, "late_by": EveryBy.EVENT},
        {"early": Early(every_ms=every, by=EveryBy.EVENT)},
    ])  # fmt: skip
    retention = Retention(time_ms=window.gap_ms + rng.choice([0, 3, 10]) * feed.unit)
    shift = feed.base - feed.base % every
    plan = plan_of(feed, expectations, window, retention, **how)
    return Case(feed, plan, expectations, SessionModel(window, retention, how), shift)


def on_demand(rng: random.Random, feed: Feed, expectations: Sequence[Expectation]) -> Case:
    where = random_where(rng, feed)
    size = rng.choice([1, 3, 6]) * feed.unit
    kept_for = size + rng.choice([0, 2, 8]) * feed.unit
    plan = plan_of(feed, expectations, OnDemandWindow(size, where.text), Retention(time_ms=kept_for))
    shift = feed.base - feed.base % size
    model = OnDemandModel(OnDemandWindow(size, "n >= 1"), kept_for)
    return Case(feed, plan, expectations, model, shift, opens=lambda row: where.holds(row) is True)


def key_rows(rng: random.Random, feed: Feed, expectations: Sequence[Expectation]) -> Case:
    window = KeyRowWindow(*rng.choice([(3, 3), (4, 2), (5, 3), (2, 5), (1, 1)]))
    plan = plan_of(feed, expectations, window, KEEP_ALL)
    return Case(feed, plan, expectations, KeyRowModel(window, CompletedBy.WATERMARK, KEEP_ALL), 0)


@dataclass
class OffsetModel:
    """Windows of offsets of a partition, from its first message on; complete with their last offset."""

    window: RowWindow
    messages_by_partition: dict[int, dict[int, Message]] = field(default_factory=dict)
    complete_windows: set = field(default_factory=set)
    results: list = field(default_factory=list)
    rejected: list = field(default_factory=list)

    def add_messages(self, messages: list[Message]) -> None:
        for one in sorted(messages, key=lambda each: each.offset):
            by_offset = self.messages_by_partition.setdefault(one.partition, {})
            if one.offset in by_offset:
                continue
            by_offset[one.offset] = one
            if (one.offset - min(by_offset)) % self.window.step >= self.window.size:
                self.rejected.append((one, "between windows"))
        for partition, by_offset in self.messages_by_partition.items():
            first, behind = min(by_offset), max(by_offset) + 1
            for start in range(first, behind - self.window.size + 1, self.window.step):
                if (partition, start) not in self.complete_windows:
                    self.complete_windows.add((partition, start))
                    self.show(
                        partition,
                        start,
                        [one for at, one in by_offset.items() if start <= at < start + self.window.size],
                    )

    def show(self, partition: int, start: int, inside: list[Message]) -> None:
        for label in {one.k for one in inside}:
            messages = sorted((one for one in inside if one.k == label), key=lambda one: one.offset)
            last = start + self.window.size - 1
            self.results.append((partition, start, last, label, records_text(table(messages)), "on_time", 0, False))


def offsets(rng: random.Random, feed: Feed, expectations: Sequence[Expectation]) -> Case:
    window = RowWindow(*rng.choice([(3, 3), (4, 2), (5, 3), (2, 5), (1, 1)]))
    return Case(feed, plan_of(feed, expectations, window, KEEP_ALL), expectations, OffsetModel(window), 0)
