"""The policy of panes by itself: which windows show one, and when early and late ones are due."""

from __future__ import annotations

import numpy as np
import pytest

from keyedwm.operators.frames.frame_panes import FiredCounts, FramePanes
from keyedwm.operators.panes import Early, EveryBy, Late, LateTimes, Now, PanePolicy, PaneTimer, PaneTiming


def policy(early: Early | None = None, lateness_ms: int = 0, *, accumulating: bool = True, **state) -> FramePanes:
    return FramePanes(early, lateness_ms, accumulating=accumulating, state=state)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def fired_counts(panes, rows, on_time) -> FiredCounts:
    return FiredCounts(ints(*panes), ints(*rows), ints(*on_time))


def flags(*values: int) -> np.ndarray:
    return np.array(values, bool)


def test_a_complete_window_shows_a_late_pane_at_once_and_an_open_one_an_early_pane_when_enough_rows_are_unshown():
    late, early = policy(Early(rows=3), 10).at_once(ints(1, 2, 3), flags(1, 0, 0))
    assert (late.tolist(), early.tolist()) == ([True, False, False], [False, False, True])
    _, none = policy(Early(every_ms=5), 10).at_once(ints(9), flags(0))
    assert not none.any()


def test_a_window_is_shown_on_time_once_and_again_only_after_it_took_new_rows():
    pane_policy, complete = policy(lateness_ms=10), flags(1, 1, 0)
    before = fired_counts([0, 1, 0], [0, 2, 0], [0, 1, 0])
    assert pane_policy.closed(before, complete).tolist() == [True, False, False]
    merged = pane_policy.on_merge(before, ints(0, 1, 1), flags(0, 1))
    assert pane_policy.closed(merged, flags(1, 1)).tolist() == [True, True]


@pytest.mark.parametrize(("accumulating", "rows"), [(True, [4, 5]), (False, [0, 0])])
@pytest.mark.parametrize("timing", [PaneTiming.EARLY, PaneTiming.ON_TIME, PaneTiming.LATE])
def test_after_a_pane_nothing_is_unshown(accumulating, rows, timing):
    pane_policy = policy(Early(rows=1), accumulating=accumulating)
    after = pane_policy.fired(fired_counts([0, 3], [1, 0], [0, 0]), ints(4, 5), timing)
    assert (after.panes.tolist(), after.rows.tolist()) == ([1, 4], rows)
    assert after.on_time.tolist() == [int(timing is not PaneTiming.EARLY)] * 2


def test_the_whole_of_merged_windows_has_the_unshown_rows_of_its_parts_and_its_panes_go_on():
    merged = policy(Early(rows=1)).on_merge(
        fired_counts([2, 5, 1], [3, 4, 9], [1, 0, 1]), ints(0, 0, 1), flags(0, 0, 1)
    )
    assert merged.panes.tolist() == [5, 1, 0]
    assert merged.rows.tolist() == [7, 9, 0]
    assert merged.on_time.tolist() == [1, 1, 0]


def test_the_clock_of_early_panes_begins_with_the_first_batch_and_again_whenever_they_are_due():
    pane_policy = policy(Early(every_ms=10))
    pane_policy.on_rows(3)
    pane_policy.on_rows(9)
    assert pane_policy.next_timer_ms == 13
    again = policy(Early(every_ms=10), **pane_policy.state())
    assert [again.beats(EveryBy.CLOCK, now_ms) for now_ms in (12, 15, 24, 25)] == [False, True, False, True]
    assert not again.beats(EveryBy.EVENT, 99)


def test_early_panes_by_event_time_are_due_at_multiples_of_the_interval():
    pane_policy = policy(Early(every_ms=10, by=EveryBy.EVENT))
    pane_policy.on_rows(3)
    assert pane_policy.next_timer_ms is None
    assert [pane_policy.beats(EveryBy.EVENT, at) for at in (3, 9, 12, 19, 20, 29)] == [
        False,
        False,
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(("timing", "lateness_ms", "is_last"), [
    (PaneTiming.EARLY, 0, False), (PaneTiming.ON_TIME, 0, True), (PaneTiming.ON_TIME, 5, False),
    (PaneTiming.LATE, 5, False), (PaneTiming.EXPIRED, 5, True),
])  # fmt: skip
def test_no_pane_follows_one_on_time_without_lateness(timing, lateness_ms, is_last):
    assert policy(Early(rows=1), lateness_ms).is_last(timing) is is_last


def test_panes_that_rest_without_news_keep_the_beat_of_the_first_news_of_all():
    beat = PaneTimer(10, keeps_beat=True)
    assert not beat.is_due(100)
    beat.begin(3)
    beat.begin(9)
    assert (beat.is_due(12), beat.is_due(13)) == (False, True)
    beat.keep(())
    again = PaneTimer(10, keeps_beat=True, state=beat.state())
    again.begin(28)
    assert again.due_ms == 33
    loose = PaneTimer(10, keeps_beat=False, state=beat.state())
    loose.begin(28)
    assert loose.due_ms == 38


def test_late_panes_of_a_window_are_due_an_interval_after_its_own_first_news():
    times = LateTimes(10)
    times.begin(100, [20])
    times.begin(105, [20, 30])
    again = LateTimes(10, times.state())
    assert (again.due_ms, again.due(109)) == (110, None)
    assert [again.due(at)(ints(10, 20, 30)).tolist() for at in (110, 115)] == [
        [False, True, False],
        [False, True, True],
    ]
    again.keep([30])
    assert again.due_ms == 115
    assert LateTimes(None).due_ms is None


CLOCK, EVENT = EveryBy.CLOCK, EveryBy.EVENT
RULES = [  # early, late, and whether news waits, and of how many rows a pane comes at once: early and late
    (None, None, (False, None), (False, 0)),
    (Early(rows=3), Late(rows=2), (False, 3), (False, 2)),
    (Early(every_ms=10), Late(every_ms=7), (True, None), (True, None)),
    (Early(rows=3, every_ms=10, by=EVENT), Late(every_ms=7, by=EVENT), (True, 3), (True, None)),
]


@pytest.mark.parametrize("by_window", [False, True])
@pytest.mark.parametrize(("early", "late", "of_early", "of_late"), RULES)
def test_early_and_late_panes_leave_at_once_by_rows_or_by_time(early, late, of_early, of_late, by_window):
    pane_policy = PanePolicy(early, late, {}, by_window=by_window)
    now, answers = Now(100, 50), []
    for timing in (PaneTiming.EARLY, PaneTiming.LATE):
        waits = pane_policy.begin(timing, now, [20])
        answers.append((waits, pane_policy.fire_threshold(timing, waits=waits)))
    assert answers == [of_early, of_late]


@pytest.mark.parametrize("by_window", [False, True])
def test_panes_by_time_are_due_by_their_own_time_late_ones_first_and_after_a_restart(by_window):
    pane_policy = PanePolicy(Early(every_ms=10), Late(every_ms=7, by=EVENT), {}, by_window=by_window)
    for timing in (PaneTiming.EARLY, PaneTiming.LATE):
        pane_policy.begin(timing, Now(100, 50), [20])
    pane_policy = PanePolicy(Early(every_ms=10), Late(every_ms=7, by=EVENT), pane_policy.state(), by_window=by_window)
    assert pane_policy.next_timer_ms == 110
    assert [(by, at, list(pane_policy.due(by, at))) for by in (CLOCK, EVENT) for at in (56, 57, 109, 110)] == [
        (CLOCK, 56, []), (CLOCK, 57, []), (CLOCK, 109, []), (CLOCK, 110, [PaneTiming.EARLY]),
        (EVENT, 56, []), *((EVENT, at, [PaneTiming.LATE]) for at in (57, 109, 110)),
    ]  # fmt: skip
    both = PanePolicy(Early(every_ms=10), Late(every_ms=7), {}, by_window=by_window)
    for timing in (PaneTiming.EARLY, PaneTiming.LATE):
        both.begin(timing, Now(100, 50), [20])
    assert list(both.due(CLOCK, 110)) == [PaneTiming.LATE, PaneTiming.EARLY]
    both.left(PaneTiming.LATE, ())
    both.left(PaneTiming.EARLY, [20])
    assert list(both.due(CLOCK, 110)) == [PaneTiming.EARLY]


def test_news_without_a_time_shows_late_panes_at_once_and_no_early_ones():
    pane_policy = PanePolicy(Early(every_ms=10), Late(every_ms=7), {})
    assert not pane_policy.begin(PaneTiming.LATE, Now(None, 50), [20])
    assert pane_policy.fire_threshold(PaneTiming.LATE, waits=False) == 0
    assert (
        pane_policy.fire_threshold(PaneTiming.EARLY, waits=pane_policy.begin(PaneTiming.EARLY, Now(None, 50), [20]))
        is None
    )
    assert pane_policy.next_timer_ms is None
