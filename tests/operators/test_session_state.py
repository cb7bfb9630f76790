"""The state of sessions: what a batch reads and writes of it, and laws over every cut, compaction and restart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.paned_sessions import PanedSessionOperator
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.state.blobs import packed, unpacked
from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits
from tests.operators.streams import AGGREGATES, Event, plan_of, rows_of, table
from tests.seeds import times

GAP_MS = 10
SUM = (("total", agg.sum("n")),)
COUNT = (("rows", agg.count()),)
SOME = tuple(one for one in AGGREGATES if one[0] in {"rows", "total", "exact", "first", "all"})


@dataclass
class CountingStore(MemoryStore):
    """Notes which blobs are read."""

    read: list[str] = field(default_factory=list)

    def get(self, name: str) -> bytes:
        self.read.append(name)
        return self.blobs[name]


class RestartedSessions:
    """An operator built anew for every batch; `read` and `written_blobs` are of the last batch, without the note."""

    def __init__(self, plan, kind=operator_of, blobs=None, limits=LIMITS):
        self.plan, self.kind, self.limits = plan, kind, limits
        self.blobs = dict(blobs or {})
        self.late_rows = 0

    def batch(self, rows=(), watermark_ms=None, *, end=False):
        store = CountingStore(self.blobs, self.limits)
        operator = self.kind(self.plan, store)
        outputs = []
        if rows:
            partials = [combine_rows(self.plan, table(task)) for task in rows if task]
            outputs += [*operator.on_rows(0, pa.concat_tables(partials), None)]
        if watermark_ms is not None:
            outputs += [*operator.on_watermark(0, 0, watermark_ms)]
        if end:
            outputs += [*operator.on_end()]
        changes = operator.drain()
        self.read = {name for name in store.read if name != "note"}
        self.written_blobs = {name: blob for name, blob in changes.blobs.items() if name != "note"}
        self.blobs = {n: blob for n, blob in self.blobs.items() if n not in changes.removed} | changes.blobs
        self.late_rows += operator.late_rows
        return [row for output in outputs for row in rows_of(output.rows)]


def reference(plan, store):
    """Reads and knows every session in every batch."""
    return PanedSessionOperator(plan, plan.window, store)


def small_parts(fan_out=2, steps=4):
    """Every path of a big state in a small one: shards, due parts, compaction."""
    return StateLimits(fan_out=fan_out, session_steps=steps, due_rows=2, undivided_rows=3, session_shards=3)


def event(key, time_ms, at=0):
    return Event(key, time_ms, 1, None, None, at)


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-25, 40)), max_size=6),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=14,
)


def play(operator, steps):
    """Rows around a rising watermark, in one or two tasks; yields what each batch shows, ordered."""
    watermark_ms, number = 0, 0
    for rows, rise_ms, in_two_tasks in steps:
        batch_events = []
        for key, ahead_ms in rows:
            batch_events.append(Event(key, watermark_ms + ahead_ms, number % 7, number / 8, "xyz"[number % 3], number))
            number += 1
        tasks = [batch_events[::2], batch_events[1::2]] if in_two_tasks else [batch_events]
        watermark_ms += rise_ms
        yield sorted(operator.batch(tasks if batch_events else (), watermark_ms), key=repr)
    yield sorted(operator.batch(end=True), key=repr)


@settings(max_examples=times(20))
@given(batches, st.sampled_from(Touching), st.sampled_from([2, 3, 16]), st.sampled_from([1, 4, 32]))
def test_what_is_read_piecemeal_shows_in_every_batch_what_reading_everything_shows(steps, touching, fan_out, pace):
    plan = plan_of(SessionWindow(GAP_MS, touching), aggregates=SOME, late=LatePolicy.EMIT)
    limits = small_parts(fan_out, pace)
    lazy, whole = RestartedSessions(plan, limits=limits), RestartedSessions(plan, reference, limits=limits)
    for number, (result_rows, expected_rows) in enumerate(zip(play(lazy, steps), play(whole, steps), strict=True)):
        assert result_rows == expected_rows, number
    assert lazy.late_rows == whole.late_rows
    assert set(lazy.blobs) == {"note"}


@settings(max_examples=times(10))
@given(batches)
def test_late_by_the_event_shows_what_reading_everything_shows(steps):
    plan = plan_of(SessionWindow(GAP_MS), aggregates=COUNT, late_rule=LateRule.EVENT)
    lazy, whole = (
        RestartedSessions(plan, limits=small_parts()),
        RestartedSessions(plan, reference, limits=small_parts()),
    )
    assert [*play(lazy, steps)] == [*play(whole, steps)]
    assert lazy.late_rows == whole.late_rows


def test_batches_that_close_nothing_read_nothing_and_write_what_they_bring():
    plan = plan_of(SessionWindow(1_000), aggregates=SUM)
    sessions = RestartedSessions(plan)
    for number in range(15):
        sessions.batch([[event(f"k{number % 4}", 10 * number, number)]], 10 * number)
        assert sessions.read == set()
        assert {unpacked(blob).num_rows for blob in sessions.written_blobs.values()} == {1}


def test_parts_are_compacted_when_so_many_of_a_size_are_there_and_each_is_written_again_seldom():
    plan = plan_of(SessionWindow(10**6), aggregates=SUM)
    sessions, written_rows = RestartedSessions(plan), 0
    for number in range(600):
        sessions.batch([[event(f"k{number:04}", number, number)]], number)
        written_rows += sum(unpacked(blob).num_rows for blob in sessions.written_blobs.values())
    assert len(sessions.blobs) < 3 * LIMITS.fan_out
    assert written_rows <= 4 * 600


def test_up_to_the_horizon_the_rest_is_not_read():
    plan = plan_of(SessionWindow(1_000), aggregates=COUNT)
    sessions = RestartedSessions(plan)
    sessions.batch([[event(f"k{number}", number, number) for number in range(1_000)]], 0)
    closed_sessions, with_rest = 0, 0
    for watermark_ms in range(1_001, 2_000, 4):
        closed_sessions += len(sessions.batch([[event("new", watermark_ms, 0)]], watermark_ms))
        with_rest += any(name.startswith("rest") for name in sessions.read)
    assert closed_sessions == 997
    assert 0 < with_rest < 80  # of 250 batches


def test_a_late_row_reads_only_the_shard_of_its_key():
    plan = plan_of(SessionWindow(1_000), aggregates=COUNT)
    sessions = RestartedSessions(plan, limits=StateLimits(undivided_rows=3))
    sessions.batch([[event(f"k{number}", number, number) for number in range(1_000)]], 1_500)
    sessions.batch([[event("late", 100, 0)]], 1_500)
    assert sessions.late_rows == 1
    assert sum(name.startswith("rest") for name in sessions.read) == 1
    assert sum(name.startswith("rest") for name in sessions.blobs) == LIMITS.session_shards


def test_a_row_behind_the_watermark_goes_into_the_session_that_is_still_open():
    plan = plan_of(SessionWindow(10), aggregates=COUNT)
    sessions = RestartedSessions(plan)
    sessions.batch([[event("k", 12, 0)]], 20)
    assert sessions.batch([[event("k", 4, 1), event("other", 4, 2)]], 21) == []
    assert sessions.late_rows == 1
    assert [(row["start"], row["end"], row["rows"]) for row in sessions.batch(watermark_ms=23)] == [(4, 22, 2)]


def version_2(plan, rows, watermark_ms):
    """The blobs that 0.2.0 left: the sessions in slices of a quarter of the gap by their ends."""
    partials = combine_rows(plan, table(rows))
    names = ("__shown", "__panes", "__told_rows", "__touched")
    for name in names:
        partials = partials.append_column(name, pa.array([0] * len(partials), pa.int64()))
    slices = [end // (GAP_MS // 4) * (GAP_MS // 4) for end in partials["__end"].to_pylist()]
    blobs = {f"sessions-{one}": packed(partials.filter(pa.array([s == one for s in slices]))) for one in set(slices)}
    manifest = {"version": 2, "plan": plan.digest(), "watermark_ms": watermark_ms, "due_ms": None}
    return blobs | {"note": json.dumps(manifest).encode()}


@pytest.mark.parametrize("lateness_ms", [0, 5])
def test_sessions_that_version_2_left_are_continued(lateness_ms):
    plan = plan_of(SessionWindow(GAP_MS), aggregates=SUM, lateness_ms=lateness_ms)
    before = [event("a", 3, 0), event("b", 14, 1), event("c", 19, 2)]
    sessions = RestartedSessions(plan, blobs=version_2(plan, before, 10))
    assert [row["k"] for row in sessions.batch([[event("b", 22, 3)]], 14)] == ["a"]
    result_rows = sessions.batch(watermark_ms=50)
    session_totals = [(row["k"], row["start"], row["end"], row["total"]) for row in result_rows]
    assert session_totals == [("c", 19, 29, 1), ("b", 14, 32, 2)]
    assert set(sessions.blobs) == {"note"}


def test_a_paned_session_writes_what_changed_and_not_the_others():
    plan = plan_of(SessionWindow(100), aggregates=SUM, lateness_ms=5)
    sessions = RestartedSessions(plan)
    sessions.batch([[event(f"k{number}", number, number) for number in range(50)]], 0)
    sessions.batch([[event("k7", 60, 50)]], 0)
    assert [unpacked(blob).num_rows for blob in sessions.written_blobs.values()] == [1]
    assert sum(row["total"] for row in sessions.batch(watermark_ms=170)) == 51
