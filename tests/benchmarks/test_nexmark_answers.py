"""Nexmark's answers of q12 to q22 by numpy, held against the queries in plain Python, bid by bid.

A hundred events have one time, and the next hundred are 100 minutes later, so that they span three days: the rates of
the generator give minutes. Prices are rounded, so that many are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from benchmarks.nexmark import QUERIES, events_for
from benchmarks.nexmark_events import AUCTION, BID, FIRST_MS, Stream
from benchmarks.nexmark_frames import PARTITIONS, Events

STRETCH = 60_000  # ms of event time for one


@dataclass(frozen=True)
class Spread(Events):
    """Events of 1,000/s, in hundreds that have one time, as far apart as those of one a minute."""

    def rows(self, kind: int) -> pa.Table:
        rows = Events.rows(self, kind)
        times = FIRST_MS + (rows["dateTime"].to_numpy() - FIRST_MS) // 100 * 100 * STRETCH
        rows = rows.set_column(rows.column_names.index("dateTime"), "dateTime", pa.array(times))
        if kind != BID:
            return rows
        prices = rows["price"].to_numpy() // 200_000 * 200_000
        return rows.set_column(rows.column_names.index("price"), "price", pa.array(prices))


EVENTS = Spread(Stream(rate=1_000, group=500), 3_000)
Bid = dict


def in_order(events: Events) -> list[Bid]:
    """The bids in order of event time, then of partition and offset."""
    bids = events.rows(BID).to_pylist()
    numbers = events.numbers(BID).tolist()
    sent = {number: at for at, number in enumerate(events.stream.numbers(0, events.count).tolist())}
    place = [(sent[number] % PARTITIONS, sent[number] // PARTITIONS) for number in numbers]
    order = sorted(range(len(bids)), key=lambda at: (bids[at]["dateTime"], place[at]))
    return [bids[at] for at in order]


def at(bid: Bid) -> datetime:
    return datetime.fromtimestamp(bid["dateTime"] / 1_000, timezone.utc)


def day(bid: Bid) -> str:
    return f"{at(bid):%Y-%m-%d}"


def grouped(bids: Iterable[Bid], key: Callable[[Bid], tuple]) -> dict[tuple, list[Bid]]:
    groups: dict[tuple, list[Bid]] = {}
    for bid in bids:
        groups.setdefault(key(bid), []).append(bid)
    return groups


def by_rank(bids: list[Bid]) -> list[list[Bid]]:
    """All bids, and those of each rank of prices."""
    ranked: list[list[Bid]] = [bids, [], [], []]
    for bid in bids:
        ranked[1 if bid["price"] < 10_000 else 2 if bid["price"] < 1_000_000 else 3].append(bid)
    return ranked


def report(bids: list[Bid]) -> tuple:
    ranked = by_rank(bids)
    counts = [len(one) for one in ranked]
    for column in ("bidder", "auction"):
        counts += [len({bid[column] for bid in one}) for one in ranked]
    return tuple(counts)


def q12(bids: list[Bid]) -> list[tuple]:
    windows = grouped(bids, lambda bid: (bid["bidder"], bid["dateTime"] // 10_000 * 10_000))
    return [(bidder, len(one), start, start + 10_000) for (bidder, start), one in windows.items()]


def q13(bids: list[Bid]) -> list[tuple]:
    side = {key: str(key) for key in range(10_000)}
    return [
        (bid["auction"], bid["bidder"], bid["price"], bid["dateTime"], side[bid["auction"] % 10_000]) for bid in bids
    ]


def q14(bids: list[Bid]) -> list[tuple]:
    rows = []
    for bid in bids:
        milli, hour = bid["price"] * 908, at(bid).hour
        part = "dayTime" if 8 <= hour <= 18 else "otherTime" if hour in (7, 19) else "nightTime"
        if 1_000_000_000 < milli < 50_000_000_000:
            letters = bid["extra"].count("c")
            rows.append((bid["auction"], bid["bidder"], milli, part, bid["dateTime"], bid["extra"], letters))
    assert {row[3] for row in rows} == {"dayTime", "nightTime", "otherTime"}
    return rows


def q15(bids: list[Bid]) -> list[tuple]:
    return [(*key, *report(one)) for key, one in grouped(bids, lambda bid: (day(bid),)).items()]


def q16(bids: list[Bid]) -> list[tuple]:
    days = grouped(bids, lambda bid: (bid["channel"], day(bid)))
    return [(*key, max(f"{at(bid):%H:%M}" for bid in one), *report(one)) for key, one in days.items()]


def q17(bids: list[Bid]) -> list[tuple]:
    rows = []
    for key, one in grouped(bids, lambda bid: (bid["auction"], day(bid))).items():
        prices = [bid["price"] for bid in one]
        total = sum(prices)
        rows.append((*key, *map(len, by_rank(one)), min(prices), max(prices), total // len(prices), total))
    return rows


def plain(bid: Bid) -> tuple:
    return tuple(bid[name] for name in ("auction", "bidder", "price", "channel", "url", "dateTime", "extra"))


def q18(bids: list[Bid]) -> list[tuple]:
    days = grouped(bids, lambda bid: (bid["bidder"], bid["auction"], day(bid)))
    return [plain(one[-1]) for one in days.values()]


def q19(bids: list[Bid]) -> list[tuple]:
    rows = []
    for one in grouped(bids, lambda bid: (bid["auction"], day(bid))).values():
        highest = sorted(one, key=lambda bid: -bid["price"])[:10]  # stable: of equal prices the earlier
        rows += [(*plain(bid), rank) for rank, bid in enumerate(highest, 1)]
    return rows


def q20(bids: list[Bid]) -> list[tuple]:
    auctions = {one["id"]: one for one in EVENTS.rows(AUCTION).to_pylist() if one["category"] == 10}
    names = ("itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra")
    return [
        (*plain(bid), *(auctions[bid["auction"]][name] for name in names)) for bid in bids if bid["auction"] in auctions
    ]


def q21(bids: list[Bid]) -> list[tuple]:
    large = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    rows = []
    for bid in bids:
        named = re.search("(&|^)channel_id=([^&]*)", bid["url"])
        id_ = large.get(bid["channel"].lower(), named and named[2])
        if id_ is not None:
            rows.append((bid["auction"], bid["bidder"], bid["price"], bid["channel"], id_))
    assert 0 < len(rows) < len(bids)
    return rows


def q22(bids: list[Bid]) -> list[tuple]:
    rows = []
    for bid in bids:
        _, _, _, one, two, three, _ = bid["url"].split("/")
        rows.append((bid["auction"], bid["bidder"], bid["price"], bid["channel"], one, two, three))
    return rows


MODELS = {model.__name__: model for model in (q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)}


@pytest.mark.parametrize("name", list(MODELS))
def test_an_answer_is_that_of_bids_looked_at_one_by_one(name):
    query = QUERIES[name]
    answer = query.answer(events_for(name, EVENTS))
    expected = MODELS[name](in_order(EVENTS.with_channels()))
    assert tuple(answer.column_names) == query.columns
    assert sorted(zip(*(column.to_pylist() for column in answer.columns), strict=True)) == sorted(expected)


def test_bids_of_several_days_of_equal_times_and_of_equal_prices_are_among_the_events():
    bids = in_order(EVENTS)
    assert len({day(bid) for bid in bids}) == 3
    days = grouped(bids, lambda bid: (bid["bidder"], bid["auction"], day(bid))).values()
    assert any(len({bid["dateTime"] for bid in one[-2:]}) == 1 < len(one) for one in days)
    auctions = grouped(bids, lambda bid: (bid["auction"], day(bid))).values()
    highest = [sorted((bid["price"], bid["dateTime"]) for bid in one)[-10:] for one in auctions]
    assert any(len(set(one)) < len(one) for one in highest)
