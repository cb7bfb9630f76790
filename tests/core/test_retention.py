"""What was known some time ago: exact while there are few points, and never early however many there are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.encoding import KEY_BYTES, METADATA_BYTES, CommittedState, encode_committed
from keyedwm.core.policy import LagAndDelay
from keyedwm.core.watermark import MOST_POINTS, History

DAY_S = 86_400
START_MS = 1_731_000_000_000
steps = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), min_size=1, max_size=400)


def exact(points: list[tuple[int, int]], at_ms: int) -> int | None:
    return max((value for noted_ms, value in points if noted_ms <= at_ms), default=None)


@given(steps, st.integers(0, 200_000))
def test_a_history_never_knows_a_value_early_and_few_points_exactly(moves, behind_ms):
    history, points, now_ms, value = History(), [], 0, 0
    for later, higher in moves:
        now_ms, value = now_ms + later, value + higher
        points.append((now_ms, value))
        history.note(now_ms, value)
        known, expected = History(history.points()).known_at(now_ms - behind_ms), exact(points, now_ms - behind_ms)
        assert known is None or known <= expected
        if len(points) <= MOST_POINTS:
            assert known == expected
        assert len(history.points()) <= MOST_POINTS


@pytest.mark.parametrize("delay_ms", [1_000, 60_000, 3_600_000, 86_400_000])
def test_a_day_of_batches_of_a_second_keeps_the_state_small_and_the_delay_nearly_exact(delay_ms):
    rng = random.Random(delay_ms)
    run = LagAndDelay(10**12, delay_ms).build()
    longest, late_ms = 0, 0
    for second in range(DAY_S):
        now_ms = START_MS + 1_000 * second
        run.observe(now_ms - rng.randrange(900), now_ms)
        current_ms = run.current(now_ms)
        if second % 997 == 0:
            state = CommittedState(second, Counts(), {0: AxisState(run.snapshot(), current_ms)})
            longest = max(longest, len(encode_committed(state, b"k" * KEY_BYTES, "group t-0 1 settings")))
        if second * 1_000 > delay_ms and current_ms is not None and current_ms > START_MS - 10**9:
            late_ms = max(late_ms, now_ms - delay_ms - current_ms)
            assert current_ms <= now_ms - delay_ms
    assert longest < METADATA_BYTES
    assert late_ms <= max(2_000, delay_ms // 8)
