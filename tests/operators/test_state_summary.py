"""What the notes of a bucket tell of its state."""

from __future__ import annotations

import json

import pytest

from keyedwm.cli.query.held_state import Summary, summary
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, tumbling
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowJoin
from tests.operators.test_window_join import messages
from tests.operators.window_joins import plan_of as join_plan_of
from tests.spark.test_bucket_batch import Pipeline, plan_of, staged, steps


def summary_of(window, batches=3) -> Summary:
    pipeline = Pipeline(plan_of(window), 1)
    for tasks in steps("told")[:batches]:
        pipeline.batch([staged(rows) for rows in tasks])
    note, store = pipeline.state[0]
    return summary(note.blobs, json.loads(store.get(MANIFEST)))


def test_frames_are_counted_with_their_rows_and_the_oldest_is_named():
    window_summary = summary_of(SlidingWindow(6_000, 2_000))
    assert (window_summary.frames, window_summary.oldest_ms) == (10, 0)
    assert window_summary.rows > 9
    assert window_summary.size_bytes > 1_000


def test_of_a_join_of_windows_the_messages_that_both_sides_hold_are_counted():
    store = MemoryStore()
    join = WindowJoin(join_plan_of(tumbling(10), retention=Retention(time_ms=10)), store)
    join.add_message("left", messages((0, 1), (1, 12), (1, 12), (2, 31)))  # one of them comes twice
    join.add_message("right", messages((0, 2), (1, 33)))
    join.watermark("left", 30)
    join.watermark("right", 30)  # [0, 10) goes on both sides
    join.flush()
    held_messages = sum(join.counts(side).taken - join.counts(side).expired for side in ("left", "right"))
    assert held_messages < 5
    assert summary(store.sizes, json.loads(store.get(MANIFEST))).rows == held_messages


@pytest.mark.parametrize("gap_ms", [700, 5_000])
def test_of_sessions_the_first_end_is_told(gap_ms):
    session_summary = summary_of(SessionWindow(gap_ms))
    assert session_summary.frames is None
    assert session_summary.oldest_ms > 5_000
    assert session_summary.rows > 9


def test_of_a_processor_the_rows_of_all_logs_are_told():
    sizes = {"a": 10, "a+1": 20, "frame-new": 20, "due-payments": 10, "note": 5}
    log_summary = summary(sizes, {"own": {}, "rows": {"a": 4, "frame-new": 1, "due-payments": 1}})
    assert log_summary == Summary(frames=None, rows=6, size_bytes=65, oldest_ms=None)


def test_an_empty_bucket_holds_nothing():
    assert summary({}, {}) == Summary(frames=0, rows=0, size_bytes=0, oldest_ms=None)
