"""The vectorised twin gives what the scalar axis gives, for any cut of the rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.models.axis import Axis, is_late
from keyedwm.arrow.axis import AxisRun, late
from keyedwm.core.axis import AxisConfig, AxisState
from keyedwm.core.policy import FixedLag, LagAndDelay, LagAndLull, NoWatermarks, RealTimeLag, TimestampAndWallClockLag
from keyedwm.core.throttle import NoThrottle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep
from keyedwm.core.watermark import MAX_MS, MIN_MS
from tests import seeds

policies = st.sampled_from(
    [
        FixedLag(0),
        FixedLag(3),
        LagAndDelay(5, 4),
        LagAndDelay(2, 0),
        LagAndDelay(0, 7),
        LagAndLull(3, 4),
        LagAndLull(0, 0),
        TimestampAndWallClockLag(3, 2),
        RealTimeLag(1),
        NoWatermarks(),
    ]
)
throttles = st.sampled_from(
    [NoThrottle(), ThrottleByBatch(), ThrottleByFrame(4, 1), ThrottleByFrame(0), ThrottleByStep(3), ThrottleByStep(9)]
)
times = st.integers(-15, 40) | st.sampled_from([MIN_MS, MAX_MS - 1, MAX_MS]) | st.integers(MIN_MS, MIN_MS + 12)
rows = st.lists(st.tuples(times, st.booleans()), max_size=14)
batches = st.lists(st.tuples(st.integers(0, 9), rows), max_size=5)


def scalar(config, run):
    state, now_ms, answers = AxisState(), 0, []
    for advance_ms, batch in run:
        now_ms += advance_ms
        axis = Axis(config, state)
        watermarks = [(at, axis.observe(time_ms, now_ms)) for at, (time_ms, known) in enumerate(batch) if known]
        answers.append(([each for each in watermarks if each[1] is not None], axis.end(now_ms)))
        state = axis.state()
    return answers, state


def vectorised(config, run, cuts=()):
    state, now_ms, answers = AxisState(), 0, []
    for advance_ms, batch in run:
        now_ms += advance_ms
        axis = AxisRun(config, AxisState.from_list(state.as_list()), now_ms)
        emitted = []
        edges = [0, *sorted(split_at for split_at in cuts if split_at < len(batch)), len(batch)]
        for start, end in pairwise(edges):
            part = batch[start:end]
            event_ms = np.array([time_ms for time_ms, _ in part], np.int64)
            known = np.array([known for _, known in part], np.bool_)
            positions, watermarks = axis.rows(event_ms, None if known.all() else known)
            assert positions.dtype == watermarks.dtype == np.int64
            emitted += zip((positions + start).tolist(), watermarks.tolist(), strict=True)
        answers.append((emitted, axis.end()))
        state = axis.state()
    return answers, state


@given(policies, throttles, batches)
@settings(max_examples=seeds.times(100))
def test_vectorised_equals_scalar(policy, throttle, run):
    config = AxisConfig(0, policy, throttle)
    assert vectorised(config, run) == scalar(config, run)


@pytest.mark.parametrize("throttle", [NoThrottle(), ThrottleByFrame(4, 1), ThrottleByStep(3), ThrottleByBatch()])
def test_vectorised_equals_scalar_over_a_long_batch(throttle):
    rng = np.random.default_rng(11)
    run = [(5, [(int(one), True) for one in np.arange(2_000) // 2 + rng.integers(-6, 6, 2_000)])] * 2
    for policy in (FixedLag(2), LagAndDelay(9, 3), RealTimeLag(1)):
        config = AxisConfig(0, policy, throttle)
        assert vectorised(config, run) == scalar(config, run)


@given(policies, throttles, batches, st.sets(st.integers(0, 14)))
@settings(max_examples=seeds.times(60))
def test_cutting_a_batch_into_runs_of_rows_any_way_gives_the_same_watermarks(policy, throttle, run, cuts):
    config = AxisConfig(0, policy, throttle)
    assert vectorised(config, run, cuts) == vectorised(config, run)


@given(rows, st.none() | times)
def test_late_rows_are_those_below_the_watermark_that_have_an_event_time(batch, watermark_ms):
    event_ms = np.array([time_ms for time_ms, _ in batch], np.int64)
    known = np.array([known for _, known in batch], np.bool_)
    expected = [is_late(time_ms, watermark_ms) for time_ms, _ in batch]
    assert late(event_ms, None, watermark_ms).tolist() == expected
    assert late(event_ms, known, watermark_ms).tolist() == [
        one and has for one, (_, has) in zip(expected, batch, strict=True)
    ]


def test_a_throttle_without_a_vectorised_form_is_named():
    with pytest.raises(TypeError, match="object"):
        AxisRun(AxisConfig(0, FixedLag(0), type("Odd", (), {"build": lambda *_: object()})()), AxisState(), 0)
