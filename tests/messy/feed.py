"""A random input: columns of odd names and types, channels with idle spells, batches cut into tasks, watermarks.

Rule: what the watermark is before and after each batch is reckoned here, in plain Python, from what the channels say.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from keyedwm.spark.hosting.stage_one import CONTROL_TEXT
from tests.messy.kinds import BY_NAME, KEYS, KINDS, Kind, array, canon, drawn

TIME = "__time"
NAMES = (
    "k", "K", "v", "a.b", "key 1", "c`d", 'q"u', "it's", "ключ", "x,y;{}()=", "tab\tname", "value", "bucket", "part",
    "partials", "input", "results", "side", "rows", "start", "end", "last", "timing", "index", "name", "blob", "n0",
    "event_time_x", "source", "reason", "channel", "kind", "ROWS", "0", "-", "%s", "{0}", "$v", "_v", "é", "e\u0301",
)  # fmt: skip
RECORD = (("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()))
BASES = (0, -100, -(10**10), 1_760_000_000_000, 253_402_300_799_000, 2**51)
TOPIC = "t"


class Row(NamedTuple):
    """An event: raw values by column, event time, and its record."""

    values: tuple
    time: int | None
    partition: int
    offset: int

    @property
    def place(self) -> tuple:
        return self.time, TOPIC, self.partition, self.offset


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    never_null: bool = False

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.kind.type, nullable=not self.never_null)


@dataclass
class Batch:
    """tasks: rows of each. control: of each its texts. before, after: the watermark that rows meet, and the next."""

    tasks: list[list[Row]]
    control: list[list[str]]
    before: int | None
    after: int | None

    @property
    def rows(self) -> list[Row]:
        return [row for task in self.tasks for row in task]


@dataclass
class Feed:
    """columns: the first ones are keys."""

    columns: list[Column]
    keys: int
    unit: int
    base: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def by(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.columns[: self.keys])

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.columns]

    def schema(self, *times: pa.Field) -> pa.Schema:
        return pa.schema([*(one.field for one in self.columns), *RECORD, *times])

    def key(self, row: Row) -> tuple:
        return tuple(self.value(row, at) for at in range(self.keys))

    def value(self, row: Row, at: int) -> Any:
        """The canonical value of a column."""
        return canon(row.values[at], self.columns[at].kind.type)

    def table(self, rows: list[Row], names: list[str], texts: list[str] = ()) -> pa.Table:
        """Rows, then control rows, as Spark hands them to stage one: columns by place, the control text last."""
        blank = [None] * len(texts)
        arrays: dict[str, pa.Array] = {
            one.name: array(one.kind.type, [*(row.values[at] for row in rows), *blank])
            for at, one in enumerate(self.columns)
        }
        arrays["topic"] = array(pa.string(), [*[TOPIC.encode()] * len(rows), *blank])
        arrays["partition"] = array(pa.int32(), [*(row.partition for row in rows), *blank])
        arrays["offset"] = array(pa.int64(), [*(row.offset for row in rows), *blank])
        times = [*(row.time for row in rows), *blank]
        arrays[TIME] = array(pa.int64(), times)
        arrays["event_time"] = array(
            pa.timestamp("us", tz="UTC"), [None if one is None else one * 1000 for one in times]
        )
        arrays[CONTROL_TEXT] = pa.array([None] * len(rows) + list(texts), pa.string())
        return pa.table([arrays[name] for name in names], [str(at) for at in range(len(names))])


def random_columns(
    rng: random.Random, keys: int, values: int, *, key_kinds: tuple[Kind, ...] = KEYS, without: Sequence[str] = ()
) -> list[Column]:
    """Columns of odd names; Spark tells names of another case apart only where it is told to."""
    reserved = {*without, *(name for name, _ in RECORD)}
    names: list[str] = []
    for name in rng.sample(NAMES, len(NAMES)):
        if name.lower() not in reserved and len(names) < keys + values:
            reserved.add(name.lower())
            names.append(name)
    kinds = [rng.choice(key_kinds) for _ in range(keys)]
    often = [BY_NAME[name] for name in ("float64", "mild float64", "far float64", "text")]
    kinds += [rng.choice([*KINDS, *often]) for _ in range(values)]
    return [Column(name, kind, rng.random() < 0.3) for name, kind in zip(names, kinds, strict=True)]


def random_feed(
    rng: random.Random, *, keys: int | None = None, values: int = 3, batches: int | None = None, most: int = 9,
    key_kinds: tuple[Kind, ...] = KEYS, columns: list[Column] | None = None, when: tuple[int, int] | None = None,
    without: Sequence[str] = (),
) -> Feed:  # fmt: skip
    """Rows about a time that goes on, some late or far ahead, on window edges; the last batch closes everything."""
    keys = rng.choice([0, 1, 1, 1, 2]) if keys is None else keys
    columns = columns or random_columns(rng, keys, values, key_kinds=key_kinds, without=without)
    base, unit = when or (rng.choice(BASES), rng.choice([1, 10, 1000, 3_600_000]))
    feed = Feed(columns, keys, unit, base)
    pools = [drawn(rng, one.kind, 4 if at < keys else 8) for at, one in enumerate(columns)]
    channels = [_Channel(number) for number in range(rng.choice([1, 1, 2, 3]))]
    clock = _Clock(channels)
    count = batches or rng.randrange(3, 6)
    for number in range(count):
        tasks: list[list[Row]] = [[] for _ in range(rng.choice([1, 2]))]
        texts: list[list[str]] = [[] for _ in tasks]
        planned = clock.planned(rng)
        if planned is not None:
            texts[0].append(_control_text("watermark", None, key=0, watermark_ms=planned))
        for channel in channels:
            at = rng.randrange(len(tasks))
            rows = [] if rng.random() < 0.15 else [
                _row(rng, feed, pools, channel, number) for _ in range(rng.randrange(1, most))
            ]  # fmt: skip
            tasks[at] += rows
            last = number == count - 1
            texts[at] += channel.write_control(
                rng, feed, number, has_rows=bool(rows), number_of=len(channels), last=last
            )
        before = clock.watermark
        clock.end_of_batch()
        feed.batches.append(Batch(tasks, texts, before, clock.watermark))
    return feed


def _row(rng: random.Random, feed: Feed, pools: list[list], channel: _Channel, number: int) -> Row:
    values = tuple(
        None if not one.never_null and rng.random() < 0.12 else rng.choice(pool)
        for one, pool in zip(feed.columns, pools, strict=True)
    )
    at = feed.base + feed.unit * (number * 6 + rng.randrange(-3, 9))
    at += rng.choice([0, 0, 0, -1, 1, rng.randrange(feed.unit)])
    if rng.random() < 0.05:
        at += feed.unit * rng.choice([-40, 40, 1000])
    channel.offset += rng.choice([1, 1, 1, 3])
    return Row(values, None if rng.random() < 0.04 else at, channel.number, channel.offset)


@dataclass
class _Channel:
    number: int
    offset: int = 0
    watermark: int | None = None
    idle: bool = False
    spoke: bool = False

    def write_control(
        self, rng: random.Random, feed: Feed, number: int, *, has_rows: bool, number_of: int, last: bool
    ) -> list[str]:
        """The control rows at the end of its part of a batch."""
        self.spoke = False
        texts = []
        name = f"{TOPIC}-{self.number}"
        rises = last or rng.random() < 0.75
        if self.idle and (has_rows or rises):
            texts.append(_control_text("active", name, offset=self.offset))
            self.idle, self.spoke = False, True
        if rises:
            at = feed.base + feed.unit * (number * 6 + rng.randrange(-9, 3)) + rng.choice([0, 0, 1])
            if last:
                at = feed.base + feed.unit * 10**6
            if self.watermark is None or at > self.watermark:
                self.watermark, self.spoke = at, True
                texts.append(_control_text("watermark", name, key=0, watermark_ms=at, offset=self.offset + 1))
        if not last and not self.idle and rng.random() < 0.2:
            texts.append(_control_text("idle", name, offset=self.offset + 1))
            self.idle = True
        texts.append(_control_text("barrier", name, snapshot=number, channels=number_of, offset=self.offset + 1))
        return texts


@dataclass
class _Clock:
    """The watermark that channels add up to: the lowest of the active ones, the highest ever once none is active."""

    channels: list[_Channel]
    watermark: int | None = None
    spell: bool = False

    def planned(self, rng: random.Random) -> int | None:
        """What the driver stamped on the batch: the watermark as it was."""
        return self.watermark if rng.random() < 0.5 else None

    def end_of_batch(self) -> None:
        active = [one.watermark for one in self.channels if not one.idle]
        watermark: int | None = None
        self.spell = self.spell and not any(one.spoke for one in self.channels)
        if active:
            watermark = None if None in active else min(one for one in active if one is not None)
        elif not self.spell:
            self.spell = True
            watermark = max((one.watermark for one in self.channels if one.watermark is not None), default=None)
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark


def _control_text(kind: str, channel: str | None, **fields: int) -> str:
    channel_field = {} if channel is None else {"channel": channel}
    return json.dumps({"kind": kind, **channel_field, "source": "src", **fields})
