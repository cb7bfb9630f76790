"""Running aggregates: each row with those of all rows of its key up to it, for any cut and after every restart."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.running import Running
from keyedwm.operators.process.running_state import RunningPlan
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits
from tests.operators.laws.small import SMALL
from tests.operators.moving import processor_in_buckets

TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    ("k", pa.string()), ("v", pa.float64()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("event_time", TIMESTAMP),
])  # fmt: skip
TIMED = SCHEMA.append(pa.field("__time", pa.int64()))
AGGREGATES = {
    "n": agg.count(), "some": agg.count("v"), "total": agg.sum("v"), "low": agg.min("v"), "high": agg.max("v"),
    "mean": agg.avg("v"), "spread": agg.stddev("v"), "opened": agg.first("v"), "newest": agg.last("v"),
    "best": agg.top_n(2, "v"), "kinds": agg.approx_count_distinct("v"), "large": agg.count_if("v > 5"),
}  # fmt: skip


def plan_of(**how) -> RunningPlan:
    settings = {"schema": SCHEMA, "by": ("k",), "aggregates": tuple(AGGREGATES.items())}
    return RunningPlan(**(settings | how))


def table(rows: Iterable[tuple]) -> pa.Table:
    """(key, value, event time in ms, partition, offset)."""
    keys, values, ms, partitions, offsets = zip(*rows, strict=True) if rows else [()] * 5
    times = pa.array([one * 1_000 for one in ms], pa.int64()).cast(TIMESTAMP)
    columns = [keys, values, ["t"] * len(keys), partitions, offsets, times, ms]
    return pa.table([pa.array(one, of.type) for one, of in zip(columns, TIMED, strict=True)], schema=TIMED)


FEW = replace(SMALL, running_rows=7)


class RestartedRunning:
    """The operator, built anew from its blobs for each batch."""

    def __init__(self, plan: RunningPlan, limits: StateLimits = FEW) -> None:
        self.limits = limits
        process_input = ProcessInput(schema=TIMED, by=plan.by, time="__time")
        self.plan = ProcessPlan(
            inputs=(process_input,),
            make=lambda: Running(plan),
            result=plan.result_schema,
            called=plan.called,
            version=1,
        )
        self.blobs: dict[str, bytes] = {}
        self.watermark_ms: int | None = None
        self.read = self.late = 0

    def batch(self, rows: list[tuple], watermark_ms: int | None) -> list[dict]:
        store = MemoryStore(dict(self.blobs), self.limits)
        operator, result_rows = operator_of(self.plan, store), []
        calls = [("on_watermark", 0, 0, self.watermark_ms)] if self.watermark_ms is not None else []
        calls += [("on_rows", 0, table(rows), None)]
        self.watermark_ms = max((ms for ms in (watermark_ms, self.watermark_ms) if ms is not None), default=None)
        calls += [("on_watermark", 0, 0, self.watermark_ms)] if self.watermark_ms is not None else []
        for name, *arguments in calls:
            for output in getattr(operator, name)(*arguments):
                result_rows += output.rows.append_column("ms", pa.array(output.event_ms)).to_pylist()
        store.apply(operator.drain())
        self.blobs, self.late = store.blobs, self.late + operator.late_rows
        return result_rows


def rows_of(rng: random.Random, count: int) -> list[tuple]:
    offsets = [0, 0, 0]
    rows = []
    for number in range(count):
        partition = rng.randrange(3)
        value = rng.choice([None, float(rng.randrange(10)), 0.1 * rng.randrange(10)])
        ms = max(0, number * 400 - rng.choice([0, 0, rng.randrange(9_000)])) // 1_000 * 1_000 - 20_000
        rows.append((rng.choice(["a", "b", "c", None]), value, ms, partition, offsets[partition]))
        offsets[partition] += 1 + rng.randrange(2)
    return rows


def model(rows: list[tuple], keep_ms: int | None = None) -> list[dict]:
    """Each row with the aggregates, by the words of the docs."""
    before: dict[str | None, list[tuple]] = {}
    expected_rows = []
    for row in sorted(rows, key=lambda one: one[2:]):
        key, value, ms, partition, offset = row
        key_rows = before.setdefault(key, [])
        if keep_ms is not None and key_rows and ms - key_rows[-1][2] > keep_ms:
            key_rows.clear()
        key_rows.append(row)
        some = [one[1] for one in key_rows if one[1] is not None]
        many = len(some) > 1
        expected_rows.append({
            "k": key, "v": value, "topic": "t", "partition": partition, "offset": offset,
            "n": len(key_rows), "some": len(some), "total": sum_of(some), "low": min(some, default=None),
            "high": max(some, default=None), "mean": sum_of(some) / len(some) if some else None,
            "spread": math.sqrt(statistics.variance(map(Fraction, some))) if many else None,
            "opened": key_rows[0][1], "newest": value,
            "best": sorted(some, reverse=True)[:2], "kinds": len(set(some)),
            "large": sum(one > 5 for one in some), "ms": ms,
        })  # fmt: skip
    return expected_rows


def sum_of(values: list[float]) -> float | None:
    return float(sum(map(Fraction, values))) if values else None


def split_batches(rng: random.Random, rows: list[tuple]) -> list[tuple[list[tuple], int]]:
    """Batches, and behind each the watermark that makes no row late."""
    batches, at = [], 0
    while at < len(rows):
        behind = at + rng.choice([0, 1, 3, 40])
        after = min((one[2] for one in rows[behind:]), default=10**9)
        batches.append((rows[at:behind], after - rng.choice([0, 500])))
        at = behind
    return [*batches, ([], 10**9)]


@pytest.mark.parametrize("keep_ms", [None, 2_000, 100_000])
def test_every_row_leaves_once_with_the_aggregates_up_to_it_for_any_cut_and_after_every_restart(keep_ms, seed):
    for number in range(4):
        rng = random.Random(f"{seed} {number} {keep_ms}")
        rows = rows_of(rng, 120)
        player, result_rows = RestartedRunning(plan_of(keep_ms=keep_ms)), []
        for batch, watermark_ms in split_batches(rng, rows):
            leave = player.batch(batch, watermark_ms)
            assert all(one["ms"] < player.watermark_ms for one in leave)
            result_rows += leave
        assert result_rows == model(rows, keep_ms)
        assert (len(result_rows), player.late) == (120, 0)


def test_rows_of_equal_event_time_are_in_order_of_topic_partition_and_offset():
    rows = [("a", 1.0, 5, 1, 0), ("a", 2.0, 5, 0, 7), ("a", 3.0, 5, 0, 9)]
    for order in (rows, rows[::-1]):
        result_rows = RestartedRunning(plan_of()).batch(order, 6)
        assert [(one["v"], one["total"]) for one in result_rows] == [(2.0, 2.0), (3.0, 5.0), (1.0, 6.0)]


def test_a_row_waits_until_the_watermark_has_passed_it():
    player = RestartedRunning(plan_of())
    assert player.batch([("a", 1.0, 10_000, 0, 0), ("a", 2.0, 9_999, 0, 1)], 9_999) == []
    assert [one["v"] for one in player.batch([], 10_000)] == [2.0]
    assert [one["total"] for one in player.batch([], 10_001)] == [3.0]


def test_late_rows_are_counted_or_refused_and_change_nothing():
    player = RestartedRunning(plan_of())
    player.batch([("a", 1.0, 0, 0, 0)], 1_000)
    result_rows = player.batch([("a", 5.0, 999, 0, 1), ("a", 2.0, 1_000, 0, 2)], 2_000)
    assert ([one["total"] for one in result_rows], player.late) == ([3.0], 1)
    player = RestartedRunning(plan_of(late=LatePolicy.FAIL))
    player.batch([], 1_000)
    with pytest.raises(
        InputError, match=r"running: 1 rows were late \(earliest: 999 ms\), behind the watermark of 1000 ms"
    ):
        player.batch([("a", 5.0, 999, 0, 1)], 2_000)


def test_without_key_columns_all_rows_go_on_together():
    result_rows = RestartedRunning(plan_of(by=())).batch([("a", 1.0, 0, 0, 0), ("b", 2.0, 1, 0, 1)], 10)
    assert [one["total"] for one in result_rows] == [1.0, 3.0]


def test_a_batch_reads_the_slices_that_the_watermark_has_reached_and_no_others():
    class RecordingStore(MemoryStore):
        def get(self, name):
            read_names.append(name)
            return super().get(name)

    player = RestartedRunning(plan_of())
    player.batch([("a", 1.0, 1_000 * second, 0, second) for second in range(3_600)], 0)
    read_names: list[str] = []
    operator = operator_of(player.plan, RecordingStore(dict(player.blobs)))
    outputs = list(operator.on_watermark(0, 0, 25_000))
    assert sum(one.rows.num_rows for one in outputs) == 25
    assert [name for name in read_names if name.startswith("waiting-")] == ["waiting-0", "waiting-1", "waiting-2"]


def test_silent_keys_are_forgotten_after_keep():
    player = RestartedRunning(plan_of(keep_ms=1_000))
    for second in range(100):
        player.batch([(f"key {second}", 1.0, 1_000 * second, 0, second)], 1_000 * second + 1)
        log_rows = operator_facts(player)["rows"]
        assert sum(log_rows.values()) <= 10


def operator_facts(player: RestartedRunning) -> dict:
    return json.loads(player.blobs[MANIFEST])


def test_state_moves_to_another_number_of_buckets(seed):
    rows = rows_of(random.Random(seed), 200)
    old, middle = RestartedRunning(plan_of()), min(row[2] for row in rows[100:])
    result_rows = old.batch(rows[:100], middle)
    for number, blobs in enumerate(processor_in_buckets("running", old.plan, old.blobs, 2)):
        one = RestartedRunning(plan_of())
        one.blobs = blobs
        buckets = bucket_of([pa.chunked_array([[row[0] for row in rows[100:]]])], 100, 2).tolist()
        bucket_rows = [row for row, bucket in zip(rows[100:], buckets, strict=True) if bucket == number]
        result_rows += one.batch(bucket_rows, 10**9)
        assert one.late == 0
    in_order = ("ms", "topic", "partition", "offset")
    assert sorted(result_rows, key=lambda one: [one[name] for name in in_order]) == model(rows)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"aggregates": (("all", agg.collect("v")),)}, r"'all' is collect\(v\), which keeps every value"),
        ({"aggregates": (("mid", agg.median("v")),)}, "which keeps every value, and a running aggregate never ends"),
        ({"aggregates": ()}, "needs at least one aggregate"),
        ({"aggregates": (("v", agg.count()),)}, "two columns called 'v'"),
        ({"aggregates": (("n", agg.sum("k")),)}, "sum"),
        ({"by": ("k", "k")}, "running: by names the column 'k' twice: name it once"),
        ({"by": ("x",)}, "the input has no column 'x'"),
        ({"keep_ms": 0}, "keep=0 ms, it must be 1 ms or more"),
        (
            {"aggregates": (("Event_Time", agg.count()),)},
            "a result column cannot be called 'Event_Time': rows have one",
        ),
        ({"late": LatePolicy.EMIT}, "late='emit': a late row has no place among results that have left"),
    ],
)
def test_a_plan_that_cannot_run_is_one_sentence(wrong, sentence):
    with pytest.raises(OptionError, match=sentence):
        plan_of(**wrong)


def test_a_row_without_its_offset_is_refused():
    with pytest.raises(InputError, match="1 of 1 rows have no offset, by which rows of equal event time are ordered"):
        RestartedRunning(plan_of()).batch([("a", 1.0, 0, 0, None)], 10)


def test_many_rows_of_one_key_leave_in_pieces_with_the_results_of_one():
    rows = [("a", float(number % 7), number, 0, number) for number in range(1_000)]
    whole = RestartedRunning(plan_of(), LIMITS).batch(rows, 10**6)
    assert RestartedRunning(plan_of(), StateLimits(running_rows=64)).batch(rows, 10**6) == whole
    assert np.allclose([one["total"] for one in whole], np.cumsum([row[1] for row in rows]))


def test_rows_of_one_record_keep_their_order_and_are_counted_each_whatever_the_cut():
    """As `explode` makes them: equal topic, partition and offset."""
    first = [("a", 2.0, 1_000, 0, 0), ("a", 1.0, 1_000, 0, 0), ("a", 3.0, 1_000, 0, 0), ("a", 3.0, 1_000, 0, 0)]
    then = [("a", 9.0, 2_000, 0, 1), ("a", 4.0, 2_000, 0, 1)]
    aggregates = {name: AGGREGATES[name] for name in ("n", "opened", "newest", "total")}
    expected_rows = [
        (2.0, 1, 2.0, 2.0, 2.0), (1.0, 2, 2.0, 1.0, 3.0), (3.0, 3, 2.0, 3.0, 6.0), (3.0, 4, 2.0, 3.0, 9.0),
        (9.0, 5, 2.0, 9.0, 18.0), (4.0, 6, 2.0, 4.0, 22.0),
    ]  # fmt: skip
    for most in (1, 1 << 16):
        for batches in (
            [(first + then, 5_000)],
            [(first, 1_500), (then, 5_000)],
            [(first, None), (then, 1_500), ([], 5_000)],
        ):
            player = RestartedRunning(plan_of(aggregates=tuple(aggregates.items())), StateLimits(running_rows=most))
            result_rows = [row for rows, ms in batches for row in player.batch(rows, ms)]
            assert [(r["v"], r["n"], r["opened"], r["newest"], r["total"]) for r in result_rows] == expected_rows
