"""Buckets of a process that share what control rows add up to: each stands where it would stand by itself."""

from __future__ import annotations

import json
import random

import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.rows import ControlKind
from keyedwm.spark.hosting import shared_tracker
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from keyedwm.spark.hosting.shared_tracker import SharedTracker
from tests.operators.test_shipped_control import Channels, barrier, shipped, watermark

WHO = "aggregate hours"


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    shared_tracker._shared.cache_clear()


def stored(state) -> dict:
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("seed", range(24))
def test_buckets_that_share_stand_where_each_would_stand_by_itself(seed):
    """Buckets of two queries whose operators have one name, restarted after each batch, some of them new, one of
    another time axis, rows in any order.
    """
    chance = random.Random(seed)
    feeds = (Channels(chance), Channels(chance, "fedcba987654"))
    alone = {bucket: ChannelTracker(WHO, 3 if bucket == 5 else 0) for bucket in range(8)}
    states: dict[int, dict] = {}
    for number in range(30):
        arrived = [(rows, shipped(chance, rows)) for rows in (feed.rows() for feed in feeds)]
        for bucket in chance.sample(range(8), 8):
            if bucket > number:
                continue
            one, by_itself = SharedTracker(WHO, 3 if bucket == 5 else 0, states.get(bucket)), alone[bucket]
            assert (one.idle, one.watermark_ms) == (by_itself.idle, by_itself.watermark_ms)
            rows = chance.choice(arrived[bucket % 2])
            assert one.apply(rows) == by_itself.apply(rows)
            assert (one.idle, one.watermark_ms) == (by_itself.idle, by_itself.watermark_ms)
            states[bucket] = stored(one.state())
            assert states[bucket] == stored(by_itself.state())


def test_buckets_that_stand_alike_take_the_rows_of_a_batch_once(monkeypatch):
    calls = []
    for name in ("apply", "restore"):
        real = getattr(ChannelTracker, name)
        by = real.__func__ if name == "restore" else real
        noted = lambda *words, by=by, name=name: (calls.append(name), by(*words))[1]  # noqa: E731
        monkeypatch.setattr(ChannelTracker, name, classmethod(noted) if name == "restore" else noted)
    states = [None] * 8
    for number in range(3):
        rows = [watermark(100 + number, offset=number), barrier(("t", 0), number)]
        for bucket, state in enumerate(states):
            one = SharedTracker(WHO, 0, state)
            one.apply(list(rows))
            states[bucket] = stored(one.state())
    assert calls == ["restore", "apply"] * 3


def test_rows_that_are_refused_are_refused_for_every_bucket_and_change_none():
    first = [barrier(("t", 0)), watermark(5)]
    state = None
    for _ in range(2):
        one = SharedTracker(WHO, 0, None)
        one.apply(first)
        state = stored(one.state())
    for _ in range(2):
        one = SharedTracker(WHO, 0, state)
        with pytest.raises(InputError, match="without barrier rows"):
            one.apply([ControlRow(kind=ControlKind.IDLE, channel="t-0")])
        assert stored(one.state()) == state
    assert SharedTracker(WHO, 0, state).apply([barrier(("t", 0), 1), watermark(7)]).watermark_ms == 7


def test_a_damaged_state_is_refused_beside_one_that_is_not():
    one = SharedTracker(WHO, 0, None)
    one.apply([barrier(("t", 0)), watermark(5)])
    state = stored(one.state())
    for _ in range(2):
        with pytest.raises(FormatError, match="damaged"):
            SharedTracker(WHO, 0, state | {"channels": "AAAA"})
        assert SharedTracker(WHO, 0, state).watermark_ms == 5


def test_a_state_of_an_earlier_version_is_written_in_todays_form():
    one = SharedTracker(WHO, 0, None)
    one.apply([barrier(("t", 0)), watermark(5)])
    state = stored(one.state())
    earlier = {name: value for name, value in state.items() if name not in ("of_source", "counts", "planned")}
    earlier["sources"] = {"t-0": next(iter(state["of_source"]))}
    assert stored(SharedTracker(WHO, 0, earlier).state()) == state
