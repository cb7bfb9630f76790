"""Planning on paper: no Kafka, no Spark, the clock is a number."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyedwm.core.watermark import Status
from pyspark_wm_source.driver.plan import shared_out
from tests.seeds import times
from tests.source.plans import Simulation, promise, tp


def test_the_slowest_active_channel_holds_the_watermark():
    sim = Simulation({0: [100, 200], 1: [10, 20]}, lag_ms=5)
    sim.drain()
    assert sim.watermark_ms == 15


def test_a_channel_without_a_watermark_blocks_until_it_is_idle():
    sim = Simulation({0: [100], 1: []})
    sim.drain()
    assert sim.watermark_ms is None
    sim.now_ms = 999
    assert sim.step() is None
    sim.now_ms = 1_000
    assert sim.step()
    assert sim.watermark_ms == 100


def test_the_watermark_follows_one_control_batch_after_the_last_record():
    sim = Simulation({0: [100, 200]})
    assert sim.step()
    assert sim.watermark_ms is None
    assert sim.step()
    assert (sim.watermark_ms, list(sim.offset.channels_to_read())) == (200, [])
    assert sim.step() is None


def test_a_silent_caught_up_channel_stops_holding_exactly_at_the_timeout():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    assert sim.watermark_ms == 10
    sim.now_ms = 900
    sim.logs[0].append(300)
    sim.drain()
    assert (sim.watermark_ms, sim.status(1)) == (10, Status.ACTIVE)
    sim.now_ms = 999
    assert sim.step() is None
    sim.now_ms = 1_000
    sim.drain()
    assert (sim.watermark_ms, sim.status(1)) == (300, Status.IDLE)


def test_silence_counts_from_the_answer_and_is_judged_by_the_question():
    sim = Simulation({0: [100], 1: [10]})
    sim.step(took_ms=500)  # the record may have come as late as 500
    sim.drain()
    sim.now_ms = 1_499
    sim.step(took_ms=500)  # asked at 1,499: a record may have come right before
    assert sim.status(1) is Status.ACTIVE
    sim.now_ms = 1_500
    assert sim.step(took_ms=500)
    assert sim.status(1) is Status.IDLE


def test_a_starved_backlog_is_never_silence():
    # Partition 1 gets one offset a batch, a day apart, while partition 0 has all the rest.
    sim = Simulation({0: list(range(1_000, 2_000)), 1: [1, 2, 3, 4, 5]}, max_offsets=100, idle_timeout_ms=1)
    for _ in range(5):
        sim.now_ms += 86_400_000
        sim.logs[0] += [sim.now_ms] * 100
        assert sim.step()
        assert sim.status(1) is Status.ACTIVE
        assert (sim.watermark_ms or 0) <= 5
    assert sim.offset.channels[tp(1)].next_offset == 5


def test_a_stopped_query_does_not_make_its_backlog_silent():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    sim.logs[1].append(20)
    sim.restart()
    sim.now_ms = 10**9
    assert sim.step()
    assert (sim.status(0), sim.status(1)) == (Status.IDLE, Status.ACTIVE)


def test_after_downtime_a_caught_up_channel_is_idle_at_once():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    sim.restart()
    sim.now_ms = 10**9
    assert sim.step()
    assert (sim.status(0), sim.status(1), sim.watermark_ms) == (Status.IDLE, Status.IDLE, 100)


@pytest.mark.parametrize("awaited", [False, True])
def test_silence_counts_anew_by_a_clock_that_is_an_hour_behind_the_one_before(awaited):
    sim = Simulation({0: [100], 1: [10]})
    sim.now_ms = 3_600_000
    sim.drain()
    sim.restart()  # a driver on another host, or one whose clock was set
    sim.now_ms = 5_000
    sim.logs[0].append(200)
    if awaited:
        sim.logs[1].append(20)
    sim.drain()
    sim.now_ms = 5_999
    sim.logs[0].append(300)
    sim.drain()
    assert (sim.status(1), sim.watermark_ms) == (Status.ACTIVE, 20 if awaited else 10)
    sim.now_ms = 6_000
    sim.logs[0].append(400)
    sim.drain()
    assert (sim.status(1), sim.watermark_ms) == (Status.IDLE, 400)


def test_idleness_switched_off_holds_for_ever():
    sim = Simulation({0: [100], 1: []}, idle_timeout_ms=None)
    sim.drain()
    sim.now_ms = 10**12
    assert sim.step() is None
    assert sim.watermark_ms is None


def test_a_channel_that_wakes_behind_holds_the_watermark_where_it_is():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    sim.now_ms = 500
    sim.logs[0].append(300)
    sim.drain()
    sim.now_ms = 1_200
    sim.drain()
    assert (sim.watermark_ms, sim.status(1), sim.status(0)) == (300, Status.IDLE, Status.ACTIVE)
    sim.logs[1].append(50)
    sim.logs[0].append(400)
    sim.drain()
    assert (sim.watermark_ms, sim.status(1)) == (300, Status.ACTIVE)
    sim.logs[1].append(350)
    sim.drain()
    assert sim.watermark_ms == 350


def test_all_channels_idle_flush_the_highest_watermark_once():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    sim.now_ms = 2_000
    assert sim.step()
    assert (sim.watermark_ms, sim.offset.coalesced.idle_spell) == (100, True)
    sim.now_ms = 9_000
    assert sim.step() is None


def test_a_new_channel_blocks_but_never_moves_the_watermark_back():
    sim = Simulation({0: [100]})
    sim.drain()
    sim.logs[1] = [5]
    sim.logs[0].append(200)
    sim.drain()
    assert sim.watermark_ms == 100
    assert sim.offset.channels[tp(1)].next_offset == 1


def test_a_removed_channel_stops_counting():
    sim = Simulation({0: [100], 1: [10]})
    sim.drain()
    assert sim.step(ends={0: 1})
    assert (sim.watermark_ms, set(sim.offset.channels)) == (100, {tp(0)})


def test_the_clock_may_go_back_and_planning_does_not():
    sim = Simulation({0: [100]}, now_ms=5_000)
    sim.drain()
    sim.now_ms = 10
    sim.logs[0].append(200)
    assert sim.step()
    assert sim.offset.now_ms == 5_000


def test_batches_are_numbered_by_one_control_batches_included():
    sim = Simulation({0: [1], 1: [2]})
    numbers = []
    for now_ms in range(0, 5_000, 500):
        sim.now_ms = now_ms
        if now_ms == 3_000:
            sim.logs[0].append(9)
        if sim.step():
            numbers.append(sim.offset.batch)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 3


def test_the_first_batch_runs_even_if_there_is_nothing_to_read():
    sim = Simulation({0: []})
    assert sim.step()
    assert sim.offset.begins == {}
    assert sim.step() is None


def test_a_topic_made_anew_goes_on_from_its_end():
    sim = Simulation({0: [100, 200, 300]})
    sim.drain()
    sim.logs[0] = [7]
    sim.drain()
    assert sim.offset.channels[tp(0)].next_offset == 1
    sim.logs[0].append(400)
    sim.drain()
    assert (sim.offset.channels[tp(0)].next_offset, sim.watermark_ms) == (2, 400)


@pytest.mark.parametrize(
    ("backlog", "limit", "shares"),
    [
        ((1, 11, 101), 10, (1, 1, 8)),  # Spark's own case
        ((0, 10, 100), 10, (0, 1, 9)),
        ((5, 5), None, (5, 5)),
        ((5, 5), 10, (5, 5)),
        ((3, 3, 3), 1, (1, 1, 1)),  # a share below 1 is 1, so the total may exceed the limit
        ((10**18, 10**18), 2**31 - 1, (2**30 - 1, 2**30 - 1)),
        ((), 5, ()),
    ],
)
def test_a_limit_is_shared_out_as_spark_does(backlog, limit, shares):
    given_out = shared_out({tp(p): size for p, size in enumerate(backlog)}, limit)
    assert tuple(given_out.values()) == shares


@given(st.lists(st.integers(0, 10**6), max_size=20), st.integers(1, 10**6))
def test_everyone_with_a_backlog_gets_a_share(backlog, limit):
    shares = shared_out({tp(p): size for p, size in enumerate(backlog)}, limit)
    for size, share in zip(backlog, shares.values(), strict=True):
        assert (share > 0) == (size > 0)
        assert share <= size
    assert sum(shares.values()) <= max(limit, sum(size > 0 for size in backlog)) + len(backlog)


TIMES = st.one_of(st.none(), st.integers(0, 5_000))
STEPS = st.lists(
    st.tuples(st.integers(0, 1_500), st.lists(st.tuples(st.integers(0, 2), TIMES), max_size=6)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=times(60))
@given(STEPS, st.integers(0, 300), st.one_of(st.none(), st.integers(1, 4)))
def test_a_restart_after_every_step_changes_nothing(steps, lag_ms, max_offsets):
    whole = Simulation({p: [] for p in range(3)}, lag_ms=lag_ms, max_offsets=max_offsets)
    restarted = Simulation({p: [] for p in range(3)}, lag_ms=lag_ms, max_offsets=max_offsets)
    for passed_ms, arrived in steps:
        for sim in (whole, restarted):
            sim.now_ms += passed_ms
            for partition, event_ms in arrived:
                sim.logs[partition].append(event_ms)
            sim.step()
        restarted.restart()
        assert json.dumps(restarted.offset.to_json()) == json.dumps(whole.offset.to_json())


@settings(max_examples=times(60))
@given(STEPS, st.integers(0, 300), st.one_of(st.none(), st.integers(1, 4)))
def test_the_watermark_never_goes_back_and_never_passes_an_active_channel(steps, lag_ms, max_offsets):
    sim = Simulation({p: [] for p in range(3)}, lag_ms=lag_ms, max_offsets=max_offsets)
    before = None
    for passed_ms, arrived in steps:
        sim.now_ms += passed_ms
        for partition, event_ms in arrived:
            sim.logs[partition].append(event_ms)
        if not sim.step():
            continue
        after = sim.watermark_ms
        assert before is None or (after is not None and after >= before)
        if after is not None and after != before:
            _no_active_channel_was_passed(sim, after)
        before = after


def _no_active_channel_was_passed(sim: Simulation, watermark_ms: int) -> None:
    for place, channel in sim.offset.channels.items():
        unread = channel.start < len(sim.logs[place.partition])
        assert not (unread and channel.status is Status.IDLE)
        if channel.status is Status.ACTIVE:
            own = promise(sim.logs[place.partition][: channel.start], sim.lag_ms)
            assert own is not None
            assert watermark_ms <= own
