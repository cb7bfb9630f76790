"""Rules 7 to 10: policies, the cap, throttles, exact idleness, and the mapper that puts them together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.models.axis import Axis, is_late
from conformance.models.frames import higher_frame
from conformance.models.mapper import Mapper, MapperConfig
from keyedwm.core.axis import AxisConfig, AxisState, concatenate
from keyedwm.core.errors import FormatError, InputError, OptionError, OutOfTurnError
from keyedwm.core.idleness import Idleness
from keyedwm.core.policy import FixedLag, LagAndDelay, LagAndLull, NoWatermarks, RealTimeLag, TimestampAndWallClockLag
from keyedwm.core.throttle import NoThrottle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep, floor_frame
from keyedwm.core.watermark import MAX_MS, MIN_MS, History, IdleMarker, Watermark
from tests.seeds import times

POLICIES = [
    FixedLag(0),
    FixedLag(3),
    LagAndDelay(5, 4),
    LagAndDelay(2, 0),
    LagAndLull(3, 4),
    TimestampAndWallClockLag(3, 2),
    RealTimeLag(1),
    NoWatermarks(),
]
THROTTLES = [NoThrottle(), ThrottleByBatch(), ThrottleByFrame(4, 1), ThrottleByFrame(0), ThrottleByStep(3)]
policies = st.sampled_from(POLICIES)
throttles = st.sampled_from(THROTTLES)
# (clock advance, event offset from the clock or None for the end of a batch)
runs = st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(-15, 15)), max_size=30)
IDLE = IdleMarker()


def test_fixed_lag_trails_the_highest_event():
    run = FixedLag(10).build()
    assert run.current(0) is None
    for event_ms, expected in [(0, -10), (-5, -10), (7, -3)]:
        run.observe(event_ms, 0)
        assert run.current(0) == expected


def test_an_event_whose_lag_would_leave_64_bits_says_nothing():
    run = FixedLag(10).build()
    run.observe(MIN_MS + 9, 0)
    assert run.current(0) is None
    run.observe(MIN_MS + 10, 0)
    assert run.current(0) == MIN_MS


def test_lag_and_delay_knows_an_event_exactly_a_delay_later():
    run = LagAndDelay(lag_ms=100, delay_ms=10).build()
    run.observe(50, 1000)
    run.observe(80, 1004)
    assert run.current(1009) == -20
    assert run.current(1010) == 50
    assert run.current(1013) == 50
    assert run.current(1014) == 80


def test_lag_and_lull_grows_with_the_clock_beyond_the_lull_and_stands_still_before_the_first_event():
    run = LagAndLull(lag_ms=2, lull_ms=3).build()
    assert run.current(100) is None
    run.observe(12, 200)
    assert run.current(203) == 10
    assert run.current(205) == 12
    run.observe(5, 206)
    assert run.current(209) == 12
    assert run.current(210) == 13


def test_timestamp_and_wall_clock_lag_takes_the_higher_and_never_goes_back():
    run = TimestampAndWallClockLag(lag_ms=3, wall_clock_lag_ms=10).build()
    assert run.current(100) == 90
    run.observe(120, 100)
    assert run.current(100) == 117
    assert run.current(50) == 117


def test_real_time_lag_follows_the_clock_whatever_the_events_say():
    run = RealTimeLag(10).build()
    run.observe(1000, 100)
    assert run.current(100) == 90


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FixedLag(-1),
        lambda: LagAndDelay(1, -1),
        lambda: LagAndLull(1, -1),
        lambda: LagAndLull(-1, 1),
        lambda: TimestampAndWallClockLag(1, -1),
        lambda: RealTimeLag(MAX_MS + 1),
        lambda: ThrottleByFrame(10, 10),
        lambda: ThrottleByFrame(10, -1),
        lambda: ThrottleByFrame(-1),
        lambda: ThrottleByStep(0),
        lambda: Idleness(0),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(OptionError):
        wrong()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_that_a_policy_never_writes_is_refused(policy):
    with pytest.raises(FormatError, match="saved state of policy"):
        policy.build((1, 2, 3, 4))


def test_a_state_that_a_throttle_or_an_axis_never_writes_is_refused():
    with pytest.raises(FormatError):
        NoThrottle().build((1, 2))
    for value in (
        [],
        [1],
        [1, "policy", "2"],
        [1, "policy", None],
        [1, "odd", 2],
        [1.5, "policy"],
        [1, "propagated", 2],
    ):
        with pytest.raises(FormatError):
            AxisState.from_list(value)


def test_frame_boundaries_lie_at_offset_plus_n_times_size_for_negative_n_too():
    assert [floor_frame(time_ms, 4, 1) for time_ms in (-4, -3, 0, 1, 4, 5)] == [-7, -3, -3, 1, 1, 5]
    assert [higher_frame(time_ms, 4, 1) for time_ms in (-4, -3, 0, 1, 4, 5)] == [-3, 1, 1, 5, 5, 9]


@given(st.integers(MIN_MS, MAX_MS), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_time_lies_between_its_boundaries(time_ms, size_ms, offset_ms):
    low, high = floor_frame(time_ms, size_ms, offset_ms), higher_frame(time_ms, size_ms, offset_ms)
    assert MIN_MS <= low <= time_ms <= high <= MAX_MS
    assert low == MIN_MS or (low - offset_ms) % size_ms == 0
    assert high == MAX_MS or (high > time_ms and (high - offset_ms) % size_ms == 0 and high - size_ms <= time_ms)


def test_throttling_by_frame_sends_the_boundary_only_if_it_is_greater_than_the_last():
    run = ThrottleByFrame(10, 3).build()
    assert [run.admit(time_ms) for time_ms in (12, 13, 22, 23, 45)] == [3, 13, None, 23, 43]


def test_throttling_by_step_lets_the_first_pass_and_then_whole_steps():
    run = ThrottleByStep(5).build()
    assert [run.admit(time_ms) for time_ms in (-7, -3, -2, 2, 3)] == [-7, None, -2, None, 3]


def test_throttling_by_batch_sends_once_after_the_events():
    run = ThrottleByBatch().build()
    assert run.admit(5) is None
    assert [run.end_of_batch(5), run.end_of_batch(5), run.end_of_batch(4), run.end_of_batch(6)] == [5, None, None, 6]


def test_no_throttle_sends_every_advance_and_a_frame_of_no_size_none():
    assert [NoThrottle().build().admit(1), NoThrottle().build((1,)).admit(1)] == [1, None]
    assert ThrottleByFrame(0).build().end_of_batch(5) is None


def test_history_knows_what_was_noted_at_or_before():
    history = History()
    for now_ms, value in [(5, 1), (5, 2), (8, 2), (9, 7), (7, 8)]:
        history.note(now_ms, value)
    assert history.points() == ((5, 2), (9, 8))
    assert [history.known_at(at_ms) for at_ms in (4, 5, 8, 9)] == [None, 2, 2, 8]
    assert history.points() == ((9, 8),)


def test_an_event_at_the_watermark_is_on_time():
    assert [is_late(9, 10), is_late(10, 10), is_late(None, 10), is_late(9, None)] == [True, False, False, False]


def axis_run(config, run, restore_each=False):
    axis, now_ms, answers = Axis(config), 0, []
    for advance_ms, offset_ms in run:
        now_ms += advance_ms
        if restore_each:
            axis = Axis(config, AxisState.from_list(axis.state().as_list()))
        if offset_ms is None:
            answers.append(("end", now_ms, axis.end(now_ms)))
        else:
            answers.append((now_ms + offset_ms, now_ms, axis.observe(now_ms + offset_ms, now_ms)))
    return answers, axis.state()


@given(policies, throttles, runs)
@settings(max_examples=times(60))
def test_what_an_axis_sends_strictly_increases_and_never_makes_the_observed_event_late(policy, throttle, run):
    answers, state = axis_run(AxisConfig(0, policy, throttle), run)
    watermarks_ms = [watermark_ms for _, _, watermark_ms in answers if watermark_ms is not None]
    assert watermarks_ms == sorted(set(watermarks_ms))
    assert state.emitted_ms == (watermarks_ms[-1] if watermarks_ms else None)
    for event_ms, _, watermark_ms in answers:
        assert event_ms == "end" or not is_late(event_ms, watermark_ms)


@given(policies, throttles, runs)
@settings(max_examples=times(60))
def test_a_restored_axis_goes_on_as_if_nothing_happened(policy, throttle, run):
    config = AxisConfig(0, policy, throttle)
    assert axis_run(config, run, restore_each=True) == axis_run(config, run)


@given(policies, st.lists(st.integers(-15, 30), max_size=12), st.integers(0, 12), st.integers(0, 9))
@settings(max_examples=times(60))
def test_the_states_of_consecutive_ranges_concatenate_to_the_state_of_the_whole(policy, events, split_at, now_ms):
    config = AxisConfig(0, policy, ThrottleByBatch())
    before = Axis(config)
    before.observe(4, -5)
    before.end(-5)
    start = before.state()
    whole, split = Axis(config, start), Axis(config)
    for event_ms in events:
        whole.observe(event_ms, now_ms)
    first = Axis(config, start)
    for event_ms in events[:split_at]:
        first.observe(event_ms, now_ms)
    for event_ms in events[split_at:]:
        split.observe(event_ms, now_ms)
    joined = Axis(config, concatenate(config, first.state(), split.state()))
    assert joined.end(now_ms) == whole.end(now_ms)
    assert joined.state() == whole.state()


def test_idle_needs_the_log_end_and_the_whole_timeout():
    idleness = Idleness(100)
    assert not idleness.is_idle(quiet_since_ms=1000, now_ms=1099, caught_up=True)
    assert idleness.is_idle(quiet_since_ms=1000, now_ms=1100, caught_up=True)
    assert not idleness.is_idle(quiet_since_ms=1000, now_ms=10**9, caught_up=False)
    assert not Idleness(None).is_idle(quiet_since_ms=0, now_ms=10**9, caught_up=True)


def mapper(policy=FixedLag(3), throttle=NoThrottle(), timeout_ms=10, key=0):  # noqa: B008  frozen values
    return Mapper(MapperConfig(policy, throttle, Idleness(timeout_ms), key))


def test_a_channel_with_a_backlog_is_not_idle_however_long_nothing_came():
    it = mapper()
    it.add(["a"], 0)
    assert it.tick(10**6, behind=frozenset("a")) == []
    assert it.tick(10**6) == [IDLE]


def test_a_source_without_channels_is_idle_at_once_and_a_new_channel_blocks():
    it = mapper(timeout_ms=None)
    assert it.tick(0) == [IDLE]
    assert it.add(["a", "b"], 1) == []
    assert it.event("a", 10, 2) == []
    assert it.event("b", 20, 3) == [Watermark(0, 7)]
    assert it.remove("a", 4) == [Watermark(0, 17)]
    assert it.remove("b", 5) == [IDLE]


def test_the_cap_holds_for_every_channel_looked_at_in_the_step():
    it = mapper(RealTimeLag(0), timeout_ms=None, key=5)
    it.add(["a", "b"], 0)
    assert it.event("a", 30, 42) == [Watermark(5, 30)]
    assert it.watermark_ms("b") == 30
    assert it.tick(43) == [Watermark(5, 43)]


def test_the_flush_of_an_idle_source_goes_through_the_throttle():
    it = mapper(FixedLag(0), ThrottleByFrame(10))
    it.add(["a", "b"], 0)
    it.event("a", 29, 1)
    assert it.tick(11) == [Watermark(0, 20), IDLE]


def test_an_event_without_an_event_time_and_an_unknown_channel_are_refused():
    it = mapper()
    it.add(["a"], 0)
    with pytest.raises(InputError, match="channel a has no event time"):
        it.event("a", None, 0)
    for use in (lambda: it.event("x", 1, 0), lambda: it.remove("x", 0), lambda: it.watermark_ms("x")):
        with pytest.raises(OutOfTurnError, match="channel x is not known"):
            use()


steps = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from("abc"), st.none() | st.integers(-10, 10), st.booleans()), max_size=30
)


@given(policies, throttles, steps, st.none() | st.integers(1, 9))
@settings(max_examples=times(50))
def test_a_restored_mapper_goes_on_as_if_nothing_happened(policy, throttle, run, timeout_ms):
    def play(restore):
        it, now_ms, answers, known = mapper(policy, throttle, timeout_ms), 0, [], set()
        for advance_ms, name, offset_ms, structural in run:
            now_ms += advance_ms
            if restore:
                it = Mapper(MapperConfig(policy, throttle, Idleness(timeout_ms)), it.snapshot())
            if name not in known:
                known.add(name)
                answers.append(it.add([name], now_ms))
            elif offset_ms is None and structural:
                known.discard(name)
                answers.append(it.remove(name, now_ms))
            elif offset_ms is None:
                answers.append(it.tick(now_ms))
            else:
                answers.append(it.event(name, now_ms + offset_ms, now_ms))
        return answers, it.snapshot()

    assert play(restore=True) == play(restore=False)
