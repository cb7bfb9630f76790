"""Rules 1 to 6: many channels' watermarks become one per key."""

from __future__ import annotations

import pytest

from conformance.models.single_steps import SingleSteps
from keyedwm.core.coalescer import (
    ChannelAdded,
    ChannelFinished,
    ChannelRemoved,
    ChannelWentIdle,
    ChannelWoken,
    CoalescerState,
    CommonState,
    WatermarkAdvanced,
)
from keyedwm.core.errors import InputError, OutOfTurnError, RegressionError
from keyedwm.core.watermark import MAX_MS, MIN_MS, Guarantee, IdleMarker, Status, Watermark

IDLE = IdleMarker()


def of(*channels, **options):
    coalescer = SingleSteps(**options)
    coalescer.step([ChannelAdded(channel) for channel in channels], 0)
    return coalescer


def wm(time_ms, key=0):
    return Watermark(key, time_ms)


def test_the_output_is_the_minimum_of_all_channels():
    it = of("a", "b")
    assert it.watermark("a", 0, 10) == []
    assert it.watermark("b", 0, 7) == [wm(7)]
    assert it.watermark("b", 0, 12) == [wm(10)]
    assert it.emitted_ms() == 10
    assert it.emitted_ms(1) is None


def test_a_channel_without_a_watermark_blocks():
    it = of("a", "b")
    assert it.watermark("a", 0, 10) == []
    assert it.emitted_ms() is None


@pytest.mark.parametrize("again", [10, 9])
def test_a_regression_names_channel_key_and_both_values_and_changes_nothing(again):
    it = of("flights-0", "flights-1")
    it.watermark("flights-0", 3, 10)
    it.idle("flights-0")
    before = it.snapshot()
    with pytest.raises(RegressionError, match=rf"channel flights-0, key 3 went from 10 ms to {again} ms"):
        it.watermark("flights-0", 3, again)
    assert it.snapshot() == before


def test_at_least_once_swallows_a_regression_counts_it_and_still_wakes_the_channel():
    it = of("a", "b", guarantee=Guarantee.AT_LEAST_ONCE)
    it.watermark("a", 0, 10)
    assert it.idle("b") == [wm(10)]
    assert it.watermark("b", 0, 5) == []
    assert it.idle("b") == []
    assert it.watermark("b", 0, 5) == []
    assert it.ignored == 1
    assert it.status("b") is Status.ACTIVE
    assert it.watermark("a", 0, 20) == []


def test_the_first_watermark_of_a_channel_may_be_any():
    it = of("a")
    assert it.watermark("a", 0, MIN_MS) == [wm(MIN_MS)]
    assert it.watermark("a", 0, MAX_MS) == [wm(MAX_MS)]


def test_a_time_beyond_64_bits_and_a_key_beyond_a_byte_are_refused():
    it = of("a")
    for key, time_ms in [(0, MAX_MS + 1), (0, MIN_MS - 1), (128, 0), (-129, 0)]:
        with pytest.raises(InputError):
            it.watermark("a", key, time_ms)
    assert it.snapshot() == of("a").snapshot()


def test_keys_are_independent():
    it = of("a", "b")
    it.watermark("a", 1, 10)
    it.watermark("a", 2, 100)
    assert it.watermark("b", 2, 90) == [wm(90, 2)]
    assert it.watermark("b", 1, 20) == [wm(10, 1)]


def test_an_idle_channel_holds_nobody_for_any_key():
    it = of("a", "b")
    it.watermark("a", 2, 20)
    it.watermark("a", 1, 10)
    assert it.idle("b") == [wm(10, 1), wm(20, 2)]


def test_a_watermark_of_one_key_wakes_the_channel_for_every_key():
    it = of("a", "b")
    it.watermark("a", 1, 10)
    it.watermark("a", 2, 20)
    it.idle("b")
    assert it.watermark("b", 1, 15) == []
    assert it.watermark("a", 2, 50) == []
    assert it.watermark("b", 2, 30) == [wm(30, 2)]


def test_an_event_wakes_the_channel_and_a_woken_laggard_holds_the_output_where_it_is():
    it = of("a", "b")
    it.watermark("a", 0, 10)
    it.watermark("b", 0, 3)
    assert it.idle("b") == [wm(10)]
    assert it.event("b") == []
    assert it.watermark("a", 0, 20) == []
    assert it.watermark("b", 0, 12) == [wm(12)]


def test_done_counts_as_infinity_and_everything_but_an_event_is_refused_on_it():
    it = of("a", "b")
    it.watermark("a", 0, 10)
    assert it.done("b") == [wm(10)]
    assert it.event("b") == []
    for refused in (lambda: it.watermark("b", 0, 99), lambda: it.idle("b"), lambda: it.done("b")):
        with pytest.raises(OutOfTurnError, match="channel b is done"):
            refused()
    assert it.status("b") is Status.DONE


def test_all_idle_flushes_the_highest_watermark_once_then_one_marker():
    it = of("a", "b")
    it.watermark("a", 0, 10)
    it.watermark("b", 0, 20)
    assert it.idle("b") == []
    assert it.idle("a") == [wm(20), IDLE]
    assert it.idle("a") == []
    assert it.check(5) == []


def test_an_event_on_a_live_channel_ends_the_idle_spell_one_on_a_done_channel_does_not():
    it = of("a", "b")
    it.done("a")
    assert it.idle("b") == [IDLE]
    it.event("a")
    assert it.idle("b") == []
    it.event("b")
    assert it.idle("b") == [IDLE]


def test_an_event_on_an_active_channel_changes_nothing():
    it = of("a", "b")
    before = it.snapshot()
    assert it.event("a") == []
    assert it.snapshot() == before


def test_all_done_flushes_without_a_marker():
    it = of("a", "b")
    it.watermark("a", 0, 10)
    assert it.done("b") == [wm(10)]
    assert it.done("a") == []
    it = of("a", "b")
    it.watermark("a", 0, 10)
    assert it.done("a") == []
    assert it.done("b") == [wm(10)]


def test_the_last_active_channel_finishing_beside_an_idle_one_gives_the_marker():
    it = of("a", "b")
    it.idle("a")
    assert it.done("b") == [IDLE]


def test_without_channels_the_output_is_idle_at_once_and_says_so_once():
    it = SingleSteps()
    assert it.check(0) == [IDLE]
    assert it.check(1) == []
    assert it.add("a") == []
    assert it.remove("a") == [IDLE]


def test_a_new_channel_blocks_and_never_moves_the_output_back():
    it = of("a")
    it.watermark("a", 0, 10)
    assert it.add("b") == []
    assert it.watermark("a", 0, 20) == []
    assert it.watermark("b", 0, 5) == []
    assert it.emitted_ms() == 10
    assert it.watermark("b", 0, 15) == [wm(15)]


def test_a_new_channel_ends_the_idle_spell():
    it = of("a")
    assert it.idle("a") == [IDLE]
    it.add("b")
    assert it.idle("b") == [IDLE]


def test_a_removed_channel_stops_counting_at_once_and_its_top_still_counts_in_a_flush():
    it = of("a", "b", "c")
    it.watermark("a", 0, 10)
    it.watermark("b", 0, 30)
    it.watermark("c", 0, 20)
    assert it.remove("a") == [wm(20)]
    assert it.remove("b") == []
    assert it.idle("c") == [wm(30), IDLE]


def test_a_channel_that_comes_back_starts_anew():
    it = of("a", "b")
    it.watermark("a", 0, 10)
    it.idle("a")
    it.remove("a")
    it.add("a")
    assert it.status("a") is Status.ACTIVE
    assert it.watermark("a", 0, 5) == []


def test_channels_are_added_once_and_known_before_they_are_used():
    it = of("a")
    with pytest.raises(OutOfTurnError, match="channel a was added twice"):
        it.add("a")
    for use in (it.remove, it.event, it.idle, it.done, it.status):
        with pytest.raises(OutOfTurnError, match="channel x is not known"):
            use("x")
    with pytest.raises(OutOfTurnError, match="channel x is not known"):
        it.watermark("x", 0, 1)


def test_retention_follows_the_top_watermark_of_retention_ago_exact_and_inclusive():
    it = of("slow", "fast", retention_ms=100)
    it.watermark("fast", 0, 10, now_ms=1000)
    it.watermark("fast", 0, 20, now_ms=1050)
    assert it.check(1099) == []
    assert it.check(1100) == [wm(10)]
    assert it.check(1149) == []
    assert it.check(1150) == [wm(20)]
    assert it.watermark("slow", 0, 15, now_ms=1150) == []


def test_retention_is_off_by_default_and_must_not_be_negative():
    it = of("slow", "fast")
    it.watermark("fast", 0, 10, now_ms=0)
    assert it.check(10**12) == []
    with pytest.raises(InputError, match="retention is -1 ms"):
        SingleSteps(retention_ms=-1)


def test_without_retention_nothing_is_remembered_of_the_clock():
    it = of("a", "b")
    it.watermark("a", 0, 10, now_ms=5)
    assert it.snapshot().common.history == {}


def test_many_changes_are_evaluated_once_at_the_end():
    it = of("a", "b")
    output = it.step(
        [
            WatermarkAdvanced("a", 0, 5),
            WatermarkAdvanced("b", 0, 4),
            WatermarkAdvanced("b", 0, 9),
            WatermarkAdvanced("a", 0, 7),
        ],
        0,
    )
    assert output == [wm(7)]
    assert it.step([ChannelWentIdle("a"), ChannelWentIdle("b"), ChannelWoken("a")], 0) == []
    assert it.step([ChannelWentIdle("a"), ChannelWoken("a"), ChannelWentIdle("a")], 0) == [wm(9), IDLE]
    assert it.step([ChannelRemoved("a"), ChannelFinished("b")], 0) == []


def test_a_coalescer_can_be_built_from_channel_entries_kept_elsewhere():
    channels = {"a": (Status.ACTIVE, {0: 10}), "b": (Status.IDLE, {}), "c": (Status.DONE, {0: 3})}
    state = CoalescerState(channels, CommonState(emitted={0: 8}, top={0: 12}))
    it = SingleSteps.restore(state)
    assert it.check(0) == [wm(10)]
    assert it.idle("a") == [wm(12), IDLE]
    assert it.snapshot().channels == {**channels, "a": (Status.IDLE, {0: 10})}


def test_a_key_without_a_top_is_learnt_anew():
    it = SingleSteps.restore(CoalescerState({"a": (Status.ACTIVE, {0: 10})}))
    assert it.check(0) == []
    assert it.watermark("a", 0, 11) == [wm(11)]


@pytest.mark.parametrize("guarantee", Guarantee)
def test_after_a_restore_what_comes_again_is_refused_or_swallowed_and_counted(guarantee):
    before = of("a", guarantee=guarantee)
    before.watermark("a", 0, 10)
    it = SingleSteps.restore(before.snapshot(), guarantee=guarantee)
    if guarantee is Guarantee.EXACTLY_ONCE:
        with pytest.raises(RegressionError, match="channel a, key 0 went from 10 ms to 9 ms"):
            it.watermark("a", 0, 9)
    else:
        assert it.watermark("a", 0, 9) == []
        assert it.ignored == 1
    assert it.watermark("a", 0, 11) == [wm(11)]


def test_a_step_of_many_advances_checks_each_of_them():
    it = of("a", "b")
    it.step([WatermarkAdvanced("a", 0, 5), WatermarkAdvanced("b", 0, 6)], 0)
    for wrong in (WatermarkAdvanced("b", 0, 7), WatermarkAdvanced("b", 0, MAX_MS + 1), WatermarkAdvanced("x", 0, 9)):
        with pytest.raises((RegressionError, InputError, OutOfTurnError)):
            it.step(
                [WatermarkAdvanced("a", 0, it.snapshot().channels["a"][1][0] + 1), WatermarkAdvanced("b", 0, 7), wrong],
                0,
            )
        it.step([WatermarkAdvanced("b", 0, it.snapshot().channels["b"][1][0] + 1)], 0)
    it.idle("b")
    assert it.step([WatermarkAdvanced("a", 0, 100), WatermarkAdvanced("b", 0, 50)], 0) == [wm(50)]
    assert it.idle("b") == [wm(100)]
    assert it.idle("a") == [IDLE]


def test_the_common_state_goes_through_json_and_back():
    it = of("a", "b", retention_ms=10, guarantee=Guarantee.AT_LEAST_ONCE)
    it.watermark("a", 5, 7, now_ms=1)
    it.watermark("a", -5, 9, now_ms=2)
    it.watermark("a", 5, 6, now_ms=2)
    it.idle("b", now_ms=3)
    it.idle("a", now_ms=3)
    common = it.snapshot().common
    assert common.idle_spell
    assert common.ignored == 1
    assert CommonState.from_json(common.as_json()) == common
    assert common.as_json()["top"] == [[-5, 9], [5, 7]]
