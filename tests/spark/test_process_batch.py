"""A processor of two inputs without Spark: stage, buckets and unpacking; every batch begins from what is written."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.spark.hosting.bucket_batch import BucketLayout
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT
from tests.spark.test_join_batch import kinds, told
from tests.spark.two_inputs import TwoInputs

TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("k", pa.string()), ("event_time", TIMESTAMP), ("__time", pa.int64())])
RESULT = pa.schema([("k", pa.string()), ("told", pa.string())])


class Told(Processor):
    """What it is told, as rows."""

    def _row(self, key, text):
        times = pa.array([(self.watermark_ms or 0) * 1_000], pa.int64()).cast(TIMESTAMP)
        yield pa.table({"k": [key], "told": [text], "event_time": times})

    def on_rows(self, input_number, rows):
        for key in rows["k"].to_pylist():
            yield from self._row(key, f"input {number_of(input_number)} at {self.watermarks_ms}")

    def on_watermark(self, input_number, key, time_ms):
        return self._row("", f"input {number_of(input_number)} key {key} to {time_ms}, both {self.watermark_ms}")

    def on_idle(self, input_number):
        return self._row("", f"input {number_of(input_number)} idle")


def number_of(number: int) -> int:
    assert number in {0, 1}
    return number


INPUT = ProcessInput(schema=SCHEMA, by=("k",), time="__time")
PLAN = ProcessPlan(inputs=(INPUT, INPUT), make=Told, result=RESULT, called="Told", version=1)


def Pipeline(buckets: int) -> TwoInputs:
    """All buckets of one processor; the second input follows the axis with key 3."""
    return TwoInputs(PLAN, BucketLayout("both", tuple(bucket_ids(buckets)), ((0,), (3,)), "process"))


def event(key: str, ms: int) -> dict:
    return {"k": key, "event_time": ms * 1_000, "__time": ms}


def other(channel: str, snapshot: int, watermark_ms: int) -> list[dict]:
    """What a channel of the second input says, whose axis has key 3."""
    rows = told(channel, snapshot, watermark_ms)
    return [{CONTROL_TEXT: row[CONTROL_TEXT].replace('"key":0', '"key":3')} for row in rows]


def texts(rows: list[dict]) -> list[str]:
    return [row["told"] for row in rows if row["control"] is None]


def watermarks(rows: list[dict]) -> list[int]:
    controls = [row["control"] for row in rows if row["control"] is not None]
    return [round(one["watermark"].timestamp() * 1_000) for one in controls if one["kind"] == "watermark"]


def test_each_input_has_its_own_watermark_and_the_lowest_leaves():
    pipeline = Pipeline(1)
    first = pipeline.batch([event("a", 50), *told("t-0", 0, 40)], [event("b", 20), *other("u-0", 0, 10)])
    assert texts(first) == [
        "input 0 at (None, None)",
        "input 1 at (None, None)",
        "input 0 key 0 to 40, both None",
        "input 1 key 3 to 10, both 10",
    ]
    assert (kinds(first), watermarks(first)) == (["watermark", "barrier"], [10])
    alone = pipeline.batch([event("a", 70), *told("t-0", 1, 60)], [])
    assert texts(alone) == ["input 0 at (40, 10)", "input 0 key 0 to 60, both 10"]
    assert (kinds(alone), watermarks(alone)) == (["barrier"], [])
    assert watermarks(pipeline.batch([], other("u-0", 1, 90))) == [60]


def test_barriers_go_up_by_one_whichever_input_brought_the_batch():
    pipeline = Pipeline(2)
    made = [
        pipeline.batch(told("t-0", 7, 1), other("u-0", 3, 1)),
        pipeline.batch([], other("u-0", 4, 2)),
        pipeline.batch(told("t-0", 8, 2), []),
    ]
    barriers = [[row["control"] for row in rows if row["control"]["kind"] == "barrier"] for rows in map(control, made)]
    assert [{(one["snapshot"], one["channels"]) for one in of_batch} for of_batch in barriers] == [
        {(7, 2)}, {(8, 2)}, {(9, 2)}
    ]  # fmt: skip


def control(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row["control"] is not None]


def test_it_is_idle_when_both_inputs_are_and_each_is_told_by_itself():
    pipeline = Pipeline(1)
    first = pipeline.batch(told("t-0", 0, 5, idle=True), other("u-0", 0, 5))
    assert (texts(first)[-1], kinds(first)) == ("input 0 idle", ["watermark", "barrier"])
    second = pipeline.batch([], [*other("u-0", 1, 6)[:1], *told("u-0", 1, idle=True)])
    assert (texts(second)[-1], kinds(second)) == ("input 1 idle", ["idle", "barrier"])
    assert kinds(pipeline.batch([event("a", 9), *told("t-0", 1, 8)], [])) == ["active", "watermark", "barrier"]


def test_an_input_whose_control_rows_were_filtered_is_refused_by_its_number():
    pipeline = Pipeline(1)
    with pytest.raises(InputError, match="process both, input 1: a batch came without barrier rows"):
        pipeline.batch(told("t-0", 0, 5), [event("a", 1)])


def test_equal_keys_of_both_inputs_meet_in_one_bucket():
    keys = [f"key {number}" for number in range(40)]
    answers = []
    for buckets in (1, 3):
        pipeline = Pipeline(buckets)
        rows = [event(key, 5) for key in keys]
        made = pipeline.batch([*rows, *told("t-0", 0, 1)], [*rows, *other("u-0", 0, 1)])
        answers.append(Counter((row["k"], row["told"]) for row in made if row["k"]))
        if buckets == 3:
            held = {}
            for one in pipeline.layout.ids:
                held[one] = pipeline.state[one][0].as_json()
                assert len(held[one]["inboxes"]) == 1
    assert answers[0] == answers[1]
    assert answers[0].total() == 80


def test_a_watermark_of_idle_inputs_wakes_nobody():
    pipeline = Pipeline(1)
    second = [*other("u-0", 0, 9)[:1], *told("u-0", 0, idle=True)]
    assert kinds(pipeline.batch(told("t-0", 0, 5, idle=True), second)) == ["watermark", "idle", "barrier"]
    assert kinds(pipeline.batch(told("t-0", 1, 6, idle=True), [])) == ["watermark", "idle", "barrier"]
    assert kinds(pipeline.batch(told("t-0", 2, idle=True), [])) == ["barrier"]
