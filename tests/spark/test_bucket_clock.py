"""Panes and pairs by the clock over several buckets, without Spark: a batch of the clock has the barriers of all."""

from __future__ import annotations

import json
import random

import pytest

from keyedwm.core.control_row import ControlRow, decode_rows
from keyedwm.core.rows import ControlKind
from keyedwm.operators.buckets import bucket_ids
from keyedwm.operators.frames.plan import SessionWindow, tumbling
from keyedwm.operators.messages.bucket_store import BucketStore
from keyedwm.operators.messages.join.bucket_join import BucketWindowJoin
from keyedwm.operators.messages.join.plan import WindowJoinPlan, WindowJoinSide
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.panes import Early
from keyedwm.operators.state.blobs import unpacked
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.hosting.bucket_batch import BucketBatch, BucketLayout, BucketManifest
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from tests.operators.stored import SCHEMA, Message, plan_of, table

KEPT = {"retention": Retention(time_ms=1_000_000)}
SIDES = {name: WindowJoinSide(name=name, schema=SCHEMA, on=("k",)) for name in ("left", "right")}
PLANS = {
    "early": BucketStore(plan=plan_of(tumbling(10_000), early=Early(every_ms=700), **KEPT)),
    "late": BucketStore(plan=plan_of(tumbling(10_000), late_every_ms=900, **KEPT)),
    "both": BucketStore(plan=plan_of(tumbling(10_000), early=Early(every_ms=400), late_every_ms=900, **KEPT)),
    "session": BucketStore(plan=plan_of(SessionWindow(50), early=Early(every_ms=900), late_every_ms=300, **KEPT)),
    "join": BucketWindowJoin(
        plan=WindowJoinPlan(window=tumbling(10_000), early_every_ms=500, late_every_ms=800, **SIDES, **KEPT)
    ),
}


class Buckets:
    """All buckets of a plan, each begun anew in each batch; the clock calls those whose timer is due, as Spark does."""

    def __init__(self, plan) -> None:
        self.plan, self.inputs = plan, len(plan.inputs)
        self.layout = BucketLayout("panes", tuple(bucket_ids(3)), ((0,),) * self.inputs)
        self.state = {one: (BucketManifest(), MemoryStore()) for one in self.layout.ids}
        self.follower, self.snapshot = ChannelTracker("follower", 0), 0

    @property
    def timers(self) -> list[int | None]:
        return [note.timer_ms for note, _ in self.state.values()]

    def input(self, given: list[list[Message]], watermark_ms: int, now_ms: int) -> int:
        """A batch that brings messages, by bucket, to every input; returns how many rows came out."""
        self.snapshot += 1
        told = [
            ControlRow(kind=ControlKind.WATERMARK, channel="t-0", source="s", key=0, watermark_ms=watermark_ms),
            ControlRow(kind=ControlKind.BARRIER, channel="t-0", source="s", snapshot=self.snapshot, channels=1),
        ]
        return self._batch({
            one: lambda now, rows=rows: now.on_input(
                control=[told] * self.inputs, rows=[[table(rows)] if rows else []] * self.inputs,
                null_event_time_rows=0, now_ms=now_ms,
            )
            for one, rows in zip(self.layout.ids, given, strict=True)
        })  # fmt: skip

    def clock(self, now_ms: int) -> int:
        due = [one for one, (note, _) in self.state.items() if note.timer_ms is not None and note.timer_ms <= now_ms]
        return self._batch(dict.fromkeys(due, lambda now: now.on_timer(now_ms)))

    def _batch(self, calls) -> int:
        control, rows = [], 0
        for one, call in calls.items():
            note, store = self.state[one]
            now = BucketBatch(
                self.plan, self.layout, one, BucketManifest.from_json(json.loads(json.dumps(note.as_json()))), store
            )
            rows += sum(unpacked(frame["results"][0]).num_rows for frame in call(now))
            written, removed = now.drain()
            now.manifest.timer_ms = now.next_timer_ms
            kept = {name: blob for name, blob in store.blobs.items() if name not in removed} | dict(written)
            self.state[one] = now.manifest, MemoryStore(kept)
            control += decode_rows(now.last_rows()["control"][0])
        self.follower.apply(control)  # refuses barriers that are not of all
        return rows


@pytest.mark.parametrize("kind", PLANS)
def test_the_clock_wakes_all_buckets_of_a_store_together_and_rests_when_all_was_shown(kind, seed):
    rng, buckets = random.Random(f"clock {seed}"), Buckets(PLANS[kind])
    now_ms = offset = shown = 0
    for step in range(12):
        given = [[], [], []]
        for one in rng.sample(range(3), rng.choice([0, 1, 1, 2])):
            time_ms = step * 2_000 + rng.choice([0, 500, -15_000, -9_000])
            given[one].append(Message("k", 1, time_ms, "t", one, offset))
            offset += 1
        shown += buckets.input(given, step * 2_000 - 5_000, now_ms)
        assert len(set(buckets.timers)) == 1
        until_ms = now_ms + rng.choice([100, 600, 5_000])
        while (due_ms := buckets.timers[0]) is not None and due_ms <= until_ms:
            shown += buckets.clock(due_ms)
            assert len(set(buckets.timers)) == 1
        now_ms = until_ms
    while (due_ms := buckets.timers[0]) is not None:
        shown += buckets.clock(due_ms)
        assert due_ms < now_ms + 5_000  # an idle query rests
    assert shown
    for one, (note, store) in buckets.state.items():  # nothing waits any more
        batch = BucketBatch(buckets.plan, buckets.layout, one, note, store)
        assert batch._operator.next_timer_ms is None
