"""What a bucket makes of control rows: who its channels are, and the one watermark they add up to."""

from __future__ import annotations

import random

import pytest

from keyedwm.core.errors import InputError
from keyedwm.core.rows import Kind
from keyedwm.spark.inbox import Control, Inbox


def inbox() -> Inbox:
    return Inbox("aggregate hours", key=0)


def barriers(snapshot: int, *channels: str) -> list[Control]:
    return [
        Control(kind=Kind.BARRIER, channel=name, snapshot=snapshot, channels=len(channels), offset=9)
        for name in channels
    ]


def watermark(ms: int, channel: str | None = None, key: int = 0, offset: int = 5) -> Control:
    return Control(kind=Kind.WATERMARK, key=key, watermark_ms=ms, channel=channel, offset=offset)


def idle(channel: str) -> Control:
    return Control(kind=Kind.IDLE, channel=channel, offset=8)


def active(channel: str) -> Control:
    return Control(kind=Kind.ACTIVE, channel=channel, offset=1)


def test_the_slowest_channel_holds_the_watermark():
    told = inbox().take([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    assert (told.promised_ms, told.watermark_ms) == (None, 50)


def test_a_frame_united_with_itself_tells_everything_twice_and_it_counts_once():
    rows = [watermark(100, "t-0"), watermark(50, "t-1"), watermark(60, "t-1", offset=6), *barriers(0, "t-0", "t-1")]
    assert inbox().take([*rows, *rows]) == inbox().take(rows)


def test_a_channel_without_a_watermark_blocks():
    assert inbox().take([watermark(100, "t-0"), *barriers(0, "t-0", "t-1")]).watermark_ms is None


def test_rows_are_judged_by_what_the_plan_promised():
    told = inbox().take([watermark(40), watermark(100, "t-0"), *barriers(0, "t-0")])
    assert (told.promised_ms, told.watermark_ms) == (40, 100)


def test_an_idle_channel_holds_nobody_and_wakes_up():
    box = inbox()
    box.take([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    assert box.take([idle("t-1"), *barriers(1, "t-0", "t-1")]).watermark_ms == 100
    told = box.take([active("t-1"), watermark(120, "t-0"), *barriers(2, "t-0", "t-1")])
    assert (told.watermark_ms, told.woke) == (100, False)


def test_all_idle_is_told_once_and_so_is_its_end():
    box = inbox()
    assert box.take([watermark(10, "t-0"), idle("t-0"), *barriers(0, "t-0")]).went_idle
    assert not box.take(barriers(1, "t-0")).went_idle
    assert box.take([active("t-0"), watermark(20, "t-0"), *barriers(2, "t-0")]).woke


def test_a_removed_partition_holds_nobody():
    box = inbox()
    box.take([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    assert box.take(barriers(1, "t-0")).watermark_ms == 100


def test_a_new_partition_blocks_until_its_first_watermark():
    box = inbox()
    box.take([watermark(100, "t-0"), *barriers(0, "t-0")])
    assert box.take([watermark(200, "t-0"), *barriers(1, "t-0", "t-1")]).watermark_ms == 100
    assert box.take([watermark(150, "t-1"), *barriers(2, "t-0", "t-1")]).watermark_ms == 150


def test_of_two_sources_neither_speaks_for_both():
    box = inbox()
    rows = [watermark(500, "a-0"), watermark(100, "b-0"), watermark(500), *barriers(0, "a-0"), *barriers(0, "b-0")]
    told = box.take(rows)
    assert (told.promised_ms, told.watermark_ms) == (None, 100)


def test_a_source_without_news_keeps_its_channels():
    box = inbox()
    box.take([watermark(10, "a-0"), watermark(20, "b-0"), *barriers(0, "a-0"), *barriers(3, "b-0")])
    assert box.take([watermark(90, "a-0"), *barriers(1, "a-0")]).watermark_ms == 20


def test_another_axis_wakes_and_moves_nothing():
    box = inbox()
    box.take([watermark(10, "t-0"), idle("t-0"), *barriers(0, "t-0")])
    told = box.take([watermark(900, "t-0", key=4), *barriers(1, "t-0")])
    assert (told.woke, told.watermark_ms) == (True, 10)


def test_the_order_of_arrival_means_nothing():
    rows = [
        watermark(10, "t-0", offset=1), watermark(30, "t-0", offset=4), watermark(20, "t-1"), idle("t-1"),
        active("t-1"), watermark(5), *barriers(0, "t-0", "t-1"),
    ]  # fmt: skip
    wanted = inbox()
    told = wanted.take(rows)
    for seed in range(20):
        mixed = random.Random(seed).sample(rows, len(rows))
        box = inbox()
        assert box.take(mixed) == told
        assert box.snapshot() == wanted.snapshot()


def test_a_restored_inbox_goes_on():
    box = inbox()
    box.take([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    again = Inbox.restore("aggregate hours", 0, box.snapshot())
    rows = [watermark(70, "t-1"), *barriers(1, "t-0", "t-1")]
    assert again.take(rows) == box.take(rows)
    assert again.snapshot() == box.snapshot()


def test_a_cut_that_is_not_whole_is_refused():
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 0 arrived \(t-0\)"):
        inbox().take(barriers(0, "t-0", "t-1")[:1])


def test_a_batch_without_barriers_is_refused():
    with pytest.raises(InputError, match="aggregate hours: a batch came without barrier rows"):
        inbox().take([watermark(5, "t-0")])
