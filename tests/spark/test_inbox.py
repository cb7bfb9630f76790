"""What a bucket makes of control rows: who its channels are, and the one watermark they add up to."""

from __future__ import annotations

import json
import random
import zlib
from base64 import b64encode
from dataclasses import replace

import pytest

from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FormatError, InputError
from keyedwm.core.rows import ControlKind
from keyedwm.spark.hosting.channel_tracker import ChannelTracker


def inbox() -> ChannelTracker:
    return ChannelTracker("aggregate hours", key=0)


def barriers(snapshot: int, *channels: str) -> list[ControlRow]:
    return [
        ControlRow(kind=ControlKind.BARRIER, channel=name, snapshot=snapshot, channels=len(channels), offset=9)
        for name in channels
    ]


def watermark(ms: int, channel: str | None = None, key: int = 0, offset: int = 5) -> ControlRow:
    return ControlRow(kind=ControlKind.WATERMARK, key=key, watermark_ms=ms, channel=channel, offset=offset)


def idle(channel: str) -> ControlRow:
    return ControlRow(kind=ControlKind.IDLE, channel=channel, offset=8)


def active(channel: str) -> ControlRow:
    return ControlRow(kind=ControlKind.ACTIVE, channel=channel, offset=1)


def test_the_slowest_channel_holds_the_watermark():
    told = inbox().apply([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    assert (told.batch_watermark_ms, told.watermark_ms) == (None, 50)


def test_a_frame_united_with_itself_tells_everything_twice_and_it_counts_once():
    rows = [watermark(100, "t-0"), watermark(50, "t-1"), watermark(60, "t-1", offset=6), *barriers(0, "t-0", "t-1")]
    assert inbox().apply([*rows, *rows]) == inbox().apply(rows)


def test_a_channel_without_a_watermark_blocks():
    assert inbox().apply([watermark(100, "t-0"), *barriers(0, "t-0", "t-1")]).watermark_ms is None


def test_rows_are_judged_by_the_watermark_of_the_plan():
    told = inbox().apply([watermark(40), watermark(100, "t-0"), *barriers(0, "t-0")])
    assert (told.batch_watermark_ms, told.watermark_ms) == (40, 100)


def test_an_idle_channel_holds_nobody_and_wakes_up():
    box = inbox()
    box.apply([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    assert box.apply([idle("t-1"), *barriers(1, "t-0", "t-1")]).watermark_ms == 100
    told = box.apply([active("t-1"), watermark(120, "t-0"), *barriers(2, "t-0", "t-1")])
    assert (told.watermark_ms, told.woke) == (100, False)


def test_all_idle_is_told_once_and_so_is_its_end():
    box = inbox()
    assert box.apply([watermark(10, "t-0"), idle("t-0"), *barriers(0, "t-0")]).went_idle
    assert not box.apply(barriers(1, "t-0")).went_idle
    assert box.apply([active("t-0"), watermark(20, "t-0"), *barriers(2, "t-0")]).woke


def test_a_removed_partition_holds_nobody():
    box = inbox()
    box.apply([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    assert box.apply(barriers(1, "t-0")).watermark_ms == 100


def test_a_new_partition_blocks_until_its_first_watermark():
    box = inbox()
    box.apply([watermark(100, "t-0"), *barriers(0, "t-0")])
    assert box.apply([watermark(200, "t-0"), *barriers(1, "t-0", "t-1")]).watermark_ms == 100
    assert box.apply([watermark(150, "t-1"), *barriers(2, "t-0", "t-1")]).watermark_ms == 150


def test_of_two_sources_neither_speaks_for_both():
    box = inbox()
    rows = [watermark(500, "a-0"), watermark(100, "b-0"), watermark(500), *barriers(0, "a-0"), *barriers(0, "b-0")]
    told = box.apply(rows)
    assert (told.batch_watermark_ms, told.watermark_ms) == (None, 100)


def test_a_source_without_news_keeps_its_channels():
    box = inbox()
    box.apply([watermark(10, "a-0"), watermark(20, "b-0"), *barriers(0, "a-0"), *barriers(3, "b-0")])
    assert box.apply([watermark(90, "a-0"), *barriers(1, "a-0")]).watermark_ms == 20


def test_another_axis_wakes_and_moves_nothing():
    box = inbox()
    box.apply([watermark(10, "t-0"), idle("t-0"), *barriers(0, "t-0")])
    told = box.apply([watermark(900, "t-0", key=4), *barriers(1, "t-0")])
    assert (told.woke, told.watermark_ms) == (True, 10)


def test_the_order_of_arrival_means_nothing():
    rows = [
        watermark(10, "t-0", offset=1), watermark(30, "t-0", offset=4), watermark(20, "t-1"), idle("t-1"),
        active("t-1"), watermark(5), *barriers(0, "t-0", "t-1"),
    ]  # fmt: skip
    wanted = inbox()
    told = wanted.apply(rows)
    for seed in range(20):
        mixed = random.Random(seed).sample(rows, len(rows))
        box = inbox()
        assert box.apply(mixed) == told
        assert box.state() == wanted.state()


def test_a_restored_inbox_goes_on():
    box = inbox()
    box.apply([watermark(100, "t-0"), watermark(50, "t-1"), *barriers(0, "t-0", "t-1")])
    again = ChannelTracker.restore("aggregate hours", 0, box.state())
    rows = [watermark(70, "t-1"), *barriers(1, "t-0", "t-1")]
    assert again.apply(rows) == box.apply(rows)
    assert again.state() == box.state()


@pytest.mark.parametrize(
    "damage",
    [{"channels": "%"}, {"channels": "a3dtYwE="}, {"channels": None}, {"sources": 3}, {"of_source": 3},
     {"of_source": {"s": [["t-", [0, 9]]]}}, {"watermark": "5"},
     {"planned": [1]}, {"channels": b64encode(b"kwmc\x01" + zlib.compress(b"\2\0\0\0[[" + b"\0" * 4)).decode()}],
    ids=str,
)  # fmt: skip
def test_a_damaged_state_is_refused_by_the_operators_name(damage):
    box = inbox()
    box.apply([watermark(100, "t-0"), *barriers(0, "t-0")])
    with pytest.raises(FormatError, match="aggregate hours: the saved state of its channels is damaged"):
        ChannelTracker.restore("aggregate hours", 0, {**box.state(), **damage})


def test_channels_that_0_2_0_noted_go_on():
    written = {
        "channels": "a3dtYwF4AS2NSwrDMAxE7XVvoW5dUFK68QF6gS6NFyFWG1N/gu1FQ8jdq5AIxGMGHlOEECuM05AShQr6rmDMMeYEegWKvjVyoI"
        "1B9UBrFUy+tlwWrjh4F+g1Uwig30OoxM0n5bIbqKDl+TA7ZHVT8KWFFwza7cKr7Yb8nfhdkZOU0jH26w+I58k/pMootw==",
        "sources": {"t-0": "s", "t-1": "s", "x#0": "u"},
        "watermark": 50,
    }
    box = ChannelTracker.restore("aggregate hours", 0, written)
    noted = box.state()
    assert noted["of_source"] == {"s": [["t-", [0, 2]]], "u": [["x#", [0, 1]]]}
    rows = [replace(row, source="s") for row in (watermark(90, "t-1"), *barriers(1, "t-0", "t-1"))]
    again = ChannelTracker.restore("aggregate hours", 0, noted)
    assert box.apply(rows).watermark_ms == again.apply(rows).watermark_ms == 70


def test_a_cut_that_is_not_whole_is_refused():
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 0 arrived \(t-0\)"):
        inbox().apply(barriers(0, "t-0", "t-1")[:1])


def test_a_batch_without_barriers_is_refused():
    with pytest.raises(InputError, match="aggregate hours: a batch came without barrier rows"):
        inbox().apply([watermark(5, "t-0")])


LOCK_STEP = [
    watermark(100, "a-0"), watermark(50, "a-1"), watermark(100, "b-0"), watermark(100, "b-1"),
    *barriers(0, "a-0", "a-1"), *barriers(0, "b-0", "b-1"),
]  # fmt: skip


@pytest.mark.parametrize("restart", [False, True])
def test_a_partition_that_one_of_two_united_sources_loses_holds_nobody(restart):
    """Sources with as many channels and the same snapshot make one cut: no row says whose a channel is."""
    box = inbox()
    assert box.apply(LOCK_STEP).watermark_ms == 50
    if restart:
        box = ChannelTracker.restore("aggregate hours", 0, json.loads(json.dumps(box.state())))
    told = box.apply([*barriers(1, "a-0"), *barriers(1, "b-0", "b-1")])
    assert told.watermark_ms == 100


def test_a_source_of_two_that_is_silent_keeps_its_channels_while_the_other_loses_one():
    box = inbox()
    box.apply(LOCK_STEP)
    assert box.apply([watermark(200, "a-0"), *barriers(1, "a-0")]).watermark_ms == 50
    assert box.apply([watermark(200, "b-0"), *barriers(1, "b-0", "b-1")]).watermark_ms == 100


def test_two_united_sources_that_lose_a_partition_each_at_once_wait_for_neither():
    box = inbox()
    box.apply(LOCK_STEP)
    told = box.apply([watermark(150, "a-0"), watermark(160, "b-0"), *barriers(1, "a-0"), *barriers(1, "b-0")])
    assert told.watermark_ms == 150


def test_united_sources_that_gain_partitions_keep_all_of_them():
    box = inbox()
    box.apply(LOCK_STEP)
    box.apply([watermark(70, "a-2"), watermark(170, "a-1", offset=7), *barriers(1, "a-0", "a-1", "a-2")])
    assert box.watermark_ms == 70
    told = box.apply([watermark(300, "a-2"), *barriers(2, "a-0", "a-1", "a-2"), *barriers(2, "b-0", "b-1")])
    assert told.watermark_ms == 100


def named(source: str, *rows: ControlRow) -> list[ControlRow]:
    return [replace(row, source=source) for row in rows]


def test_a_cut_by_identity_is_whole_only_if_each_source_is():
    rows = [*named("a", *barriers(0, "a-0", "a-1")), *named("b", *barriers(0, "b-0", "b-1"))]
    lacking = [row for row in rows if row.channel not in ("a-1", "b-1")]  # by counts alone that is a whole cut
    with pytest.raises(InputError, match=r"1 of 2 barrier rows of snapshot 0 arrived \(a-0\)"):
        inbox().apply(lacking)
    assert inbox().apply([*rows, watermark(5, "a-0")]).watermark_ms is None


@pytest.mark.parametrize("lost", [("a-1",), ("a-0", "a-1")])
def test_what_a_named_source_loses_holds_nobody_whether_the_other_has_a_batch_or_not(lost):
    left = [name for name in ("a-0", "a-1") if name not in lost] or ["a-2"]
    for others in ([], named("b", *barriers(1, "b-0", "b-1"))):
        box = inbox()
        rows = [row for row in LOCK_STEP if row.channel]
        box.apply([replace(row, source=row.channel[0]) for row in rows])
        box.apply([*named("a", *barriers(1, *left), watermark(300, left[0])), *others])
        told = box.apply(named("b", watermark(200, "b-0"), watermark(200, "b-1"), *barriers(2, "b-0", "b-1")))
        assert told.watermark_ms == 200


def test_channels_of_a_bucket_of_version_1_go_over_to_their_sources():
    """0.2.0 knew two lock-step sources as one group."""
    box = inbox()
    box.apply(LOCK_STEP)
    again = ChannelTracker.restore("aggregate hours", 0, json.loads(json.dumps(box.state())))
    rows = [replace(row, source=row.channel[0]) for row in LOCK_STEP if row.kind is ControlKind.BARRIER]
    again.apply([replace(row, snapshot=1) for row in rows])
    assert again.state()["of_source"] == {"a": [["a-", [0, 2]]], "b": [["b-", [0, 2]]]}
    assert again.state()["counts"] == {}
    told = again.apply([*named("a", *barriers(2, "a-0")), *named("b", *barriers(2, "b-0", "b-1"))])
    assert told.watermark_ms == 100


def test_a_channel_of_two_sources_is_refused():
    rows = [*named("a", *barriers(0, "t-0")), *named("b", *barriers(0, "t-0"))]
    with pytest.raises(
        InputError, match="channel t-0 comes from two sources: if two reads of one topic were united"
    ) as told:
        inbox().apply(rows)
    assert "topics of one name in two clusters cannot be united" in told.value.message


@pytest.mark.parametrize("restart", [False, True])
def test_what_one_source_retains_counts_in_a_union(restart):
    """maxWatermarkRetention: the planner of source a passes its slow partition, that of b has none."""
    box = inbox()
    rows = named("a", watermark(100, "a-0"), watermark(10, "a-1"), *barriers(0, "a-0", "a-1"))
    assert box.apply([*rows, *named("b", watermark(500, "b-0"), *barriers(0, "b-0"))]).watermark_ms == 10
    if restart:
        box = ChannelTracker.restore("aggregate hours", 0, json.loads(json.dumps(box.state())))
    assert box.apply(named("a", watermark(100), *barriers(1, "a-0", "a-1"))).watermark_ms == 100
    assert box.apply(named("a", watermark(600), *barriers(2, "a-0", "a-1"))).watermark_ms == 500
    slow = named("a", watermark(20, "a-1"), *barriers(3, "a-0", "a-1"))  # no regression: it is above its own last one
    assert box.apply([*slow, *named("b", watermark(550, "b-0"), *barriers(1, "b-0"))]).watermark_ms == 550


def test_a_channel_without_a_watermark_does_not_block_what_its_source_retains():
    box = inbox()
    rows = named("a", watermark(100, "a-0"), *barriers(0, "a-0", "a-1"))
    assert box.apply([*rows, *named("b", watermark(500, "b-0"), *barriers(0, "b-0"))]).watermark_ms is None
    assert box.apply(named("a", watermark(100), *barriers(1, "a-0", "a-1"))).watermark_ms == 100


def test_what_an_idle_source_flushed_is_no_promise_for_when_it_wakes_up():
    box = inbox()
    rows = named("a", watermark(900, "a-0"), watermark(10, "a-1"), *barriers(0, "a-0", "a-1"))
    box.apply([*rows, *named("b", watermark(50, "b-0"), *barriers(0, "b-0"))])
    all_idle = ControlRow(kind=ControlKind.IDLE)
    box.apply(named("a", watermark(900), all_idle, idle("a-0"), idle("a-1"), *barriers(1, "a-0", "a-1")))
    rows = named("a", active("a-1"), *barriers(2, "a-0", "a-1"))
    assert box.apply([*rows, *named("b", watermark(800, "b-0"), *barriers(1, "b-0"))]).watermark_ms == 50


def test_a_channel_that_was_reset_promises_what_it_says_next():
    box = inbox()
    box.apply([watermark(900, "t-0"), watermark(950, "t-1"), *barriers(0, "t-0", "t-1")])
    reset = ControlRow(kind=ControlKind.RESET, channel="t-0", offset=5)
    assert box.apply([watermark(700, "t-0"), reset, *barriers(1, "t-0", "t-1")]).watermark_ms == 900
    assert box.apply([watermark(930, "t-0", offset=7), *barriers(2, "t-0", "t-1")]).watermark_ms == 930
