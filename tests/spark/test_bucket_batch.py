"""Stage one, buckets and unpacking without Spark: every batch begins from the blobs that the one before left."""

from __future__ import annotations

import json
import random
from collections import Counter

import pandas as pd
import pyarrow as pa
import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind
from keyedwm.operators.aggregates.functions import avg, count, last
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.exchange_control import unpack_control
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.panes import Early
from keyedwm.operators.protocol import inputs_of
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.hosting.bucket_batch import BucketBatch, BucketLayout, BucketManifest
from keyedwm.spark.hosting.stage_one import CONTROL_TEXT, StageOne
from keyedwm.spark.hosting.unpack import Unpack

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64()), ("__time", pa.int64())])
STAGED = pa.schema([*SCHEMA, (CONTROL_TEXT, pa.string())])
CHANNELS = ("t-0", "t-1")
STEPS = 12


def plan_of(window) -> WindowPlan:
    aggregates = (("n", count()), ("mean", avg("v")), ("closing", last("v")))
    return WindowPlan(schema=SCHEMA, by=("k",), window=window, aggregates=aggregates, time="__time")


class Pipeline:
    """All buckets of one aggregate; every batch begins from what the one before wrote down."""

    def __init__(self, plan: WindowPlan, buckets: int) -> None:
        self.plan = plan
        self.layout = BucketLayout("hours", tuple(bucket_ids(buckets)), ((0,),))
        (self.ships,) = inputs_of(plan)
        self.stage = StageOne({0: self.ships}, self.layout.ids)
        self.unpack = Unpack.of(plan)
        self.state = {one: (BucketManifest(), MemoryStore()) for one in self.layout.ids}

    def batch(self, tasks: list[pa.Table]) -> list[dict]:
        names = [*self.ships.columns, CONTROL_TEXT]  # stage one is given its columns by place
        given = [task.select(names).to_batches() for task in tasks]
        shipped = [row for task in given for out in self.stage(task) for row in out.to_pylist()]
        made = []
        for bucket in self.layout.ids:
            note, store = self.state[bucket]
            note = BucketManifest.from_json(json.loads(json.dumps(note.as_json())))
            now = BucketBatch(self.plan, self.layout, bucket, note, store)
            mine = [row for row in shipped if row["bucket"] == bucket]
            leaving = now.on_input(
                control=[[one for row in mine if row["control"] for one in unpack_control(row["control"])]],
                rows=[[unpacked(row["partials"]) for row in mine if row["partials"] is not None]],
                null_event_time_rows=0,
                now_ms=None,
            )
            frames = list(leaving)
            changed, removed = now.drain()
            kept = {name: blob for name, blob in store.blobs.items() if name not in removed} | dict(changed)
            assert kept.keys() == now.manifest.blobs.keys()
            self.state[bucket] = now.manifest, MemoryStore(kept)
            emitted = [emitted_of(frame) for frame in [*frames, now.last_rows()]]
            made += [row for out in self.unpack(emitted) for row in out.to_pylist()]
        return made


def emitted_of(frame: pd.DataFrame) -> pa.RecordBatch:
    """The rows of a frame, whose columns are all of Python objects; Arrow takes long to look at each through pandas."""
    columns = [pa.array(column) for column in frame.to_numpy().T]
    return pa.RecordBatch.from_arrays(columns, names=list(frame.columns))


def staged(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=STAGED)


def steps(seed: str) -> list[list[list[dict]]]:
    """Batches of two tasks, one for each channel: events, the channel's watermark, its barrier."""
    chance = random.Random(seed)
    batches = []
    for number in range(STEPS):
        tasks = []
        for channel in CHANNELS:
            ms = number * 5_000
            rows = [
                {"k": f"key {chance.randrange(9)}", "v": chance.random(), "__time": ms + chance.randrange(9_000)}
                for _ in range(30)
            ]
            rows.append(
                {CONTROL_TEXT: told(ControlKind.WATERMARK, channel, key=0, watermark_ms=ms - chance.randrange(5_000))}
            )
            rows.append({CONTROL_TEXT: told(ControlKind.BARRIER, channel, snapshot=number, channels=2)})
            tasks.append(rows)
        batches.append(tasks)
    last_words = {"key": 0, "watermark_ms": 10**7}, {"snapshot": STEPS, "channels": 2}
    kinds = ControlKind.WATERMARK, ControlKind.BARRIER
    end = [
        [{CONTROL_TEXT: told(kind, channel, **words)} for kind, words in zip(kinds, last_words, strict=True)]
        for channel in CHANNELS
    ]
    return [*batches, end]


def told(kind: ControlKind, channel: str, **fields: int) -> str:
    return json.dumps({"kind": kind.value, "channel": channel, "offset": 7, **fields})


def results(rows: list[dict]) -> Counter:
    return Counter(repr({k: v for k, v in row.items() if k != "watermark"}) for row in rows if row["control"] is None)


WINDOWS = {"sliding": SlidingWindow(6_000, 2_000), "session": SessionWindow(700)}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("buckets", [1, 3])
def test_neither_the_number_of_buckets_nor_the_order_of_tasks_can_be_seen(window, buckets, seed):
    plan = plan_of(WINDOWS[window])
    one, many = Pipeline(plan, 1), Pipeline(plan, buckets)
    seen = 0
    for tasks in steps(f"{seed} {window}"):
        wanted = results(one.batch([staged(rows) for rows in tasks]))
        assert results(many.batch([staged(rows) for rows in reversed(tasks)])) == wanted
        seen += wanted.total()
    assert seen > 100


def test_rows_of_one_task_may_come_in_pieces(seed):
    plan = plan_of(WINDOWS["sliding"])
    whole, pieces = Pipeline(plan, 2), Pipeline(plan, 2)
    for tasks in steps(f"{seed} pieces"):
        wanted = results(whole.batch([staged(rows) for rows in tasks]))
        cut = [staged(rows[at : at + 5]) for rows in tasks for at in range(0, len(rows), 5)]
        assert results(pieces.batch(cut)) == wanted


def test_the_watermark_leaves_behind_its_windows_and_the_barrier_is_last():
    pipeline = Pipeline(plan_of(SlidingWindow(5_000, 5_000)), 2)
    snapshots = []
    for tasks in steps("order"):
        made = pipeline.batch([staged(rows) for rows in tasks])
        for bucket in (0, 1):
            mine = [row["control"] for row in made if row["control"] and row["control"]["channel"] == f"hours#{bucket}"]
            assert [row["kind"] for row in mine[-1:]] == ["barrier"]
            assert mine[-1]["channels"] == 2
            snapshots.append(mine[-1]["snapshot"])
        closed = [row["window"]["end"] for row in made if row["control"] is None]
        if closed:
            assert max(closed) <= made[0]["watermark"]
    assert snapshots == [number for number in range(STEPS + 1) for _ in (0, 1)]


def test_results_stand_within_their_window():
    made = []
    pipeline = Pipeline(plan_of(SlidingWindow(5_000, 5_000)), 1)
    for tasks in steps("within"):
        made += [row for row in pipeline.batch([staged(rows) for rows in tasks]) if row["control"] is None]
    assert all(row["window"]["start"] < row["event_time"] < row["window"]["end"] for row in made)


@pytest.mark.parametrize("window", [SlidingWindow(10, 10), SessionWindow(10)], ids=str)
def test_the_clock_fires_in_every_bucket_at_once_wherever_the_first_rows_were(window):
    """A batch that only the clock makes has the barriers of those buckets of which the timer is due."""
    plan = WindowPlan(
        schema=SCHEMA, by=("k",), window=window, aggregates=(("n", count()),), time="__time", early=Early(every_ms=1000)
    )
    layout = BucketLayout("hours", tuple(bucket_ids(2)), ((0,),))
    row = staged([{"k": "a", "v": 1.0, "__time": 1, CONTROL_TEXT: None}])
    barrier = ControlRow(kind=ControlKind.BARRIER, channel="t-0", offset=1, snapshot=0, channels=1)
    due = []
    for bucket, partials in zip(layout.ids, ([combine_rows(plan, row)], []), strict=True):
        now = BucketBatch(plan, layout, bucket, BucketManifest(), MemoryStore())
        list(now.on_input(control=[[barrier]], rows=[partials], null_event_time_rows=0, now_ms=500))
        due.append(now.next_timer_ms)
    assert due == [1500, 1500]


def test_what_a_store_let_go_and_what_came_again_is_counted_in_its_batch():
    schema = pa.schema([*SCHEMA, ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    plan = StorePlan(
        schema=schema, by=("k",), window=SlidingWindow(10, 10), aggregates=(("n", count()),), time="__time",
        retention=Retention(max_messages=2),
    )  # fmt: skip
    layout = BucketLayout("hours", tuple(bucket_ids(1)), ((0,),))
    rows = [{"k": "a", "v": 1.0, "__time": at, "topic": "t", "partition": 0, "offset": at} for at in (1, 2, 11)]
    note, store, told = BucketManifest(), MemoryStore(), []
    for _ in range(2):
        now = BucketBatch(BucketStore(plan=plan), layout, layout.ids[0], note, store)
        barrier = ControlRow(kind=ControlKind.BARRIER, channel="t-0", offset=1, snapshot=0, channels=1)
        rows_now = pa.Table.from_pylist(rows, schema=schema)
        list(now.on_input(control=[[barrier]], rows=[[rows_now]], null_event_time_rows=0, now_ms=None))
        store = MemoryStore({**store.blobs, **now.drain().blobs})
        note = now.manifest
        (last_row,) = now.last_rows().to_dict("records")
        told.append({name: last_row[name] for name in BucketStore(plan=plan).own_metrics})
    dropped = {"dropped_windows": 1, "dropped_rows": 2}
    assert {name: told[0][name] for name in dropped} == dropped
    assert told[0]["dropped_bytes"] > 0
    assert told[1] == {**dict.fromkeys(told[0], 0), "replayed_rows": 3}
