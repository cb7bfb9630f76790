"""Windows that keep their messages, in buckets: every batch begins from the blobs that the one before left."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.rows import REJECTED, ControlKind
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.frames.plan import SlidingWindow, tumbling
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow
from keyedwm.operators.panes import Early
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT
from tests.operators.stored import (
    IN_ORDER,
    SCHEMA,
    Restarted,
    once_each,
    pane_tuple,
    plan_of,
    random_messages,
    split_steps,
    table,
)
from tests.spark.test_bucket_batch import Pipeline, told

EXCHANGE_SCHEMA = pa.schema([*SCHEMA, (CONTROL_TEXT, pa.string())])
WINDOWS = (HoppingWindow(10, 10), HoppingWindow(10, 3), HoppingWindow(4, 10, 1), SlidingWindow(12, 4, 1))


class Buckets:
    """All buckets of a plan, driven by steps; every message goes to one of two tasks."""

    def __init__(self, plan: BucketStore, buckets: int, *, tasks: int = 1, seed: str = "") -> None:
        self._pipeline = Pipeline(plan, buckets)
        self._chance, self._tasks, self._snapshot = random.Random(seed), tasks, 0
        self.plan = plan

    def batch(self, messages: list, watermark_ms: int | None = None) -> tuple[list, list]:
        """Return the panes in order, and the messages that were given back with the reason.

        A batch of Spark brings a record once: one that comes again does so in a batch of its own.
        """
        *before, last = once_each(messages)
        parts = [*(self._batch(part, None) for part in before), self._batch(last, watermark_ms)]
        return [one for panes, _ in parts for one in panes], [one for _, back in parts for one in back]

    def _batch(self, messages: list, watermark_ms: int | None) -> tuple[list, list]:
        task_messages: list[list] = [[] for _ in range(self._tasks)]
        for one in messages:
            self._chance.choice(task_messages).append(one)
        marks = [] if watermark_ms is None else [(ControlKind.WATERMARK, {"key": 0, "watermark_ms": watermark_ms})]
        marks.append((ControlKind.BARRIER, {"snapshot": self._snapshot, "channels": 1}))
        self._snapshot += 1
        control = [{CONTROL_TEXT: told(kind, "t-0", **settings)} for kind, settings in marks]
        tasks = [table(rows).append_column(CONTROL_TEXT, pa.nulls(len(rows), pa.string())) for rows in task_messages]
        output_rows = self._pipeline.batch([*tasks, pa.Table.from_pylist(control, schema=EXCHANGE_SCHEMA)])
        rows = [row for row in output_rows if row["control"] is None]
        panes = [pane_tuple(row) for row in rows if row.get(REJECTED) is None]
        back = [row[REJECTED] for row in rows if row.get(REJECTED) is not None]
        assert all(row["event_time"] is None and row["window"] is None for row in rows if row.get(REJECTED) is not None)
        return panes, [(tuple(row.values())[:-1], row["reason"]) for row in back]

    @property
    def state(self) -> dict:
        """The note and the store of each bucket."""
        return self._pipeline.state

    def counts(self) -> Counter:
        """What became of all messages, over the buckets."""
        totals: Counter = Counter()
        for _, store in self._pipeline.state.values():
            if "note" in store.blobs:
                note = json.loads(store.get("note"))
                for counts in note["accounts"]:
                    totals.update(counts)
        return totals

    def run(self, steps: list[tuple]) -> tuple[list, list]:
        """Messages and the watermark behind them are one batch."""
        panes, back, at = [], [], 0
        while at < len(steps):
            name, argument = steps[at]
            watermark = steps[at + 1][1] if at + 1 < len(steps) and steps[at + 1][0] == "watermark" else None
            new_panes, rejected = self.batch(argument if name == "add_message" else [], watermark)
            panes, back, at = panes + new_panes, back + rejected, at + 1 + (watermark is not None)
        return panes, back


def bucket_store(window, late=LatePolicy.EMIT, **settings) -> BucketStore:
    return BucketStore(plan=plan_of(window, **settings), late=late)


def joined(steps: list[tuple]) -> list[tuple]:
    """The same steps, messages that no watermark parts in one step."""
    joined_steps: list[tuple] = []
    for name, argument in steps:
        if name == "add_message" and joined_steps and joined_steps[-1][0] == "add_message":
            joined_steps[-1] = name, joined_steps[-1][1] + argument
        else:
            joined_steps.append((name, argument))
    return joined_steps


def rising(steps: list[tuple]) -> list[tuple]:
    """Without watermarks that do not increase."""
    highest, rising_steps = -(10**9), []
    for name, argument in steps:
        if name == "add_message" or argument > highest:
            rising_steps.append((name, argument))
            highest = argument if name == "watermark" else highest
    return rising_steps


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_panes_and_messages_given_back_are_those_of_the_standalone_operator(window, buckets, seed):
    early = Early(rows=2)
    settings = {"retention": Retention(time_ms=15), "early": early}
    messages = random_messages(f"{seed} {window}", 80)
    steps = rising(split_steps(f"{seed} {window}", messages, watermarks=True))
    one_operator = Restarted(plan_of(window, **settings))
    for name, argument in steps:
        one_operator.step(name, table(argument) if name == "add_message" else argument, flush=False)
    one_operator.step("watermark", -(10**9))
    many = Buckets(bucket_store(window, **settings), buckets, tasks=2, seed=seed)
    panes, back = many.run(steps)
    assert Counter(panes) == Counter(one_operator.results)
    assert Counter(map(str, back)) == Counter(str((tuple(one), reason)) for one, reason in one_operator.rejected)
    assert len(panes) > 10
    assert len(back) > 3
    counts = many.counts()
    assert counts["given"] == len(messages) == counts["taken"] + counts["rejected"] + counts["replayed"]
    assert counts["rejected"] == len(back)


@pytest.mark.parametrize("full", CompletedBy, ids=lambda full: full.value)
def test_however_the_input_is_cut_the_last_pane_of_a_window_and_what_is_given_back_are_the_same(full, seed):
    plan = bucket_store(HoppingWindow(10, 3), retention=Retention(time_ms=15), full=full)
    steps = rising(split_steps(f"{seed} law", random_messages(f"{seed} law", 80), watermarks=True))

    def last_words(input_steps: list[tuple], buckets: int) -> tuple[dict, Counter]:
        panes, back = Buckets(plan, buckets, tasks=3 if full is CompletedBy.WATERMARK else 1, seed=seed).run(
            input_steps
        )
        return {(start, end, key): inside for start, end, key, inside, *_ in panes}, Counter(map(str, back))

    expected_outcome = last_words(steps, 1)
    assert last_words(joined(steps), 1) == expected_outcome
    if full is CompletedBy.WATERMARK:
        assert last_words(joined(steps), 4) == expected_outcome
    assert len(expected_outcome[0]) > 10


def test_a_batch_that_comes_again_is_known_as_a_replay():
    buckets = Buckets(bucket_store(tumbling(10)), 2)
    messages = [one for one in random_messages("again", 30) if one.time is not None]
    buckets.batch(messages)
    panes, back = buckets.batch(messages, 10**6)
    once, _ = Buckets(bucket_store(tumbling(10)), 2).run([("add_message", messages), ("watermark", 10**6)])
    assert (Counter(panes), back) == (Counter(once), [])
    assert buckets.counts()["replayed"] >= len(messages)


def test_late_rows_of_a_batch_are_counted_once_and_without_emit_none_comes_back():
    buckets = Buckets(bucket_store(tumbling(10), late=LatePolicy.DROP, retention=Retention(time_ms=10)), 1)
    buckets.batch(random_messages("late", 5), 10**6)
    old = [("x", 1, 5, "late", 0, offset) for offset in range(3)]
    for number, rows in enumerate((old[:2], old[2:], [])):
        panes, back = buckets.batch(rows)
        assert (panes, back) == ([], [])
        assert buckets.counts()["rejected"] >= 2 + min(number, 1)
    assert REJECTED not in buckets.plan.result_schema.names


def test_with_late_fail_a_message_outside_the_retention_ends_the_query_in_one_sentence():
    buckets = Buckets(bucket_store(tumbling(10), late=LatePolicy.FAIL, retention=Retention(time_ms=10)), 1)
    buckets.batch([("x", 1, None, "t", 0, 0)], 1_000)
    with pytest.raises(InputError, match="1 messages came when all their windows were gone: allow a longer"):
        buckets.batch([("x", 1, 5, "t", 0, 1)])


def test_the_results_of_a_store_without_retention_by_time_keep_the_watermark_of_what_was_dropped():
    buckets = Buckets(bucket_store(tumbling(10), retention=Retention(max_windows=1)), 1)
    pipeline = buckets._pipeline
    rows = [("x", 1, time, "t", 0, offset) for offset, time in enumerate((1, 11, 21))]
    buckets.batch(rows[:1], 5)
    assert pipeline.state[0][0].emitted_ms is None  # the window may speak again at any time
    buckets.batch(rows[1:], 35)
    assert pipeline.state[0][0].emitted_ms == 20


def test_a_result_column_cannot_be_called_as_that_of_rejected_messages():
    with pytest.raises(OptionError, match="a result column cannot be called 'rejected'"):
        bucket_store(tumbling(10), aggregates=((REJECTED, median("n")),))
    assert bucket_store(tumbling(10), late=LatePolicy.DROP, aggregates=((REJECTED, median("n")),)).result_schema
    assert IN_ORDER
