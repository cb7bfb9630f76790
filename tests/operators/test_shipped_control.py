"""Control rows as columns: whatever the channels, the tasks and the restarts, a bucket makes of them what it made of
the rows themselves.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from keyedwm.core.control_row import ControlRow, channel_row, encode_rows
from keyedwm.core.errors import InputError
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import MAX_MS, MIN_MS
from keyedwm.operators.exchange_control import pack_control, unpack_control
from keyedwm.spark.hosting.channel_tracker import ChannelTracker
from tests.seeds import seeds

SOURCE = "0123456789ab"
TOPICS = ("orders", "a-topic-7", 'a "name" \n')


class Channels:
    """Channels of a source that come, go, fall silent, wake up and lose their state, batch by batch."""

    def __init__(self, chance: random.Random, source: str = SOURCE, topics: tuple[str, ...] = TOPICS) -> None:
        self.chance, self.source, self.batch = chance, source, 0
        self.topics = topics
        self.marks: dict[tuple[str, int], dict[int, int]] = {}
        self.idle: set[tuple[str, int]] = set()
        self.highest = 0

    def rows(self) -> list[ControlRow]:
        """The control rows of the next batch, channel by channel in order."""
        for _ in range(self.chance.randrange(4)):
            self.marks.setdefault((self.chance.choice(self.topics), self.chance.randrange(12)), {})
        for channel in [one for one in self.marks if self.chance.random() < 0.05]:
            del self.marks[channel]
            self.idle.discard(channel)
        control_rows = [row for one in self.marks for row in self._of(one)]
        if self.chance.random() < 0.4:
            self.highest += self.chance.randrange(1, 50)
            settings = {"key": 0, "watermark_ms": self.highest, "source": self.source}
            control_rows.append(ControlRow(kind=ControlKind.WATERMARK, **settings))
        if self.marks and self.idle == set(self.marks):
            control_rows.append(ControlRow(kind=ControlKind.IDLE, source=self.source))
        if not self.marks:
            control_rows.append(
                ControlRow(kind=ControlKind.BARRIER, snapshot=self.batch, channels=0, source=self.source)
            )
        self.batch += 1
        return control_rows

    def _of(self, one: tuple[str, int]) -> Iterator[ControlRow]:
        chance, marks, at = self.chance, self.marks[one], self.batch * 100
        if chance.random() < 0.05:
            marks.clear()
            yield channel_row(ControlKind.RESET, one, at, self.source)
        has_news = chance.random() < 0.6
        if has_news and one in self.idle:
            self.idle.remove(one)
            yield channel_row(ControlKind.ACTIVE, one, at, self.source)
        for _ in range(chance.choice((0, 1, 1, 3)) if has_news else 0):
            key, at = chance.choice((0, 0, 3)), at + chance.randrange(3)
            marks[key] = marks.get(key, chance.randrange(-50, 1_000)) + chance.randrange(1, 200)
            yield channel_row(ControlKind.WATERMARK, one, at, self.source, key=key, watermark_ms=marks[key])
        if not has_news and one not in self.idle and chance.random() < 0.3:
            self.idle.add(one)
            yield channel_row(ControlKind.IDLE, one, at, self.source)
        count = len(self.marks)
        yield channel_row(ControlKind.BARRIER, one, at, self.source, snapshot=self.batch, channels=count)


def shipped(chance: random.Random, rows: list[ControlRow]) -> list[ControlRow]:
    """What a bucket reads after a shuffle from a few tasks, to each of which any of the rows may have come."""
    by_channel = chance.random() < 0.7
    tasks: dict[int, list[ControlRow]] = {}
    places: dict[str | None, int] = {}
    for row in rows:
        task = chance.randrange(4)
        tasks.setdefault(places.setdefault(row.channel, task) if by_channel else task, []).append(row)
    for of_task in tasks.values():
        chance.shuffle(of_task)
    return [row for of_task in tasks.values() for row in unpack_control(pack_control(of_task))]


def restored(tracker: ChannelTracker) -> ChannelTracker:
    return ChannelTracker.restore("aggregate hours", 0, json.loads(json.dumps(tracker.state())))


@pytest.mark.parametrize("seed", seeds(9))
def test_a_bucket_makes_the_same_of_columns_as_of_rows(seed):
    """Over one source or two united ones, restarted after each batch; the third bucket changes from one to the other,
    as one does whose checkpoint is of an earlier version.
    """
    chance = random.Random(seed)
    feeds = [Channels(chance)]
    if seed % 3 == 0:
        feeds.append(Channels(chance, "fedcba987654", ("others",)))
    of_rows, of_columns, of_both = (ChannelTracker("aggregate hours", 0) for _ in range(3))
    for _ in range(30):
        rows = [row for feed in feeds for row in feed.rows()]
        arrived = shipped(chance, rows)
        changes = of_rows.apply(rows)
        assert of_columns.apply(arrived) == changes
        assert of_both.apply(chance.choice((rows, arrived))) == changes
        assert of_columns.state() == of_both.state() == of_rows.state()
        of_columns, of_both = restored(of_columns), restored(of_both)


def test_a_frame_united_with_itself_ships_everything_twice_and_it_counts_once():
    chance = random.Random(0)
    feed, once, twice = Channels(chance), ChannelTracker("a", 0), ChannelTracker("a", 0)
    for _ in range(10):
        rows = feed.rows()
        assert twice.apply([*shipped(chance, rows), *shipped(chance, rows)]) == once.apply(rows)


def barrier(channel: tuple[str, int], snapshot: int = 0, **settings) -> ControlRow:
    return channel_row(ControlKind.BARRIER, channel, 9, SOURCE, snapshot=snapshot, channels=1, **settings)


def watermark(ms: int, offset: int = 5, channel: tuple[str, int] = ("t", 0), key: int = 0) -> ControlRow:
    return channel_row(ControlKind.WATERMARK, channel, offset, SOURCE, key=key, watermark_ms=ms)


def test_a_watermark_that_goes_back_is_found_although_those_between_are_left_out():
    tracker = ChannelTracker("aggregate hours", 0)
    tracker.apply(unpack_control(pack_control([watermark(50), barrier(("t", 0))])))
    later = unpack_control(pack_control([watermark(40), watermark(60, 6), watermark(70, 7), barrier(("t", 0), 1)]))
    with pytest.raises(InputError, match="went from 50 ms to 40 ms"):
        tracker.apply(later)


@pytest.mark.parametrize(
    "rows",
    [
        [watermark(50), watermark(40, 6), barrier(("t", 0))],
        [channel_row(ControlKind.IDLE, ("t", 0), 3, SOURCE), watermark(5), barrier(("t", 0))],
        [barrier(("t", 0)), barrier(("t", 0), 1)],
        [ControlRow(kind=ControlKind.WATERMARK, channel="t-0", offset=5, key=0, watermark_ms=3)],
        [ControlRow(kind=ControlKind.ACTIVE, channel="t-07", source=SOURCE)],
        [ControlRow(kind=ControlKind.IDLE, source=SOURCE)],
    ],
    ids=["falling watermarks", "awake after idle", "two snapshots", "no source", "another name", "no channel"],
)
def test_rows_that_their_kinds_do_not_order_arrive_as_they_are(rows):
    assert sorted(unpack_control(pack_control(rows)), key=repr) == sorted(rows, key=repr)


def test_any_watermark_comes_back():
    times = [MIN_MS, -1, 0, 1, MAX_MS, 2**53 + 1]
    rows = [watermark(ms, channel=("t", number), key=key) for number, ms in enumerate(times) for key in (-128, 127)]
    back = unpack_control(pack_control(rows))
    watermark_sets = [{(row.channel, row.key, row.watermark_ms, row.source) for row in some} for some in (rows, back)]
    assert watermark_sets[0] == watermark_sets[1]
    assert unpack_control(pack_control([])) == ()


def test_a_channel_costs_the_bits_of_its_watermark():
    """Of 1,000 channels within 1,024 ms that is 10 bits each, and equal ones or barriers alone cost nothing."""
    chance = random.Random(0)
    barriers = [barrier(("orders", number)) for number in range(1_000)]
    spread = [watermark(chance.randrange(1_024), channel=("orders", number)) for number in range(1_000)]
    equal = [watermark(1_024, channel=("orders", number)) for number in range(1_000)]
    assert len(pack_control(barriers)) < 150
    assert len(pack_control([*equal, *barriers])) < 200
    assert len(pack_control([*spread, *barriers])) < 1_250 + 200
    assert len(encode_rows([*spread, *barriers])) > 100_000


def test_the_buckets_of_a_process_read_the_rows_of_a_task_once():
    packed = pack_control([watermark(50), barrier(("t", 0))])
    first = unpack_control(packed)
    assert unpack_control(bytes(bytearray(packed))) is first
