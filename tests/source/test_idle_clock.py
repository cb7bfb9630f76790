"""Which policy closes the last window, and when, for every idle timeout; the clock is a number."""

from __future__ import annotations

import pytest

from keyedwm.core.control_row import ControlRow, channel_row
from keyedwm.core.policy import (
    FixedLag,
    LagAndDelay,
    LagAndLull,
    NoWatermarks,
    Policy,
    RealTimeLag,
    TimestampAndWallClockLag,
)
from keyedwm.core.rows import ControlKind
from keyedwm.core.throttle import Throttle, ThrottleByFrame
from keyedwm.core.watermark import Status
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from pyspark_wm_source.driver.plan import CLOCK_BATCH_MS
from pyspark_wm_source.driver.splits import ControlSettings, splits
from pyspark_wm_source.values.offsets import QueryOffset
from tests.source.plans import BY_BATCH, Simulation, tp

EVENT_MS, WINDOW_END_MS, POLL_MS = 1_000, 20_000, 500
TIMEOUTS = [None, 1, 5_000, 40_000]
# Policy → when the window [0, 20 s) of the event at 1 s, read at 1 s, can close: None for never.
CLOSES = [
    (FixedLag(0), None),
    (NoWatermarks(), None),
    (LagAndDelay(lag_ms=5_000, delay_ms=3_000), None),
    (LagAndLull(lag_ms=0, lull_ms=1_000), 21_000),
    (LagAndLull(lag_ms=2_000, lull_ms=9_000), 31_000),
    (TimestampAndWallClockLag(lag_ms=0, wall_clock_lag_ms=0), 20_000),
    (TimestampAndWallClockLag(lag_ms=9_000, wall_clock_lag_ms=4_000), 24_000),
    (RealTimeLag(lag_ms=3_000), 23_000),
]


class Follower:
    """A query over planned batches: an operator's inbox takes the control rows, restored before every batch."""

    def __init__(self, sim: Simulation) -> None:
        self.sim, self.batches = sim, 0
        self.inbox = ChannelTracker("aggregate hours", key=0)

    def step(self) -> bool:
        before = self.sim.offset
        if self.sim.step() is None:
            return False
        self.batches += 1
        self.sim.restart()
        self.inbox = ChannelTracker.restore("aggregate hours", 0, self.inbox.state())
        self.inbox.apply(self._rows(before, self.sim.offset))
        return True

    def watch(self, until_ms: int) -> None:
        while self.sim.now_ms < until_ms:
            self.sim.now_ms += POLL_MS
            self.step()

    def _rows(self, before: QueryOffset, end: QueryOffset) -> list[ControlRow]:
        settings = ControlSettings(axes={"": 0}, control=True, barriers=True)
        planned = splits(before, end, settings)
        rows = [row for split in planned for row in split.control]
        after = self.sim.after()
        for task in (task for split in planned for task in split.ranges):
            at, emitted_ms = after[task.channel].next_offset, after[task.channel].axes[0].emitted_ms
            if task.woken:
                rows.append(channel_row(ControlKind.ACTIVE, task.channel, task.start, end.source))
            if emitted_ms is not None and (0 not in task.axes or task.axes[0].emitted_ms != emitted_ms):
                watermark_fields = {"key": 0, "watermark_ms": emitted_ms}
                rows.append(channel_row(ControlKind.WATERMARK, task.channel, at, end.source, **watermark_fields))
            barrier_fields = {"snapshot": end.batch, "channels": len(end.channels)}
            rows.append(channel_row(ControlKind.BARRIER, task.channel, at, end.source, **barrier_fields))
        return rows


def following(
    policy: Policy,
    timeout_ms: int | None,
    logs: dict[int, list[int | None]],
    throttle: Throttle = BY_BATCH,
) -> Follower:
    sim = Simulation(logs, idle_timeout_ms=timeout_ms, now_ms=EVENT_MS, policy=policy, throttle=throttle)
    follower = Follower(sim)
    while follower.step():
        pass
    return follower


@pytest.mark.parametrize("timeout_ms", TIMEOUTS)
@pytest.mark.parametrize(("policy", "closes_ms"), CLOSES)
def test_the_clock_closes_the_last_window_at_the_same_time_for_every_idle_timeout(policy, closes_ms, timeout_ms):
    follower = following(policy, timeout_ms, {0: [EVENT_MS]})
    closed_ms = None
    while follower.sim.now_ms < 45_000 and closed_ms is None:
        follower.watch(follower.sim.now_ms + POLL_MS)
        assert follower.inbox.watermark_ms == follower.sim.watermark_ms
        if (follower.inbox.watermark_ms or 0) >= WINDOW_END_MS:
            closed_ms = follower.sim.now_ms
    if closes_ms is None:
        assert closed_ms is None
    else:
        assert closed_ms is not None
        assert closes_ms <= closed_ms <= closes_ms + CLOCK_BATCH_MS
    is_idle = timeout_ms is not None and follower.sim.now_ms - EVENT_MS >= timeout_ms
    assert (follower.sim.status(0) is Status.IDLE, follower.inbox.idle) == (is_idle, is_idle)


@pytest.mark.parametrize("timeout_ms", TIMEOUTS)
def test_a_delay_above_the_idle_timeout_has_its_effect(timeout_ms):
    follower = following(LagAndDelay(lag_ms=600, delay_ms=70_000), timeout_ms, {0: [EVENT_MS]})
    follower.watch(EVENT_MS + 70_000 - POLL_MS)
    assert follower.inbox.watermark_ms == EVENT_MS - 600
    follower.watch(EVENT_MS + 70_000)
    assert follower.inbox.watermark_ms == EVENT_MS


@pytest.mark.parametrize("timeout_ms", TIMEOUTS)
def test_an_empty_topic_under_a_real_time_lag_follows_the_clock(timeout_ms):
    follower = following(RealTimeLag(lag_ms=3_000), timeout_ms, {0: [], 1: []})
    follower.watch(50_000)
    assert 47_000 - CLOCK_BATCH_MS <= follower.inbox.watermark_ms <= 47_000


def test_an_idle_channel_goes_on_with_the_clock_and_holds_nobody():
    follower = following(LagAndLull(lag_ms=0, lull_ms=1_000), 2_000, {0: [EVENT_MS], 1: [900_000]})
    follower.watch(5_000)  # both idle: the flush is that of the highest, which grows
    grown_ms = follower.inbox.watermark_ms
    assert grown_ms > 900_000
    follower.sim.logs[0].append(2_000)
    follower.step()
    follower.step()
    assert (follower.sim.status(0), follower.inbox.idle) == (Status.ACTIVE, False)
    assert (
        follower.inbox.watermark_ms == follower.sim.watermark_ms == grown_ms
    )  # who wakes up behind holds it where it is
    follower.watch(9_000)
    assert follower.inbox.watermark_ms == follower.sim.watermark_ms > grown_ms


@pytest.mark.parametrize("lull_ms", [0, 1_000, 70_000])
def test_a_partition_without_records_holds_a_lull_no_longer_than_the_lull(lull_ms):
    follower = following(LagAndLull(lag_ms=0, lull_ms=lull_ms), None, {0: [EVENT_MS], 1: []})
    follower.watch(EVENT_MS + lull_ms - POLL_MS)
    assert lull_ms == 0 or follower.inbox.watermark_ms is None
    follower.watch(EVENT_MS + lull_ms + 2 * CLOCK_BATCH_MS)
    assert follower.inbox.watermark_ms >= EVENT_MS
    assert (follower.sim.status(0), follower.sim.status(1)) == (Status.ACTIVE, Status.IDLE)
    follower.sim.logs[1].append(1)
    follower.watch(follower.sim.now_ms + CLOCK_BATCH_MS)
    assert follower.sim.status(1) is Status.ACTIVE


@pytest.mark.parametrize("policy", [LagAndDelay(0, 10), TimestampAndWallClockLag(0, 0), FixedLag(0)])
def test_without_an_idle_timeout_no_other_policy_leaves_a_partition_out(policy):
    follower = following(policy, None, {0: [EVENT_MS], 1: []})
    follower.watch(100_000)
    assert follower.sim.status(1) is Status.ACTIVE


@pytest.mark.parametrize(("throttle", "most"), [(BY_BATCH, 300), (ThrottleByFrame(size_ms=60_000, offset_ms=0), 5)])
def test_an_idle_query_has_a_batch_a_second_at_most_or_one_for_each_frame(throttle, most):
    follower = following(RealTimeLag(lag_ms=0), 5_000, {p: [] for p in range(3)}, throttle)
    begin_ms, follower.batches = follower.sim.now_ms, 0
    follower.watch(begin_ms + 300_000)
    assert most / 2 < follower.batches <= most + 1  # one more: the channels went idle
    assert follower.inbox.watermark_ms >= 300_000 - 60_000
    assert follower.sim.offset.channels[tp(0)].status is Status.IDLE


@pytest.mark.parametrize("policy", [FixedLag(0), LagAndDelay(0, 2_000)])
def test_a_policy_that_has_nothing_more_to_say_makes_no_batches(policy):
    follower = following(policy, 5_000, {0: [EVENT_MS]})
    follower.watch(10_000)
    follower.batches = 0
    follower.watch(100_000)
    assert follower.batches == 0
