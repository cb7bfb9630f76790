"""Rule 11: windows out of frames, sessions, and the pure part of joins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.aggregates import AGGREGATES
from conformance.models.join import Join, JoinConfig, Side
from conformance.models.results import Late, WindowResult
from conformance.models.sessions import SessionConfig, Sessions, merge
from conformance.models.sliding import Sliding, SlidingConfig, SlidingState, common_window_end
from conformance.models.time_bounds import Limits, bounds_of, tightest
from keyedwm.core.errors import InputError, OptionError, RegressionError
from keyedwm.core.watermark import Guarantee, Watermark
from keyedwm.core.window_rules import LateRule, Touching
from tests.seeds import times

SUM, COUNT = AGGREGATES["sum"], AGGREGATES["count"]
LATE = Late()


def win(start, end, value, key="k"):
    return WindowResult(start, end, key, value)


def test_a_window_closes_at_a_watermark_at_its_end():
    it = Sliding(SlidingConfig(10, 5), SUM)
    #  -5    0    5    10    15
    #   [---------)               2
    #        [---------)          2 + 3
    #             [---------)         3
    assert it.event(4, "k", 2) == []
    assert it.event(5, "k", 3) == []
    assert it.watermark(4) == []
    assert it.watermark(5) == [win(-5, 5, 2)]
    assert it.watermark(15) == [win(0, 10, 5), win(5, 15, 3)]
    assert it.snapshot().frames == {}


def test_an_event_counts_in_every_window_still_open_and_is_late_only_if_there_is_none():
    it = Sliding(SlidingConfig(10, 5), SUM)
    it.watermark(7)
    assert it.event(4, "k", 2) == []
    assert it.event(-1, "k", 2) == [LATE]
    assert it.watermark(10) == [win(0, 10, 2)]
    assert it.event(4, "k", 2) == [LATE]


def test_by_frame_an_event_is_late_once_its_frame_was_emitted():
    it = Sliding(SlidingConfig(10, 5, late_rule=LateRule.FRAME), SUM)
    it.watermark(7)
    assert it.event(4, "k", 2) == [LATE]
    assert it.event(5, "k", 2) == []
    assert it.event(5, "j", 2) == []
    assert it.watermark(10) == [win(0, 10, 2, "j"), win(0, 10, 2)]


def test_by_event_late_is_below_the_watermark():
    it = Sliding(SlidingConfig(10, 10, late_rule=LateRule.EVENT), SUM)
    it.watermark(7)
    assert it.event(6, "k", 2) == [LATE]
    assert it.event(7, "k", 2) == []


def test_within_the_allowed_lateness_a_closed_window_gives_its_new_total_at_once():
    it = Sliding(SlidingConfig(10, 10, lateness_ms=5), SUM)
    it.event(1, "k", 2)
    it.event(1, "other", 9)
    it.watermark(14)
    assert it.event(3, "k", 3) == [win(0, 10, 5)]
    it.watermark(15)
    assert it.event(3, "k", 3) == [LATE]
    assert it.complete() == []


def test_a_key_whose_total_is_zero_is_still_in_the_window():
    it = Sliding(SlidingConfig(4, 2), SUM)
    it.event(0, "k", 5)
    it.event(2, "k", -5)
    assert it.complete() == [win(-2, 2, 5), win(0, 4, 0), win(2, 6, -5)]


def test_watermarks_that_do_not_increase_close_nothing():
    it = Sliding(SlidingConfig(4, 4), SUM)
    it.watermark(8)
    assert it.watermark(3) == []
    assert it.snapshot().watermark_ms == 8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SlidingConfig(10, 3),
        lambda: SlidingConfig(2, 4),
        lambda: SlidingConfig(0, 0),
        lambda: SlidingConfig(10, 5, 5),
        lambda: SlidingConfig(10, 5, lateness_ms=-1),
        lambda: SlidingConfig(10, 5, lateness_ms=1, late_rule=LateRule.FRAME),
        lambda: SessionConfig(0),
        lambda: SessionConfig(1, late_rule=LateRule.FRAME),
        lambda: SessionConfig(1, lateness_ms=1, late_rule=LateRule.EVENT),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(OptionError):
        wrong()


def test_restored_instances_agree_or_the_lowest_stands():
    with pytest.raises(InputError, match="different windows"):
        common_window_end([1, 2], Guarantee.EXACTLY_ONCE)
    assert common_window_end([2, 1], Guarantee.AT_LEAST_ONCE) == 1


events = st.lists(
    st.tuples(st.integers(-20, 60), st.sampled_from("jk"), st.integers(-3, 3)) | st.integers(-20, 70), max_size=30
)
sizes = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 4), st.integers(0, 9))


def brute_windows(config, run):
    """Every event copied into every window that holds it, as Spark and Flink do."""
    windows, closed, watermark_ms, answers = {}, set(), None, []
    for step in run:
        if isinstance(step, int):
            if watermark_ms is None or step > watermark_ms:
                watermark_ms = step
            due = sorted(end for end, _ in windows if end <= watermark_ms and end not in closed)
            closed.update(due)
            answers.append([(end, key, sum(values)) for (end, key), values in sorted(windows.items()) if end in due])
            continue
        time_ms, key, value = step
        first = time_ms - (time_ms - config.offset_ms) % config.slide_ms + config.slide_ms
        ends = range(first, first + config.size_ms, config.slide_ms)
        open_ends = [end for end in ends if watermark_ms is None or watermark_ms < end + config.lateness_ms]
        for end in open_ends:
            windows.setdefault((end, key), []).append(value)
        now_closed = [end for end in open_ends if watermark_ms is not None and end <= watermark_ms]
        closed.update(now_closed)
        answers.append([(end, key, sum(windows[end, key])) for end in now_closed] if open_ends else "late")
    return answers


def play(config, run, restore=False, make=Sliding, aggregate=SUM):
    it, answers = make(config, aggregate), []
    for step in run:
        it = make(config, aggregate, it.snapshot()) if restore else it
        results = it.watermark(step) if isinstance(step, int) else it.event(*step)
        answers.append("late" if results == [LATE] else [(one.end_ms, one.key, one.value) for one in results])
    return [*answers, it.complete()]


@given(events, sizes)
@settings(max_examples=times(60))
def test_frames_give_what_copying_every_event_into_every_window_gives(run, numbers):
    factor, slide_ms, offset_ms, lateness_ms = numbers
    config = SlidingConfig(factor * slide_ms, slide_ms, offset_ms % slide_ms, lateness_ms)
    assert play(config, run)[:-1] == brute_windows(config, run)


@given(events, sizes, st.sampled_from(LateRule))
def test_a_restored_window_operator_goes_on_as_if_nothing_happened(run, numbers, late_rule):
    factor, slide_ms, offset_ms, lateness_ms = numbers
    lateness_ms = lateness_ms if late_rule is LateRule.WINDOW else 0
    config = SlidingConfig(factor * slide_ms, slide_ms, offset_ms % slide_ms, lateness_ms, late_rule)
    assert play(config, run, restore=True) == play(config, run)


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_deducting_what_was_combined_gives_back_the_rest(one, other):
    for name in ("sum", "count"):
        aggregate = AGGREGATES[name]
        left, right = aggregate.create(), aggregate.create()
        for value in one:
            left = aggregate.accumulate(left, value)
        for value in other:
            right = aggregate.accumulate(right, value)
        both = aggregate.combine(left, right)
        assert both == aggregate.combine(right, left)
        assert aggregate.deduct(both, right) == left
        assert aggregate.combine(left, aggregate.create()) == left


def test_touching_sessions_merge_and_close_above_their_end():
    it = Sessions(SessionConfig(10), COUNT)
    it.event(0, "k", 1)
    assert it.watermark(10) == []
    assert it.event(10, "k", 1) == []
    assert it.watermark(20) == []
    assert it.watermark(21) == [win(0, 20, 2)]


def test_kept_apart_touching_sessions_close_at_their_end():
    it = Sessions(SessionConfig(10, Touching.SEPARATE), COUNT)
    it.event(10, "k", 1)
    it.event(0, "k", 1)
    assert it.watermark(10) == [win(0, 10, 1)]
    assert it.watermark(20) == [win(10, 20, 1)]


def test_a_session_takes_an_event_below_the_watermark_if_the_session_it_would_join_is_open():
    it = Sessions(SessionConfig(10), COUNT)
    it.event(5, "k", 1)
    it.watermark(14)
    assert it.event(-2, "k", 1) == []
    assert it.event(-20, "k", 1) == [LATE]
    assert it.watermark(16) == [win(-2, 15, 2)]


def test_by_event_a_session_drops_what_is_below_the_watermark():
    it = Sessions(SessionConfig(10, late_rule=LateRule.EVENT), COUNT)
    it.event(5, "k", 1)
    it.watermark(14)
    assert it.event(13, "k", 1) == [LATE]
    assert it.event(14, "k", 1) == []


def test_a_late_event_within_the_lateness_gives_the_sessions_new_total_at_once():
    it = Sessions(SessionConfig(10, lateness_ms=5), COUNT)
    it.event(0, "k", 1)
    assert it.watermark(15) == [win(0, 10, 1)]
    assert it.event(2, "k", 1) == [win(0, 12, 2)]
    it.watermark(18)
    assert it.event(2, "k", 1) == [LATE]


def test_an_event_between_two_sessions_makes_them_one():
    it = Sessions(SessionConfig(10), COUNT)
    for time_ms in (0, 15, 8):
        it.event(time_ms, "k", 1)
    assert it.complete() == [win(0, 25, 3)]
    assert it.complete() == []


@given(st.lists(st.integers(-30, 60), max_size=12), st.integers(1, 9), st.sampled_from(Touching), st.randoms())
def test_the_order_of_events_does_not_change_the_sessions(times, gap_ms, touching, random):
    shuffled = random.sample(times, len(times))
    answers = []
    for order in (times, shuffled):
        it = Sessions(SessionConfig(gap_ms, touching), COUNT)
        for time_ms in order:
            it.event(time_ms, "k", 1)
        answers.append(it.complete())
    assert answers[0] == answers[1]
    spans = [span for span, _ in merge([(time_ms, time_ms + gap_ms) for time_ms in times], touching)]
    assert [(one.start_ms, one.end_ms) for one in answers[0]] == spans


@given(events, st.integers(1, 9), st.integers(0, 9), st.sampled_from(Touching), st.booleans())
def test_restored_sessions_go_on_as_if_nothing_happened(run, gap_ms, lateness_ms, touching, by_event):
    late_rule = LateRule.EVENT if by_event else LateRule.WINDOW
    config = SessionConfig(gap_ms, touching, 0 if by_event else lateness_ms, late_rule)
    assert play(config, run, restore=True, make=Sessions) == play(config, run, make=Sessions)


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 6), st.integers(0, 50))
def test_merging_and_closing_above_the_end_makes_event_and_watermark_order_irrelevant_at_the_end(times, gap_ms, at):
    """An event exactly at the watermark joins the same session whether it or the watermark came first."""
    answers = []
    for first in (True, False):
        it = Sessions(SessionConfig(gap_ms), COUNT)
        for time_ms in times:
            it.event(time_ms, "k", 1)
        out = it.event(at, "k", 1) if first else []
        out = [*out, *it.watermark(at)]
        out = out if first else [*out, *it.event(at, "k", 1)]
        answers.append([*out, *it.complete()])
    assert answers[0] == answers[1]


def test_a_bound_is_the_difference_of_two_watermarked_columns():
    assert bounds_of(">=", {1: 1, 0: -1}, 4, [0, 1]) == {0: {1: 4}}
    assert bounds_of("<", {1: 1, 0: -1}, -4, [0, 1]) == {1: {0: 4}}
    assert bounds_of("=", {1: 1, 0: -1}, 4, [0, 1]) == {0: {1: 4}, 1: {0: -4}}
    for nothing in ({1: 1, 2: -1}, {0: 1, 1: 1}, {0: 1}, {0: 2, 1: -2}, {0: 1, 1: -1, 2: 1}):
        assert bounds_of(">", nothing, 0, [0, 1]) == {}
    with pytest.raises(OptionError, match="'<>'"):
        bounds_of("<>", {}, 0, [])
    assert tightest([{0: {1: 4}}, {0: {1: 2}}, {1: {0: 3}}]) == {0: {1: 2}, 1: {0: 3}}


def test_limits_follow_the_other_side_and_output_watermarks_need_both():
    it = Limits({0: {1: 3}, 1: {0: 3}})
    assert it.watermark(0, 10) == []
    assert it.limit_ms(1) == 7
    assert it.watermark(1, 20) == [Watermark(0, 10), Watermark(1, 7)]
    assert it.is_late({1: 19})
    assert not it.is_late({1: 20, 5: 0})
    assert it.is_forgotten({0: 16})
    assert not it.is_forgotten({0: 17})
    with pytest.raises(RegressionError, match="key 1 into the join went from 20 ms to 20 ms"):
        it.watermark(1, 20)


def join_config(outer=None, guarantee=Guarantee.EXACTLY_ONCE, slack=2):
    return JoinConfig(
        left_keys={0: 0},
        right_keys={1: 0},
        left_columns=1,
        right_columns=2,
        postpone={0: {1: slack}, 1: {0: slack}},
        condition=lambda left, right: abs(left[0] - right[0]) <= slack,
        outer=outer,
        guarantee=guarantee,
    )


def test_a_join_needs_bounds_in_both_directions_and_keys_of_one_side():
    good = join_config()
    with pytest.raises(OptionError, match="one direction only"):
        JoinConfig(**{**fields(good), "postpone": {0: {1: 2}}})
    with pytest.raises(OptionError, match="both sides"):
        JoinConfig(**{**fields(good), "right_keys": {0: 0}})


def fields(config):
    return {name: getattr(config, name) for name in config.__slots__}


def test_an_outer_join_pads_an_unmatched_row_when_it_is_forgotten_and_drops_a_late_one():
    it = Join(join_config(Side.LEFT))
    assert it.row(Side.LEFT, (5,)) == []
    assert it.row(Side.LEFT, (6,)) == []
    assert it.row(Side.RIGHT, (8, "x")) == [(6, 8, "x")]
    assert it.watermark(1, 7) == []
    assert it.watermark(1, 8) == [(5, None, None)]
    assert it.row(Side.LEFT, (5,)) == [(5, None, None)]
    assert it.watermark(0, 20) == [Watermark(0, 6), Watermark(1, 8)]
    assert it.row(Side.LEFT, (19,)) == []
    assert it.snapshot().left == (((6,), True),)


def test_at_least_once_a_join_swallows_a_watermark_that_does_not_increase():
    it = Join(join_config(guarantee=Guarantee.AT_LEAST_ONCE))
    it.watermark(0, 5)
    assert it.watermark(0, 4) == []
    assert it.snapshot().limits.received == {0: 5}
    with pytest.raises(InputError, match="key 9 came into the join"):
        it.watermark(9, 1)


join_steps = st.lists(st.tuples(st.sampled_from(["l", "r", 0, 1]), st.integers(0, 30)), max_size=30)


@given(join_steps, st.sampled_from([None, Side.LEFT, Side.RIGHT]))
def test_a_restored_join_goes_on_as_if_nothing_happened_and_finds_every_pair_that_is_not_late(run, outer):
    config = join_config(outer, Guarantee.AT_LEAST_ONCE)
    plain, restored = Join(config), Join(config)
    rows_by_side, joined, received = {"l": [], "r": []}, [], {}
    for item, time_ms in run:
        restored = Join(config, restored.snapshot())
        if isinstance(item, int):
            output = plain.watermark(item, time_ms)
            assert restored.watermark(item, time_ms) == output
            received[item] = max(time_ms, received.get(item, 0))
            continue
        side, row = (Side.LEFT, (time_ms,)) if item == "l" else (Side.RIGHT, (time_ms, len(rows_by_side["r"])))
        output = plain.row(side, row)
        assert restored.row(side, row) == output
        joined += [pair for pair in output if None not in pair]
        if time_ms >= received.get(0 if item == "l" else 1, 0):
            rows_by_side[item].append(row)
    expected = [
        left + right for left in rows_by_side["l"] for right in rows_by_side["r"] if config.condition(left, right)
    ]
    assert sorted(joined) == sorted(expected)


def test_a_restore_into_other_frames_aligns_ends_up():
    state = SlidingState({3: {"k": 3}, 6: {"k": 3}}, 2)
    assert Sliding(SlidingConfig(2, 2), SUM, state).complete() == [win(2, 4, 3), win(4, 6, 3)]
