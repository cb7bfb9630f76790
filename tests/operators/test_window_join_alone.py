"""Joins of windows where a message that met none comes alone, each side at its own pace, and in buckets as in Spark."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import InputError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.plan import SlidingWindow, tumbling
from keyedwm.operators.join.plan import How
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import Keep
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import CompletedBy, HoppingWindow, tumbling_rows
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.windows import WindowJoin
from tests.operators.stored import KEEP_ALL, SCHEMA, Message, once_each
from tests.operators.test_window_join import messages, new_pairs
from tests.operators.window_joins import NAMES, Model, PlayedWindowJoin, as_table, pair_tuple, plan_of, recut, steps
from tests.seeds import seeds
from tests.spark.test_join_batch import told
from tests.spark.two_inputs import TwoInputs

WINDOWS = (HoppingWindow(10, 10), HoppingWindow(10, 3, 2), HoppingWindow(4, 10, 1), SlidingWindow(12, 4, 1))
OUTER = {How.INNER: (), How.LEFT: ("left",), How.RIGHT: ("right",), How.FULL: NAMES}


class UnmatchedModel:
    """The model, and the messages that are alone when both sides have come past their windows."""

    def __init__(self, plan) -> None:
        self.plan, self.model, self._settled_messages = plan, Model(plan), set()

    def step(self, name: str, side: str, argument) -> list[tuple]:
        before, full = len(self.model.pairs), self._full()
        getattr(self.model, name)(side, argument)
        return [*self.model.pairs[before:], *self._unmatched_rows(full)]

    def _full(self) -> int:
        return min(side.horizon for side in self.model.sides.values())

    def _unmatched_rows(self, full: int) -> list[tuple]:
        rows = []
        for name in OUTER[self.plan.how]:
            matched_records = {pair[:3] if name == "left" else pair[3:6] for pair in self.model.pairs}
            for one, at in self.model.sides[name].accepted:
                starts = self.model.starts(at, self.model.step)
                if (name, one[3:]) in self._settled_messages or starts[-1] + self.model.size > self._full():
                    continue
                self._settled_messages.add((name, one[3:]))
                if one[3:] not in matched_records:
                    records = (*one[3:], *[None] * 3) if name == "left" else (*[None] * 3, *one[3:])
                    late = starts[-1] + self.model.size <= full
                    rows.append((*records, starts[0], "late" if late else "on_time"))
        return rows


@pytest.mark.parametrize("how", [How.LEFT, How.RIGHT, How.FULL], ids=lambda how: how.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_what_met_none_comes_alone_when_both_sides_are_past_its_windows(window, how):
    timings = set()
    for seed in seeds(2):
        retention = (KEEP_ALL, Retention(time_ms=15))[(seed // 2 + WINDOWS.index(window)) % 2]
        plan = plan_of(window, full=list(CompletedBy)[seed % 2], retention=retention, how=how)
        model, player = UnmatchedModel(plan), PlayedWindowJoin(plan)
        for name, side, argument in steps(seed, 30):
            expected_rows = model.step(name, side, argument)
            assert sorted(player.step(name, side, as_table(name, argument)), key=str) == sorted(expected_rows, key=str)
            timings.update(one[-1] for one in expected_rows if None in one)
    assert timings == {"on_time", "late"}


@pytest.mark.parametrize("keep", [Keep.FIRST, Keep.LAST], ids=lambda keep: keep.value)
@pytest.mark.parametrize("how", [How.LEFT, How.FULL], ids=lambda how: how.value)
def test_a_window_with_messages_of_one_side_gives_its_row_too(keep, how):
    for window in WINDOWS:
        plan = plan_of(window, keep=keep, how=how)
        all_steps, model = steps(3, 40), Model(plan)
        for name, side, argument in all_steps:
            getattr(model, name)(side, argument)
        for again in (all_steps, recut(3, all_steps)):
            player, pairs = PlayedWindowJoin(plan), []
            for name, side, argument in again:
                pairs += player.step(name, side, as_table(name, argument))
            pairs += player.step("finish")
            last = {(key, row[6]): row[:6] for key, row in zip(player.keys, pairs, strict=True) if key is not None}
            assert last == model.kept_rows(first=keep is Keep.FIRST, outer=OUTER[how])
            without_key = [row[:7] for key, row in zip(player.keys, pairs, strict=True) if key is None]
            assert sorted(set(without_key), key=str) == sorted(without_key, key=str) != []


def test_a_message_that_must_go_before_its_window_is_full_comes_alone():
    operator = WindowJoin(plan_of(tumbling(10), how=How.LEFT, retention=Retention(max_windows=1)))
    operator.add_message("left", messages((0, 1), (1, 12)))
    assert new_pairs(operator) == [(0, None, 0, "early")]


# In buckets


@pytest.mark.parametrize("how", [How.INNER, How.FULL], ids=lambda how: how.value)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_buckets_give_the_rows_and_the_rejected_messages_of_the_model_and_none_behind_their_watermark(window, how):
    plan = plan_of(window, retention=Retention(time_ms=15), how=how)
    buckets, model = Buckets(plan, 2), UnmatchedModel(plan)
    for name, side, argument in steps(7, 30):
        rows = buckets.step(name, side, argument)
        assert sorted(rows, key=str) == sorted(model.step(name, side, argument), key=str)
    for number, side in enumerate(NAMES):
        expected_messages = [(*one, reason) for one, reason in model.model.sides[side].rejected]
        assert sorted(buckets.rejected[number], key=str) == sorted(expected_messages, key=str)
    assert any(buckets.rejected)
    assert set(buckets.marks) == {"joined#0", "joined#1"}


def test_windows_of_rows_in_buckets_are_those_of_one():
    results = []
    for count in (1, 3):
        buckets = Buckets(plan_of(tumbling_rows(4)), count)
        results.append([sorted(buckets.step(name, side, argument)) for name, side, argument in steps(2, 30)])
    assert results[0] == results[1]
    assert sum(map(len, results[0])) > 5


def test_messages_that_no_window_takes_end_the_query_where_that_is_asked_for():
    plan = plan_of(tumbling(10), retention=Retention(time_ms=10))
    buckets = Buckets(plan, 1, LatePolicy.FAIL)
    buckets.step("watermark", "left", 100)
    with pytest.raises(InputError, match="1 messages came when all their windows were gone"):
        buckets.step("add_message", "left", steps_of((0, 5)))


def steps_of(*rows: tuple) -> list:
    return [Message("k", offset, time, "t", 0, offset) for offset, time in rows]


class Buckets:
    """All buckets of a join, driven by steps; every batch begins from what the one before wrote down."""

    def __init__(self, plan, count: int, late: LatePolicy = LatePolicy.EMIT) -> None:
        layout = BucketLayout("joined", tuple(bucket_ids(count)), ((0,), (0,)), "window_join")
        self._pipeline = TwoInputs(BucketWindowJoin(plan=plan, late=late), layout)
        self._snapshots, self._watermarks_ms = dict.fromkeys(NAMES, 0), {}
        self.rejected: tuple[list, list] = ([], [])
        self.marks: dict[str, int] = {}

    def step(self, name: str, side: str, argument) -> list[tuple]:
        """Return the rows of the batch that brought this of one side; a record comes again in a batch of its own."""
        parts = once_each(argument) if name == "add_message" else [argument]
        return [row for part in parts for row in self._batch(name, side, part)]

    def _batch(self, name: str, side: str, argument) -> list[tuple]:
        rows = [dict(zip(SCHEMA.names, one, strict=True)) for one in argument] if name == "add_message" else []
        if name == "watermark":
            self._watermarks_ms[side] = max(argument, self._watermarks_ms.get(side, argument))
        is_new = name == "watermark" and self._watermarks_ms[side] == argument
        inputs: list[list[dict]] = [[], []]
        inputs[NAMES.index(side)] = [*rows, *told(f"{side}-0", self._snapshots[side], argument if is_new else None)]
        self._snapshots[side] += 1
        held_back = min(self.marks.values(), default=None)
        output_rows = self._pipeline.batch(*inputs)
        for row in output_rows:
            assert row["event_time"] is None or held_back is None or ms(row["event_time"]) >= held_back
            if row["control"] is not None and row["control"]["kind"] == "watermark":
                self.marks[row["control"]["channel"]] = ms(row["control"]["watermark"])
            elif row["control"] is None and row.get("rejected") is not None:
                back = row["rejected"]
                assert row["event_time"] is None
                self.rejected[NAMES.index(back["side"])].append((*list(back.values())[:6], back["reason"]))
        return [pair_tuple(row) for row in output_rows if row["control"] is None and row.get("rejected") is None]


def ms(moment) -> int:
    return round(moment.timestamp() * 1_000)
