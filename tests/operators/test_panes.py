"""Early, on-time and late panes; late rows; state that only grows with what is open."""

from __future__ import annotations

import json
import tracemalloc

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from conformance.driver import DrivenOperator
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.window_rules import LatePolicy, LateRule, Touching
from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow
from keyedwm.operators.panes import Early, EveryBy
from tests.operators.streams import Event, Restarted, plan_of, rows_of, table

SUM = (("rows", agg.count()), ("total", agg.sum("n")))


class Play:
    """Events in, panes out as (start, end, key, total, timing, index); restarted around every step."""

    def __init__(self, window, **settings) -> None:
        self.plan = plan_of(window, aggregates=SUM, **settings)
        self.operator = Restarted(self.plan)

    def add_events(self, *events: tuple[int, int], key="k", now_ms=None):
        rows = [Event(key, time_ms, n, None, None, at) for at, (time_ms, n) in enumerate(events)]
        return self.pane_tuples(self.operator.take(combine_rows(self.plan, table(rows)), now_ms))

    def advance(self, watermark_ms):
        return self.pane_tuples(self.operator.advance(watermark_ms))

    def clock(self, now_ms):
        return self.pane_tuples(self.operator.clock(now_ms))

    @staticmethod
    def pane_tuples(results):
        return [
            (row["start"], row["end"], row["k"], row["total"], row["pane"]["timing"], row["pane"]["index"])
            for row in rows_of(results)
        ]


def test_a_window_closes_at_a_watermark_at_its_end_and_its_frames_go():
    play = Play(SlidingWindow(10, 5))
    play.add_events((4, 2), (5, 3))
    assert set(play.operator.blobs) == {"frame-0", "frame-5", "note"}
    assert play.advance(4) == []
    assert play.advance(5) == [(-5, 5, "k", 2, "on_time", 0)]
    assert play.advance(15) == [(0, 10, "k", 5, "on_time", 0), (5, 15, "k", 3, "on_time", 0)]
    assert set(play.operator.blobs) == {"note"}


def test_a_batch_appends_to_the_frames_it_touches_and_writes_nothing_else():
    plan = plan_of(SlidingWindow(10, 5), aggregates=SUM)
    operator = DrivenOperator(plan)
    operator.take(combine_rows(plan, table([Event("k", at, 1, None, None, at) for at in (0, 5, 10)])))
    assert set(operator.changed()[0]) == {"frame-0", "frame-5", "frame-10", "note"}
    operator.take(combine_rows(plan, table([Event("k", 6, 1, None, None, 4)])))
    assert set(operator.changed()[0]) == {"frame-5+1", "note"}
    operator.advance(10)
    assert operator.changed()[1] == {"frame-0"}


def test_a_blob_that_went_and_came_back_between_two_questions_is_not_gone():
    plan = plan_of(SlidingWindow(10, 10), aggregates=SUM, early=Early(rows=2), accumulating=False)
    operator = DrivenOperator(plan)
    for times in ((1, 2), (3,)):
        operator.take(combine_rows(plan, table([Event("k", at, 1, None, None, at) for at in times])))
    changed_blobs, removed_names = operator.changed()
    assert (set(changed_blobs), removed_names) == ({"frame-0", "panes-10", "note"}, set())
    assert rows_of(DrivenOperator(plan, changed_blobs).advance(10)) == rows_of(operator.advance(10))


def test_early_panes_by_count_come_when_that_many_rows_are_new():
    play = Play(SlidingWindow(10, 10), early=Early(rows=2))
    assert play.add_events((1, 1)) == []
    assert play.add_events((2, 1)) == [(0, 10, "k", 2, "early", 0)]
    assert play.add_events((3, 1)) == []
    assert play.add_events((3, 1), (4, 1), (5, 1)) == [(0, 10, "k", 6, "early", 1)]
    assert play.advance(10) == [(0, 10, "k", 6, "on_time", 2)]
    assert set(play.operator.blobs) == {"note"}


def test_discarding_panes_hold_what_is_new_and_the_on_time_pane_comes_even_if_nothing_is():
    play = Play(SlidingWindow(10, 5), early=Early(rows=1), accumulating=False)
    assert play.add_events((7, 1)) == [(0, 10, "k", 1, "early", 0), (5, 15, "k", 1, "early", 0)]
    assert play.add_events((8, 2)) == [(0, 10, "k", 2, "early", 1), (5, 15, "k", 2, "early", 1)]
    assert play.advance(10) == [(0, 10, "k", None, "on_time", 2)]
    assert play.add_events((9, 4)) == [(5, 15, "k", 4, "early", 2)]
    assert play.advance(20) == [(5, 15, "k", None, "on_time", 3)]


@pytest.mark.parametrize("window", [SlidingWindow(10, 10), SlidingWindow(10, 5)], ids=str)
def test_discarding_panes_without_news_have_no_distinct_values(window):
    distinct = (("distinct", agg.approx_count_distinct("n")),)
    plan = plan_of(window, aggregates=distinct, early=Early(rows=1), accumulating=False)
    operator = Restarted(plan)
    early = rows_of(operator.take(combine_rows(plan, table([Event("k", 7, 1, None, None, 0)]))))
    assert {row["distinct"] for row in early} == {1}
    assert {(row["pane"]["timing"], row["distinct"]) for row in rows_of(operator.advance(20))} == {("on_time", 0)}


@pytest.mark.parametrize("ending", [("advance", 10), ("complete",)])
@pytest.mark.parametrize("window", [SlidingWindow(10, 10), SlidingWindow(10, 5)], ids=str)
def test_without_by_columns_the_on_time_pane_comes_even_if_nothing_is_new(window, ending):
    plan = plan_of(window, aggregates=SUM, by=(), early=Early(rows=1), accumulating=False)
    operator = Restarted(plan)
    early = rows_of(operator.take(combine_rows(plan, table([Event("k", 3, 1, None, None, 0)]))))
    windows = [(end - 10, end) for end in range(window.slide_ms, 11, window.slide_ms)]
    assert [(row["start"], row["end"], row["total"], row["pane"]["timing"]) for row in early] == [
        (*edges, 1, "early") for edges in windows
    ]
    closing = rows_of(operator.step(*ending))
    assert [(row["start"], row["end"], row["total"], row["pane"]["timing"]) for row in closing] == [
        (*edges, None, "on_time") for edges in windows
    ]


def test_early_panes_by_the_clock_show_the_windows_touched_since_the_last_ones():
    for window, edges in ((SlidingWindow(10, 10), (0, 10)), (SessionWindow(9), (1, 10))):
        play = Play(window, early=Early(every_ms=100))
        assert play.add_events((1, 1), now_ms=1000) == []
        assert play.clock(1099) == []
        assert play.clock(1100) == [(*edges, "k", 1, "early", 0)]
        assert play.clock(1200) == []
        play.add_events((1, 2), now_ms=1210)
        assert play.clock(1299) == []
        assert play.clock(1300) == [(*edges, "k", 3, "early", 1)]
        assert play.advance(11) == [(*edges, "k", 3, "on_time", 2)]
        assert play.clock(1500) == []


def test_early_panes_by_event_time_come_when_the_watermark_has_come_to_a_multiple_of_the_interval():
    for window, edges in ((SlidingWindow(30, 30), (0, 30)), (SessionWindow(29), (1, 30))):
        play = Play(window, early=Early(every_ms=10, by=EveryBy.EVENT))
        assert play.add_events((1, 1)) == []
        assert play.advance(3) == []
        assert play.advance(10) == [(*edges, "k", 1, "early", 0)]
        assert play.advance(20) == []
        play.add_events((1, 2))
        assert play.advance(29) == []
        assert play.advance(31) == [(*edges, "k", 3, "on_time", 1)]
        assert play.clock(10**6) == []


def test_late_panes_come_at_once_within_the_allowed_lateness():
    play = Play(SlidingWindow(10, 10), lateness_ms=5)
    play.add_events((1, 2))
    play.add_events((1, 9), key="other")
    assert play.advance(14) == [(0, 10, "k", 2, "on_time", 0), (0, 10, "other", 9, "on_time", 0)]
    assert play.add_events((3, 3), (4, 1)) == [(0, 10, "k", 6, "late", 1)]
    assert play.add_events((3, 3), key="third") == [(0, 10, "third", 3, "late", 0)]
    play.advance(15)
    assert play.add_events((3, 3)) == []
    assert play.operator.late_rows == 1
    assert set(play.operator.blobs) == {"note"}


def test_discarding_late_panes_hold_the_late_rows_alone():
    play = Play(SlidingWindow(10, 10), lateness_ms=5, accumulating=False)
    play.add_events((1, 2))
    assert play.advance(12) == [(0, 10, "k", 2, "on_time", 0)]
    assert play.add_events((3, 3)) == [(0, 10, "k", 3, "late", 1)]


def test_of_a_sliding_window_a_late_row_reaches_the_windows_that_are_still_kept():
    play = Play(SlidingWindow(10, 5), lateness_ms=3)
    play.add_events((1, 1), (6, 1))
    assert play.advance(12) == [(-5, 5, "k", 1, "on_time", 0), (0, 10, "k", 2, "on_time", 0)]
    assert play.add_events((7, 4)) == [(0, 10, "k", 6, "late", 1)]
    assert play.advance(13) == []
    assert play.add_events((7, 4)) == []
    assert play.advance(15) == [(5, 15, "k", 9, "on_time", 0)]


def test_by_frame_a_row_is_late_once_its_frame_was_shown():
    by_window, by_frame = Play(SlidingWindow(10, 5)), Play(SlidingWindow(10, 5), late_rule=LateRule.FRAME)
    for play, late in ((by_window, 0), (by_frame, 1)):
        play.advance(7)
        play.add_events((4, 2))
        play.add_events((5, 3))
        assert play.operator.late_rows == late
    assert by_window.advance(10) == [(0, 10, "k", 5, "on_time", 0)]
    assert by_frame.advance(10) == [(0, 10, "k", 3, "on_time", 0)]


def test_late_rows_are_dropped_and_counted_or_emitted_or_fail():
    for window, edges in ((SlidingWindow(20, 10), (0, 20)), (SessionWindow(10), (1, 13))):
        dropping, emitting, failing = (Play(window, late=policy) for policy in LatePolicy)
        for play in (dropping, emitting, failing):
            play.advance(50)
        assert dropping.add_events((1, 2), (3, 3)) == []
        assert emitting.add_events((1, 2), (3, 3)) == [(*edges, "k", 5, "expired", 0)]
        assert (dropping.operator.late_rows, emitting.operator.late_rows) == (2, 2)
        with pytest.raises(
            InputError, match=r"2 rows were late \(earliest: \d ms\), behind the watermark of 50 ms; allow more"
        ):
            failing.add_events((1, 2), (3, 3))


def test_a_session_bridges_two_and_grows_while_its_late_panes_are_allowed():
    play = Play(SessionWindow(5, Touching.SEPARATE), lateness_ms=20)
    play.add_events((0, 1), (10, 2))
    assert play.advance(16) == [(0, 5, "k", 1, "on_time", 0), (10, 15, "k", 2, "on_time", 0)]
    assert play.add_events((7, 4)) == [(7, 15, "k", 6, "late", 1)]
    assert play.add_events((4, 8)) == [(0, 15, "k", 15, "late", 2)]
    assert play.add_events((14, 16)) == []  # the session is open again
    assert play.advance(19) == [(0, 19, "k", 31, "on_time", 3)]
    assert play.advance(39) == []
    assert set(play.operator.blobs) == {"note"}


def test_discarding_sessions_forget_what_they_told_but_not_where_they_stand():
    play = Play(SessionWindow(5, Touching.SEPARATE), early=Early(rows=2), accumulating=False)
    assert play.add_events((0, 1), (3, 2)) == [(0, 8, "k", 3, "early", 0)]
    assert play.add_events((6, 4)) == []
    assert play.advance(11) == [(0, 11, "k", 4, "on_time", 1)]


def test_touching_sessions_merge_and_close_above_their_end_or_stay_apart_and_close_at_it():
    merged, apart = Play(SessionWindow(5)), Play(SessionWindow(5, Touching.SEPARATE))
    for play in (merged, apart):
        play.add_events((0, 1), (5, 2))
    assert merged.advance(10) == []
    assert merged.advance(11) == [(0, 10, "k", 3, "on_time", 0)]
    assert apart.advance(10) == [(0, 5, "k", 1, "on_time", 0), (5, 10, "k", 2, "on_time", 0)]


def test_a_watermark_that_does_not_rise_closes_nothing():
    play = Play(SlidingWindow(10, 10))
    play.advance(20)
    play.add_events((25, 1))
    assert play.advance(20) == play.advance(3) == []
    assert play.advance(30) == [(20, 30, "k", 1, "on_time", 0)]


def test_state_of_another_plan_or_version_is_refused():
    plan, other = plan_of(SlidingWindow(10, 5), aggregates=SUM), plan_of(SlidingWindow(10, 10), aggregates=SUM)
    blobs = DrivenOperator(plan).snapshot()
    with pytest.raises(FormatError, match=rf"belongs to plan {plan.digest()}, this is plan {other.digest()}"):
        DrivenOperator(other, blobs)
    manifest = json.loads(blobs["note"])
    del manifest["checksum"]
    with pytest.raises(FormatError, match="the window state is of version 4, this keyedwm reads 2, 3"):
        DrivenOperator(plan, {"note": json.dumps(manifest | {"version": 4}).encode()})
    with pytest.raises(FormatError, match="holds frame-0, but no note"):
        DrivenOperator(plan, {"frame-0": b""})


def test_windows_may_stand_before_1970_and_far_apart():
    play = Play(SlidingWindow(10, 5, 2))
    play.add_events((-4, 1), (10**12, 2))
    assert play.advance(10**13) == [
        (-13, -3, "k", 1, "on_time", 0),
        (-8, 2, "k", 1, "on_time", 0),
        (10**12 - 8, 10**12 + 2, "k", 2, "on_time", 0),
        (10**12 - 3, 10**12 + 7, "k", 2, "on_time", 0),
    ]


@pytest.mark.parametrize("accumulating", [True, False])
def test_no_pane_is_lost_when_event_times_are_far_apart_and_keys_are_many(accumulating):
    plan = plan_of(SlidingWindow(2, 1), aggregates=SUM, early=Early(rows=1), accumulating=accumulating, lateness_ms=3)
    operator = Restarted(plan)
    far_ms = 2**52 - 5
    times = {f"{number}": (-far_ms, 0, far_ms)[number % 3] for number in range(5000)}
    rows = [Event(key, time_ms, 7, None, None, at) for at, (key, time_ms) in enumerate(times.items())]
    expected_windows = {(key, time_ms + step) for key, time_ms in times.items() for step in (1, 2)}
    for timing, results in (
        ("early", operator.take(combine_rows(plan, table(rows)))),
        ("on_time", operator.complete()),
    ):
        shown_windows = [(row["k"], row["end"]) for row in panes_far_from_1970(results) if row["timing"] == timing]
        assert len(shown_windows) == len(expected_windows)
        assert set(shown_windows) == expected_windows


def panes_far_from_1970(results):
    ends = pc.struct_field(results["window"], "end").cast(pa.int64()).to_pylist()
    rows = zip(results["k"].to_pylist(), ends, results["pane"].to_pylist(), strict=True)
    return [{"k": key, "end": end // 1000, "timing": pane["timing"]} for key, end, pane in rows]


@pytest.mark.parametrize("settings", [{"lateness_ms": 2000}, {"early": Early(rows=1)}, {"early": Early(every_ms=5)}])
def test_panes_of_long_windows_need_memory_for_the_windows_not_for_their_frames_each(settings):
    plan = plan_of(SlidingWindow(2000, 1), aggregates=SUM, **settings)
    operator = DrivenOperator(plan)
    if "lateness_ms" in settings:
        operator.advance(3000)
    rows = [Event(f"k{number}", 1500, number, None, None, number) for number in range(20)]
    partials = combine_rows(plan, table(rows))
    tracemalloc.start()
    try:
        results = operator.take(partials, 0)
        results = results if results.num_rows else operator.clock(5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    windows = 1500 if "lateness_ms" in settings else 2000
    assert results.num_rows == 20 * windows
    assert peak < 64 << 20  # 40,000 windows of 2,000 frames each would be 640 MB
