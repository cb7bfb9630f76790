"""Duplicates left out: a scalar model in plain Python, for any cut of the input and after every restart."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from keyedwm.core.errors import OptionError
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.process.deduplicate import Deduplicate, DeduplicatePlan
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits
from tests.operators.laws.small import SMALL
from tests.operators.moving import processor_in_buckets

TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    ("k", pa.string()), ("f", pa.float64()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("event_time", TIMESTAMP),
])  # fmt: skip
TIMED = SCHEMA.append(pa.field("__time", pa.int64()))
OTHER_NAN = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\xff")[0]


def plan_of(**how) -> DeduplicatePlan:
    return DeduplicatePlan(**({"schema": SCHEMA, "on": ("k",), "within_ms": 1_000} | how))


def table(rows: Iterable[tuple]) -> pa.Table:
    """(key, float key, event time in ms, offset)."""
    keys, floats, ms, offsets = zip(*rows, strict=True) if rows else [()] * 4
    times = pa.array([one * 1_000 for one in ms], pa.int64()).cast(TIMESTAMP)
    columns = [keys, np.array(floats, float), ["t"] * len(keys), [0] * len(keys), offsets, times, ms]
    return pa.table([pa.array(one, of.type) for one, of in zip(columns, TIMED, strict=True)], schema=TIMED)


class RestartedDeduplication:
    """The operator, built anew from its blobs for each batch."""

    def __init__(self, plan: DeduplicatePlan, limits: StateLimits = LIMITS) -> None:
        self.limits = limits
        self.plan = ProcessPlan(
            inputs=(ProcessInput(schema=TIMED, by=plan.on, time="__time"),),
            make=lambda: Deduplicate(plan),
            result=plan.result_schema,
            called="deduplicate",
            version=1,
        )
        self.blobs: dict[str, bytes] = {}
        self.watermark_ms: int | None = None
        self.late = 0

    def batch(self, rows: list[tuple], watermark_ms: int | None) -> list[int]:
        """Return the offsets of the rows that passed."""
        store = MemoryStore(dict(self.blobs), self.limits)
        operator, passed_offsets = operator_of(self.plan, store), []
        calls = [("on_watermark", 0, 0, self.watermark_ms)] if self.watermark_ms is not None else []
        calls += [("on_rows", 0, table(rows), None)]
        self.watermark_ms = max((ms for ms in (watermark_ms, self.watermark_ms) if ms is not None), default=None)
        calls += [("on_watermark", 0, 0, self.watermark_ms)] if self.watermark_ms is not None else []
        for name, *arguments in calls:
            for output in getattr(operator, name)(*arguments):
                assert output.rows.schema == pa.schema(list(SCHEMA)[:-1])
                passed_offsets += output.rows["offset"].to_pylist()
        store.apply(operator.drain())
        self.blobs, self.late = store.blobs, self.late + operator.late_rows
        return passed_offsets

    @property
    def held_count(self) -> int:
        return sum(json.loads(self.blobs[MANIFEST])["rows"].values())


def model(rows: list[tuple], within_ms: int) -> list[int]:
    """The offsets of the rows that pass, by the words of the docs."""
    passed_times: dict = {}
    passed_offsets = []
    for key, number, ms, offset in rows:
        key_times = passed_times.setdefault((key, "NaN" if math.isnan(number) else number), [])
        if all(abs(ms - before) > within_ms for before in key_times):
            key_times.append(ms)
            passed_offsets.append(offset)
    return passed_offsets


def rows_of(rng: random.Random, count: int) -> list[tuple]:
    keys = ["a", "b", None, ""]
    floats = [0.0, -0.0, float("nan"), OTHER_NAN]
    return [
        (rng.choice(keys), rng.choice(floats), number * 60 - rng.choice([0, 0, rng.randrange(3_000)]) - 9_000, number)
        for number in range(count)
    ]


def split_batches(rng: random.Random, rows: list[tuple]) -> list[tuple[list[tuple], int]]:
    """Batches, and behind each a watermark that makes no row late."""
    batches, at = [], 0
    while at < len(rows):
        behind = at + rng.choice([0, 1, 3, 40])
        after = min((one[2] for one in rows[behind:]), default=10**9)
        batches.append((rows[at:behind], after - rng.choice([0, 500])))
        at = behind
    return batches


@pytest.mark.parametrize("within_ms", [1, 7, 1_000, 2_999, 10**6])
@pytest.mark.parametrize("on", [("k",), ("f",), ("k", "f")])
def test_the_first_row_of_a_key_passes_for_any_cut_and_after_every_restart(on, within_ms, seed):
    limits = replace(SMALL, passed_keys=2, passed_slices=1 << (seed + within_ms) % 10)
    for number in range(4):
        rng = random.Random(f"{seed} {number} {on} {within_ms}")
        rows = rows_of(rng, 150)
        as_key = [(row[0] if "k" in on else 0, row[1] if "f" in on else 0.0, *row[2:]) for row in rows]
        player = RestartedDeduplication(plan_of(on=on, within_ms=within_ms), limits)
        passed_offsets = [
            offset for batch, watermark_ms in split_batches(rng, rows) for offset in player.batch(batch, watermark_ms)
        ]
        assert passed_offsets == model(as_key, within_ms)
        assert player.late == 0


def test_the_number_of_slices_is_bounded_however_long_the_rows_lie_beyond_the_watermark():
    """As of a backlog of days: its times lie far ahead of the watermark."""
    player, day_ms = RestartedDeduplication(plan_of(within_ms=1_000)), 86_400_000
    for batch in range(10):
        rows = [("a", 0.0, batch * day_ms + second * 10_000, batch * 8_640 + second) for second in range(8_640)]
        assert len(player.batch(rows, 0)) == len(rows)
    assert len(player.blobs) < 10 * LIMITS.passed_slices


def test_a_row_of_a_wrong_time_far_ahead_lets_no_other_row_be_held_longer():
    """As of a partition whose clock takes microseconds for milliseconds, while another one holds the watermark."""
    hour_ms, day = 3_600_000, 470_000
    held_counts = []
    for strays in ([], [("stray", 0.0, day * hour_ms * 1_000, 1)]):
        player = RestartedDeduplication(plan_of(within_ms=hour_ms))
        for hour in range(day, day + 48):
            rows = [(f"{hour} {minute}", 0.0, hour * hour_ms + minute * 60_000, minute) for minute in range(60)]
            player.batch(rows + (strays if hour == day else []), hour * hour_ms)
        held_counts.append(player.held_count)
    assert held_counts == [120, 121]


def test_rows_within_reach_are_duplicates_before_and_behind_also_at_its_very_end():
    player = RestartedDeduplication(plan_of())
    assert player.batch([("a", 0.0, 5_000, 0)], 0) == [0]
    assert player.batch([("a", 0.0, ms, ms) for ms in (4_000, 6_000, 3_999, 6_001)], 0) == [3_999, 6_001]


def test_a_row_at_the_watermark_is_measured_against_the_last_that_it_can_repeat():
    player = RestartedDeduplication(plan_of())
    player.batch([("a", 0.0, 5_000, 0)], 6_000)
    assert player.batch([("a", 0.0, 6_000, 1), ("a", 0.0, 6_001, 2)], 6_001) == [2]


def test_late_rows_are_left_out_and_counted_and_hide_nobody():
    player = RestartedDeduplication(plan_of())
    player.batch([], 1_000)
    assert player.batch([("a", 0.0, 999, 0), ("a", 0.0, 1_000, 1)], 1_000) == [1]
    assert player.late == 1


def test_rows_of_a_batch_are_taken_in_the_order_of_their_channels():
    rows = [("a", 0.0, 10, 7), ("a", 0.0, 20, 3)]
    assert (
        RestartedDeduplication(plan_of()).batch(rows, 0)
        == RestartedDeduplication(plan_of()).batch(rows[::-1], 0)
        == [3]
    )


def test_keys_are_forgotten_once_nothing_can_repeat_them():
    player = RestartedDeduplication(plan_of())
    for second in range(100):
        player.batch([(f"key {second}", 0.0, 1_000 * second, second)], 1_000 * second + 1)
        assert player.held_count <= 3
    player.batch([], 1_000 * 200)
    assert player.held_count == 0
    assert list(player.blobs) == [MANIFEST]


def test_a_batch_reads_the_logs_that_its_times_and_keys_can_meet_and_no_others():
    class RecordingStore(MemoryStore):
        def get(self, name):
            read_names.append(name)
            return super().get(name)

    limits = StateLimits(passed_keys=16, passed_slices=10_000)
    player = RestartedDeduplication(plan_of(within_ms=8_000), limits)
    for start in range(0, 2_000, 100):  # all within one second, and as many again an hour later
        for ahead in (0, 3_600_000):
            player.batch([(f"key {n}", 0.0, ahead + n % 1_000, n) for n in range(start, start + 100)], 0)
    read_names: list[str] = []
    operator = operator_of(player.plan, RecordingStore(dict(player.blobs), limits))
    assert list(operator.on_rows(0, table([("key 77", 0.0, 3_601_000, 0)]), None)) == []
    read = {name.partition("+")[0] for name in read_names if name != MANIFEST}
    assert read
    assert all(name.startswith("passed:3600000:1000:") for name in read)
    of_slice = {name.partition("+")[0] for name in player.blobs if name.startswith("passed:3600000:1000:")}
    assert len(read) <= 3 < len(of_slice)


def test_another_within_goes_on_with_what_is_held():
    player = RestartedDeduplication(plan_of())
    player.batch([("a", 0.0, 0, 0), ("a", 0.0, 1_500, 1), ("a", 0.0, 3_000, 2)], None)
    longer = RestartedDeduplication(plan_of(within_ms=5_000))
    longer.blobs = dict(player.blobs)
    assert longer.batch([("a", 0.0, ms, ms) for ms in (8_000, 8_001, -5_000, -5_001)], None) == [-5_001, 8_001]
    shorter = RestartedDeduplication(plan_of(within_ms=10))
    shorter.blobs = dict(player.blobs)
    assert shorter.batch([("a", 0.0, ms, ms) for ms in (10, 11, 1_495, 3_010)], None) == [11]


def test_state_moves_to_another_number_of_buckets(seed):
    few = StateLimits(passed_keys=4)
    rng = random.Random(seed)
    rows = [(f"key {rng.randrange(40)}", 0.0, number * 20, number) for number in range(200)]
    old = RestartedDeduplication(plan_of(), few)
    passed_offsets = old.batch(rows[:100], rows[100][2])
    for number, blobs in enumerate(processor_in_buckets("d", old.plan, old.blobs, 2)):
        one = RestartedDeduplication(plan_of(), few)
        one.blobs = blobs
        buckets = bucket_of([pa.chunked_array([[row[0] for row in rows[100:]]])], 100, 2).tolist()
        passed_offsets += one.batch(
            [row for row, bucket in zip(rows[100:], buckets, strict=True) if bucket == number], 10**9
        )
    assert sorted(passed_offsets) == model(rows, 1_000)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"on": ()}, r"deduplicate: on=\[\]: name at least one column"),
        ({"on": ("k", "k")}, "deduplicate: on names the column 'k' twice: name it once"),
        ({"on": ("x",)}, "the input has no column 'x'"),
        ({"within_ms": 0}, "deduplicate: within=0 ms, it must be 1 ms or more"),
        ({"within_ms": 2**53}, "the within of deduplicate is"),
    ],
)
def test_what_cannot_be_is_refused(wrong, sentence):
    with pytest.raises(OptionError, match=sentence):
        plan_of(**wrong)
