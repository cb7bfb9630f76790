"""What is sent, and the exact answer of each query, by brute force over all that was sent.

Rule: no record is late, and the last records of each partition close all windows. So no answer depends on batches.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import pyarrow as pa

from keyedwm.kafka.requests.cluster import Cluster
from tests.e2e.feed import Feed
from tests.tools import Record
from tests.upgrade.queries import twin

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SHOPS = 3  # of each partition; even and odd numbers alternate within a shop
LAST_MS = 1_356_998_400_000 + 400 * DAY_MS
NEAR_MS, GAP_MS, WITHIN_MS = 10 * MINUTE_MS, 20 * MINUTE_MS, 30 * MINUTE_MS
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """A record as the queries read it."""

    shop: str
    n: int
    ms: int


class ShopFeed(Feed):
    """A feed of a topic and its twin, whose values are JSON: the shop, and the number within the partition."""

    is_last = False

    def __init__(self, cluster: Callable[[], Cluster], topic: str, rng: random.Random) -> None:
        super().__init__(cluster, topic, rng)
        self._twin = Feed(cluster, twin(topic), rng)

    def write(self, tables: Mapping[int, pa.Table]) -> None:
        super().write(tables)
        self._twin.write(tables)

    def send_last(self) -> None:
        """Send records of all shops that close every window before them."""
        self.is_last = True
        self.send(2 * SHOPS, 2 * SHOPS)

    def events(self) -> list[Event]:
        """All records but the last ones."""
        return [event for event in self.all_events() if event.ms < LAST_MS]

    def all_events(self) -> list[Event]:
        return [_event(record) for sent in self.sent for record in sent]

    def _record(self, partition: int, number: int) -> Record:
        plain = super()._record(partition, number)
        ms = LAST_MS if self.is_last else plain.timestamp_ms
        value = {"shop": f"{partition}-{number // 2 % SHOPS}", "n": number}
        return Record(partition, ms, json.dumps(value).encode(), plain.key)


def _event(record: Record) -> Event:
    value = json.loads(record.value)
    return Event(value["shop"], value["n"], record.timestamp_ms)


def _by_shop(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The events of each shop, in order of event time, then of offsets."""
    shops = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.ms, event.n)):
        shops[event.shop].append(event)
    return shops


def _windows(events: Iterable[Event], size_ms: int, slide_ms: int) -> Iterator[tuple[str, int, list[int]]]:
    """The shop, start and numbers of each window that has events."""
    numbers = defaultdict(list)
    for event in events:
        last_ms = event.ms // slide_ms * slide_ms
        for start_ms in range(last_ms, last_ms - size_ms, -slide_ms):
            numbers[event.shop, start_ms].append(event.n)
    for (shop, start_ms), of_window in numbers.items():
        yield shop, start_ms, of_window


def _hours(events: list[Event]) -> Iterator[Row]:
    for shop, start_ms, numbers in _windows(events, HOUR_MS, HOUR_MS):
        yield shop, start_ms, len(numbers), sum(numbers)


def _sliding(events: list[Event]) -> Iterator[Row]:
    for shop, start_ms, numbers in _windows(events, 2 * HOUR_MS, HOUR_MS):
        yield shop, start_ms, len(numbers), max(numbers)


def _medians(events: list[Event]) -> Iterator[Row]:
    for shop, start_ms, numbers in _windows(events, HOUR_MS, HOUR_MS):
        yield shop, start_ms, len(numbers), float(median(numbers))


def _counts(events: list[Event]) -> Iterator[Row]:
    for shop, start_ms, numbers in _windows(events, HOUR_MS, HOUR_MS):
        yield shop, start_ms, len(numbers)


def _chain(events: list[Event]) -> Iterator[Row]:
    for shop, start_ms, numbers in _windows(events, 6 * HOUR_MS, 6 * HOUR_MS):
        hours = {event.ms // HOUR_MS for event in events if event.shop == shop and event.n in set(numbers)}
        yield shop, start_ms, len(numbers), len(hours)


def _sessions(events: list[Event]) -> Iterator[Row]:
    for shop, of_shop in _by_shop(events).items():
        parts = [[of_shop[0]]]
        for before, event in pairwise(of_shop):
            if event.ms - before.ms > GAP_MS:
                parts.append([])
            parts[-1].append(event)
        for part in parts:
            yield shop, part[0].ms, len(part), sum(event.n for event in part)


def _sides(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    of_side = list(events)
    return [one for one in of_side if one.n % 2 == 0], [one for one in of_side if one.n % 2]


def _near(events: list[Event]) -> Iterator[Row]:
    """A full join: pairs, and the rows of both sides without one."""
    for shop, of_shop in _by_shop(events).items():
        even, odd = _sides(of_shop)
        pairs = [(one.n, other.n) for one in even for other in odd if abs(one.ms - other.ms) <= NEAR_MS]
        matched = {number for pair in pairs for number in pair}
        yield from ((shop, *pair) for pair in pairs)
        yield from ((shop, one.n, None) for one in even if one.n not in matched)
        yield from ((shop, None, one.n) for one in odd if one.n not in matched)


def _latest(events: list[Event]) -> Iterator[Row]:
    for shop, of_shop in _by_shop(events).items():
        even, odd = _sides(of_shop)
        for one in even:
            before = [other.n for other in odd if other.ms <= one.ms]
            yield shop, one.n, before[-1] if before else None


def _pairs_of_hours(events: list[Event]) -> Iterator[Row]:
    for shop, _, numbers in _windows(events, HOUR_MS, HOUR_MS):
        yield from ((shop, one, other) for one in numbers for other in numbers if not one % 2 and other % 2)


def _once(events: list[Event]) -> Iterator[Row]:
    """The rows that pass, in order of offsets: none is within the distance of another that passed."""
    times = defaultdict(list)
    for event in events:
        if all(abs(event.ms - ms) > WITHIN_MS for ms in times[event.shop]):
            times[event.shop].append(event.ms)
            yield event.shop, event.n


def _running(events: list[Event]) -> Iterator[Row]:
    for shop, of_shop in _by_shop(events).items():
        total = 0
        for records, event in enumerate(of_shop, 1):
            total += event.n
            yield shop, event.n, records, total


def _hourly(events: list[Event]) -> Iterator[Row]:
    return ((event.shop, event.ms // HOUR_MS, event.n) for event in events)


@dataclass(frozen=True)
class Answer:
    """The columns of a query's results, and its exact rows. with_last: the last records have results, too, because
    the query does not wait for the watermark with them."""

    columns: tuple[str, ...]
    rows: Callable[[list[Event]], Iterable[Row]]
    with_last: bool = False

    def exact(self, feed: ShopFeed) -> Counter[Row]:
        return Counter(self.rows(feed.all_events() if self.with_last else feed.events()))


_TOTALS = ("shop", "start_ms", "records", "total")
_PAIR = ("shop", "n_even", "n_odd")
ANSWERS: Mapping[str, Answer] = {
    "copy": Answer(("shop", "n"), lambda events: ((one.shop, one.n) for one in events), with_last=True),
    "tumbling": Answer(_TOTALS, _hours),
    "sliding": Answer(("shop", "start_ms", "records", "high"), _sliding),
    "session": Answer(_TOTALS, _sessions),
    "unloaded": Answer(_TOTALS, _hours),
    "store": Answer(("shop", "start_ms", "records", "middle"), _medians),
    "per_key": Answer(_TOTALS, _hours),
    "join": Answer(_PAIR, _near, with_last=True),
    "latest": Answer(_PAIR, _latest),
    "window_join": Answer(_PAIR, _pairs_of_hours, with_last=True),
    "deduplicate": Answer(("shop", "n"), _once, with_last=True),
    "running": Answer(("shop", "n", "records", "total"), _running),
    "process": Answer(("shop", "hour", "n"), _hourly),
    "chain": Answer(("shop", "start_ms", "records", "hours"), _chain),
    "sparks_own": Answer(("shop", "start_ms", "records"), _counts),
}
