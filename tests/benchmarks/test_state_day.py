"""A day of small batches, made short: what a batch writes and reads stays flat, the state follows what is live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.state_day import Load, check, stretches


def test_a_long_load_writes_and_reads_the_same_in_every_batch():
    past = [*stretches(Load(rows=40, keys=400, batches_a_frame=5, frames=16), 4, 80)]
    assert past[-1].results > 0
    check(past[1:])


def test_a_cost_that_grows_with_the_age_of_the_query_is_noticed():
    (one,) = stretches(Load(rows=40, keys=400, batches_a_frame=5, frames=8), 1, 40)
    with pytest.raises(SystemExit, match="put_bytes of a batch rose"):
        check([one, replace(one, put_bytes=10 * one.put_bytes), one])
    with pytest.raises(SystemExit, match=r"bytes, .* of them live"):
        check([replace(one, state_bytes=10 * one.live_bytes + 10**6), one])
