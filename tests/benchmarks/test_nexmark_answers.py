"""Nexmark's answers of q6, q10 and q12 to q23 by numpy, held against the queries in plain Python, bid by bid.

A hundred events have one time, and the next hundred are 100 minutes later, so that they span three days: the rates of
the generator give minutes. Prices are rounded, so that many are equal. q6 and q23 have the generator's own times, at
which auctions are open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks import nexmark
from benchmarks.nexmark import IN_VECTORS, QUERIES, events_for
from benchmarks.nexmark_events import AUCTION, BID, FIRST_MS, PERSON, Stream
from benchmarks.nexmark_frames import PARTITIONS, WEIGHTS, Events

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
SALES = Events(Stream(rate=20_000, group=500), 6_000)
# At their end a person who is not yet among them bids and sells.
LONGER = Events(Stream(rate=1_000, group=500), 5_500)
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


def q6(bids: list[Bid]) -> list[tuple]:
    offers = grouped(bids, lambda bid: (bid["auction"],))
    sales: list[tuple] = []
    for auction in SALES.rows(AUCTION).to_pylist():
        opened, expires = auction["dateTime"], auction["expires"]
        bids_of = [bid for bid in offers.get((auction["id"],), []) if opened <= bid["dateTime"] <= expires]
        if bids_of:
            best = max(bids_of, key=lambda bid: (bid["price"], -bid["dateTime"]))
            sales.append((auction["seller"], best["dateTime"], auction["id"], best["price"]))
    prices: dict[int, list[int]] = {}
    rows = []
    for seller, _, _, price in sorted(sales):
        latest = prices.setdefault(seller, [])
        latest.append(price)
        rows.append((seller, sum(latest[-10:]) // len(latest[-10:])))
    assert max(map(len, prices.values())) > 20
    assert len({sale[:2] for sale in sales}) < len(sales)  # sales of a seller at one time
    return rows


def q10(bids: list[Bid]) -> list[tuple]:
    names = ("auction", "bidder", "price", "dateTime", "extra")
    return [(*(bid[name] for name in names), day(bid), f"{at(bid):%H:%M}") for bid in bids]


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
    return [(*plain(bid), *of_auction(auctions[bid["auction"]])) for bid in bids if bid["auction"] in auctions]


def of_auction(auction: dict) -> tuple:
    names = ("itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra")
    return tuple(auction[name] for name in names)


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


def q23(bids: list[Bid]) -> list[tuple]:
    people = {one["id"]: one for one in LONGER.rows(PERSON).to_pylist()}
    auctions = grouped(LONGER.rows(AUCTION).to_pylist(), lambda one: (one["seller"],))
    of_bid = ("bidder", "price", "channel", "url", "extra")
    of_person = ("id", "name", "emailAddress", "creditCard", "city", "state", "extra")
    rows = []
    for bid in bids:
        person = people.get(bid["bidder"])
        if person is not None:
            beside = (*(bid[name] for name in of_bid), *(person[name] for name in of_person))
            rows += [(*beside, *of_auction(auction)) for auction in auctions.get((bid["bidder"],), [])]
    assert any(bid["bidder"] not in people and (bid["bidder"],) in auctions for bid in bids)
    return rows


MODELS = {model.__name__: model for model in (q6, q10, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23)}


@pytest.mark.parametrize("name", list(MODELS))
def test_an_answer_is_that_of_bids_looked_at_one_by_one(name):
    query, events = QUERIES[name], {"q6": SALES, "q23": LONGER}.get(name, EVENTS)
    answer = query.answer(events_for(name, events))
    expected = MODELS[name](in_order(events.with_channels()))
    assert tuple(answer.column_names) == query.columns
    assert sorted(zip(*(column.to_pylist() for column in answer.columns), strict=True)) == sorted(expected)


def test_every_query_has_an_answer_that_is_proved_both_sides_and_its_place_among_the_modules():
    assert set(QUERIES) == {*(f"q{number}" for number in range(24)), "q8-join"}
    assert MODELS.keys() | IN_VECTORS.keys() | {"q11"} == QUERIES.keys()  # q11's model: test_nexmark_events
    for name, query in QUERIES.items():
        assert len(query.columns) <= len(WEIGHTS), f"{name}: a checksum would not see its last columns"
    page = (Path(nexmark.__file__).parent / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `nexmark_\w+` \| (.*) \|$", page, re.MULTILINE)
    assert set(re.findall(r"q\d+", " ".join(lines))) == QUERIES.keys() - {"q8-join"}


def test_a_query_that_fails_is_named_and_the_next_one_runs(capsys):
    names = []

    def run(name: str) -> None:
        names.append(name)
        if name == "q1":
            raise SystemExit("other rows than its answer: no figure")
        if name == "q2":
            raise ValueError("the stream has ended")

    assert nexmark.each_of(["q0", "q1", "q2", "q3"], run) == ["q1", "q2"]
    assert names == ["q0", "q1", "q2", "q3"]
    shown = capsys.readouterr().out
    assert "nexmark-q1 FAILED: SystemExit: other rows than its answer: no figure\n" in shown
    assert "nexmark-q2 FAILED: ValueError: the stream has ended\nnexmark-q3, 4 of 4, from " in shown


def test_bids_of_several_days_of_equal_times_and_of_equal_prices_are_among_the_events():
    bids = in_order(EVENTS)
    assert len({day(bid) for bid in bids}) == 3
    days = grouped(bids, lambda bid: (bid["bidder"], bid["auction"], day(bid))).values()
    assert any(len({bid["dateTime"] for bid in one[-2:]}) == 1 < len(one) for one in days)
    auctions = grouped(bids, lambda bid: (bid["auction"], day(bid))).values()
    highest = [sorted((bid["price"], bid["dateTime"]) for bid in one)[-10:] for one in auctions]
    assert any(len(set(one)) < len(one) for one in highest)
