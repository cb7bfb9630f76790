"""Processors and running aggregates by watermarks of keys, against the book: after every restart, in other buckets."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from unittest.mock import patch

import pyarrow as pa
import pytest

from keyedwm.cli.inspect_state import LOGS, held_keys, together
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.buckets import bucket_of
from keyedwm.operators.keyed.key_census import MOST_SHOWN
from keyedwm.operators.keyed.per_key import Partitions, PerKey
from keyedwm.operators.process import running
from keyedwm.operators.process.plan import ProcessInput, ProcessPlan
from keyedwm.operators.process.processor import Processor
from keyedwm.operators.process.running import Running
from keyedwm.operators.process.running_state import RunningPlan
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from tests.operators.moving import processor_in_buckets
from tests.operators.per_key_model import NEVER, Model, Row
from tests.operators.test_per_key import shared, stream

TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("owner", pa.string()), ("page", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("event_time", TIMESTAMP),
    ]
)  # fmt: skip
TIMED = SCHEMA.append(pa.field("__time", pa.int64()))
PLACE = ("owner", "page", "partition", "offset")


def table(rows: list[Row]) -> pa.Table:
    columns = {name: [getattr(row, name) for row in rows] for name in PLACE} | {"topic": ["t"] * len(rows)}
    times = [row.time_ms for row in rows]
    columns |= {"__time": times, "event_time": pa.array([ms * 1_000 for ms in times], pa.int64()).cast(TIMESTAMP)}
    return pa.table([pa.array(columns[one.name], one.type) for one in TIMED], schema=TIMED)


def running_of(per_key: PerKey, **how) -> ProcessPlan:
    plan = RunningPlan(schema=SCHEMA, by=("owner", "page"), aggregates=(("n", agg.count()),), **how)
    return plan_of(per_key, lambda: Running(plan), plan.result_schema)


def plan_of(per_key: PerKey, make, result, **how) -> ProcessPlan:
    process_input = ProcessInput(
        **{"schema": TIMED, "by": ("owner", "page"), "time": "__time", "owners": per_key.by or ()} | how
    )
    return ProcessPlan(
        inputs=(process_input,), make=make, result=result, called="test", version=1, key_watermark=per_key
    )


@dataclass
class Book(Model):
    """Rows that wait for the watermark of their key, and those that have left of each key."""

    waiting: list[Row] = field(default_factory=list)
    row_counts: dict = field(default_factory=dict)

    def add_rows(self, rows: list[Row]) -> list[tuple]:
        before = {self.owner_of(row): self.counts(self.owner_of(row)) for row in rows}
        for row in rows:
            (self.late if row.time_ms < before[self.owner_of(row)] else self.waiting).append(row)
        self.rise(rows, before)
        return self.leave(set(before))

    def advance(self, front_ms: int) -> list[tuple]:
        if front_ms <= self.front_ms:
            return []
        self.first_ms = front_ms if self.first_ms == NEVER else self.first_ms
        self.front_ms = front_ms
        self.forget(list(self.highs))
        results = self.leave({self.owner_of(row) for row in self.waiting if row.time_ms < self.floor_ms}, self.floor_ms)
        owners = [] if self.idle_ms is None else list(self.highs)
        idle = {owner for owner in owners if self.counts(owner) == front_ms}
        results += self.leave(idle)
        for owner in idle:
            high_ms, own_ms = max(self.highs[owner].values()), self.own.get(owner, NEVER)
            if min(front_ms, high_ms + 1) > own_ms:  # rows of before it was last forgotten leave too, see Model
                self.own[owner] = max(own_ms, min(front_ms, max(high_ms, self.floor_ms + self.lag_ms) + 1))
        return results

    def leave(self, owners: set, until_ms: int | None = None) -> list[tuple]:
        results = []
        for row in sorted(self.waiting, key=lambda row: (row.time_ms, row.partition, row.offset)):
            owner = self.owner_of(row)
            if owner in owners and row.time_ms < (self.counts(owner) if until_ms is None else until_ms):
                self.waiting.remove(row)
                key = row.owner, row.page
                self.row_counts[key] = self.row_counts.get(key, 0) + 1
                results.append((*(getattr(row, name) for name in PLACE), row.time_ms, self.row_counts[key]))
        return results


class RestartedBuckets:
    """The operators of all buckets, built anew from their blobs for each batch."""

    def __init__(self, plan: ProcessPlan, states: list[dict[str, bytes]]) -> None:
        self.plan, self.states, self.late_rows = plan, states, 0
        self.held_keys = self.dropped_rows = 0
        self.is_whole = True  # a bucket names five keys of dropped rows at the most
        self.behind: Counter[int] = Counter()

    def batch(self, rows: list[Row], front_ms: int | None) -> list[tuple]:
        results, self.held_keys, self.behind = [], 0, Counter()
        shipped = self.plan.inputs[0].exchange_rows(table(rows))
        buckets = bucket_of([shipped[name] for name in self.plan.owners], shipped.num_rows, len(self.states))
        for number, blobs in enumerate(self.states):
            store = MemoryStore(dict(blobs))
            operator, bucket_rows = operator_of(self.plan, store), shipped.filter(pa.array(buckets == number))
            outputs = list(operator.on_rows(0, bucket_rows, None)) if bucket_rows.num_rows else []
            outputs += [] if front_ms is None else list(operator.on_watermark(0, 0, front_ms))
            for output in outputs:
                timed_rows = output.rows.append_column("ms", pa.array(output.event_ms))
                results += [tuple(row[name] for name in (*PLACE, "ms", "n")) for row in timed_rows.to_pylist()]
            self.late_rows += operator.late_rows
            key_summary = operator.key_summary()
            self.held_keys += key_summary.key_count
            self.behind.update(dict(key_summary.behind))
            self.dropped_rows += sum(count for _, count in key_summary.dropped_rows)
            self.is_whole = self.is_whole and len(key_summary.dropped_rows) < MOST_SHOWN
            store.apply(operator.drain())
            self.states[number] = store.blobs
        return results


KEYS = (
    PerKey(5, 60),
    PerKey(5, 60, partitions=Partitions.FASTEST),
    PerKey(0, 100, by=("owner",)),
    PerKey(8, 50, idle_ms=15),
    PerKey(3, 40, by=("owner",), idle_ms=9, partitions=Partitions.FASTEST),
    PerKey(0, 0),
)
SEEDS = 6  # more by a command: per_key_laws.py


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_row_leaves_when_the_watermark_of_its_key_has_passed_it(seed):
    rows_leave(seed, stream(seed))


@pytest.mark.parametrize("number", [2, 363])  # 363: an idle key's watermark ends at the lag above the floor
def test_rows_of_several_streams_leave_by_their_keys(number):
    rows_leave(number, shared(range(8 * number, 8 * number + 8)))


def rows_leave(number, batches):
    with patch.object(running, "SLICE_MS", 10):
        rows_leave_by_their_keys(KEYS[number % len(KEYS)], batches)


def rows_leave_by_their_keys(per_key, batches):
    by_owner = per_key.by is not None
    of = Book(per_key.lag_ms, per_key.behind_ms, 1, 1, per_key.idle_ms, per_key.slowest, by_owner=by_owner)
    player = RestartedBuckets(running_of(per_key), [{}])
    for step, (rows, front_ms) in enumerate(batches):
        if step == 20:  # on to other buckets
            player.states = processor_in_buckets("running", player.plan, player.states[0], 3)
        results = player.batch(rows, front_ms)
        expected_results = of.add_rows(rows) + ([] if front_ms is None else of.advance(front_ms))
        assert sorted(results) == sorted(expected_results), step
        assert player.late_rows == len(of.late)
        assert player.dropped_rows == player.late_rows or not player.is_whole
        assert player.held_keys == sum(keys for _, keys in of.key_lateness()[0])
    assert of.row_counts
    assert held_summary(player).behind == sorted(player.behind.items()) == of.key_lateness()[0]


def held_summary(player: RestartedBuckets) -> KeyWatermarkSummary:
    """How the keys stand by somebody who only reads the state."""
    description = json.loads(json.dumps(player.plan.description()))
    of_keys = [
        {name: blob for name, blob in blobs.items() if name.partition("+")[0] in LOGS} for blobs in player.states
    ]
    states = [json.loads(blobs[MANIFEST]) for blobs in player.states]
    return together([held_keys(description, *one) for one in zip(states, of_keys, strict=True)])


class CallRecorder(Processor):
    """Shows every call."""

    def on_rows(self, input_number, rows):  # noqa: ARG002
        yield self.call_row("rows", rows, rows["key_watermark_ms"])

    def on_key_watermark(self, input_number, keys):  # noqa: ARG002
        yield self.call_row("risen", keys, keys["watermark_ms"], keys["before_ms"])

    def on_watermark(self, input_number, key, time_ms):  # noqa: ARG002
        yield self.call_row(f"W - behind is {self.watermark_ms}", pa.table({"owner": [""]}), pa.array([time_ms]))

    def call_row(self, call, rows, times, before=None):
        nothing = pa.nulls(rows.num_rows, pa.int64())
        columns = [pa.array([call] * rows.num_rows), rows["owner"], times, nothing if before is None else before]
        return pa.table(
            [*columns, pa.nulls(rows.num_rows, pa.int64()).fill_null(0).cast(TIMESTAMP)], [*RESULT.names, "event_time"]
        )


RESULT = pa.schema([("call", pa.string()), ("owner", pa.string()), ("ms", pa.int64()), ("before", pa.int64())])


def test_a_processor_is_told_the_watermarks_of_its_keys_behind_the_rows_that_raise_them():
    plan = plan_of(PerKey(10, 100, by=("owner",), idle_ms=50), CallRecorder, RESULT)
    calls, blobs = [], {}
    steps = [
        ([Row("a", "x", 0, 100, 0), Row("b", "x", 0, 200, 1)], None), ([Row("a", "y", 0, 80, 2)], None), ([], 140),
        ([Row("a", "y", 0, 130, 3)], None), ([], 195), ([Row("b", "x", 0, 260, 4)], None), ([], 250),
    ]  # fmt: skip
    for rows, front_ms in steps:
        store = MemoryStore(blobs)
        operator, outputs = operator_of(plan, store), []
        if rows:
            outputs += operator.on_rows(0, plan.inputs[0].exchange_rows(table(rows)), None)
        if front_ms is not None:
            outputs += operator.on_watermark(0, 0, front_ms)
        calls.append([tuple(row.values()) for output in outputs for row in output.rows.to_pylist()])
        store.apply(operator.drain())
    assert calls == [
        [("rows", "a", None, None), ("rows", "b", None, None), ("risen", "a", 90, None), ("risen", "b", 190, None)],
        [("rows", "a", 90, None)],
        [("W - behind is 40", "", 40, None)],
        [("rows", "a", 90, None), ("risen", "a", 120, 90)],
        [("W - behind is 95", "", 95, None), ("risen", "b", 195, 190), ("risen", "a", 131, 120)],
        [("rows", "b", 195, None), ("risen", "b", 250, 195)],
        [("W - behind is 150", "", 150, None)],
    ]


def test_a_late_row_is_refused_by_the_watermark_of_its_key_and_the_sentence_names_w_less_behind():
    plan = running_of(PerKey(0, 100_000, partitions=Partitions.FASTEST), late=LatePolicy.FAIL)
    operator = operator_of(plan, MemoryStore({}))
    list(operator.on_watermark(0, 0, 120_000))
    list(operator.on_rows(0, table([Row("a", "x", 0, 50_000, 0), Row("b", "x", 0, 30_000, 1)]), None))
    with pytest.raises(
        InputError, match=r"running: 1 rows were late \(earliest: 40000 ms\), .* `W - behind`, which is 20000"
    ):
        list(operator.on_rows(0, table([Row("a", "x", 0, 40_000, 2), Row("b", "x", 0, 41_000, 3)]), None))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            {"schema": TIMED.append(pa.field("__hash", pa.string())), "by": ("__hash",), "owners": ("__hash",)},
            "a key column cannot be called '__hash'",
        ),
        ({"by": ()}, "without key columns there is one watermark"),
        ({"owners": ("device",)}, "by names 'device', which is not among the key columns 'owner', 'page'"),
        ({"schema": TIMED.remove(TIMED.get_field_index("partition"))}, "the frame has no column 'partition'"),
        ({"schema": TIMED.append(pa.field("key_watermark_ms", pa.int64()))}, "cannot be called 'key_watermark_ms'"),
    ],
)
def test_inputs_whose_keys_cannot_have_watermarks_are_refused(how, sentence):
    by = how.get("owners", ("owner",))
    with pytest.raises(OptionError, match=sentence):
        plan_of(PerKey(0, 5, by=by), CallRecorder, RESULT, **how)


def test_watermarks_of_keys_are_refused_with_several_inputs():
    process_input = ProcessInput(schema=TIMED, by=("owner",), time="__time")
    with pytest.raises(OptionError, match="key_watermark with 2 inputs: a key has one watermark"):
        ProcessPlan(
            inputs=(process_input, process_input),
            make=CallRecorder,
            result=RESULT,
            called="t",
            version=1,
            key_watermark=PerKey(0, 5),
        )
