"""Nexmark's bids with their auctions (q20), and with the bidder and what the bidder sells (q23), and their answers.

Rule: Flink's joins have no bound and keep all sides for ever. Here rows meet within q3's bound, which loses none: a
bidder, a seller, or a bid's auction is one of the last thousand persons or hundred auctions, or of the ten to come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_events import AUCTION, BID, PERSON
from benchmarks.nexmark_frames import BID_FIELDS, Events, Query, events_of, native_events
from benchmarks.nexmark_joins import CATEGORY, JOIN_BOUND, JOIN_BOUND_MS, apart, between, places, with_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from keyedwm.spark.hosting.source_description import Source

_WITHIN = (f"-{JOIN_BOUND}", JOIN_BOUND)
_BID_FIELDS = f"{BID_FIELDS}, channel STRING, url STRING, extra STRING"
_AUCTION_FIELDS = (
    "id BIGINT, seller BIGINT, category BIGINT, dateTime BIGINT, expires BIGINT, itemName STRING, description STRING, "
    "initialBid BIGINT, reserve BIGINT, extra STRING"
)
_PERSON_FIELDS = (
    "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, extra STRING"
)
# An auction beside a bid.
_AUCTION = (
    "itemName", "description", "initialBid", "reserve", "dateTime auction_dateTime", "expires", "seller", "category",
    "extra auction_extra",
)  # fmt: skip


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.split()[-1] for column in columns)


def _columns(rows: pa.Table, at: np.ndarray, columns: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """These columns of the rows at some places, by their new names."""
    return {column.split()[-1]: rows[column.split()[0]].take(pa.array(at)) for column in columns}


# q20: each bid with its auction, of a category.

_Q20_BID = ("auction", "bidder", "price", "channel", "url", "dateTime bid_dateTime", "extra bid_extra")
_Q20 = _names((*_Q20_BID, *_AUCTION))


def _q20(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import join

    bids = with_times(events_of(rows, _BID_FIELDS, "bid"), *_Q20_BID)
    sold = events_of(rows, _AUCTION_FIELDS, "auction", where=f"category = {CATEGORY}")
    both = join(
        bids, with_times(sold, "id", *_AUCTION), {"auction": "id"}, within=_WITHIN, names=("bids", "auctions"),
        name="expanded",
    )  # fmt: skip
    return both.where("control IS NULL").select(*_Q20)


def _native_q20(rows: DataFrame) -> DataFrame:
    bids = apart(with_times(native_events(rows, _BID_FIELDS, "bid"), *_Q20_BID), "bid")
    sold = native_events(rows, _AUCTION_FIELDS, "auction").where(f"category = {CATEGORY}")
    sold = apart(with_times(sold, "id", *_AUCTION), "auction")
    return bids.join(sold, (bids["auction"] == sold["id"]) & between("bid_at", "auction_at", *_WITHIN)).select(*_Q20)


def _a20(events: Events) -> pa.Table:
    bids, sold = events.rows(BID), events.rows(AUCTION)
    sold = sold.filter(pc.equal(sold["category"], CATEGORY))
    place, meets = places(bids["auction"].to_numpy(), sold["id"].to_numpy())
    return pa.table(_columns(bids, np.flatnonzero(meets), _Q20_BID) | _columns(sold, place[meets], _AUCTION))


# q23: each bid of a person who sells, once with each auction of this person. Persons and their auctions meet first, as
# they are few.

_Q23_BID = ("bidder", "price", "channel", "url", "extra bid_extra")
_Q23_PERSON = ("id person_id", "name", "emailAddress", "creditCard", "city", "state", "extra person_extra")
_Q23 = _names((*_Q23_BID, *_Q23_PERSON, *_AUCTION))


def _q23(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import join

    people = with_times(events_of(rows, _PERSON_FIELDS, "person"), *_Q23_PERSON)
    sold = with_times(events_of(rows, _AUCTION_FIELDS, "auction"), *_AUCTION)
    sellers = join(
        people, sold, {"person_id": "seller"}, within=_WITHIN, names=("people", "auctions"), name="sellers"
    )  # fmt: skip
    bids = with_times(events_of(rows, _BID_FIELDS, "bid"), *_Q23_BID)
    bounds = {("bids", axis): _WITHIN for axis in ("people", "auctions")}
    both = join(bids, sellers, {"bidder": "person_id"}, bounds=bounds, names=("bids", "sellers"), name="expanded")
    return both.where("control IS NULL").select(*_Q23)


def _native_q23(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    people = apart(with_times(native_events(rows, _PERSON_FIELDS, "person"), *_Q23_PERSON), "person")
    sold = apart(with_times(native_events(rows, _AUCTION_FIELDS, "auction"), *_AUCTION), "auction")
    bids = apart(with_times(native_events(rows, _BID_FIELDS, "bid"), *_Q23_BID), "bid")
    sells = (people["person_id"] == sold["seller"]) & between("person_at", "auction_at", *_WITHIN)
    # Spark rejects a stream with two event times, so the auctions' time goes on as a number.
    sellers = people.join(sold, sells).withColumn("auction_at", F.unix_millis("auction_at"))
    apart_ms = F.abs(F.unix_millis("bid_at") - F.col("auction_at"))
    near = between("bid_at", "person_at", *_WITHIN) & (apart_ms <= JOIN_BOUND_MS)
    return bids.join(sellers, (bids["bidder"] == sellers["person_id"]) & near).select(*_Q23)


def _a23(events: Events) -> pa.Table:
    bids, people, sold = events.rows(BID), events.rows(PERSON), events.rows(AUCTION)
    bidder, seller = bids["bidder"].to_numpy(), sold["seller"].to_numpy()
    person, is_known = places(bidder, people["id"].to_numpy())
    by_seller = np.argsort(seller, kind="stable")
    first, behind = (np.searchsorted(seller[by_seller], bidder, side) for side in ("left", "right"))
    count = np.where(is_known, behind - first, 0)
    bid = np.repeat(np.arange(len(bidder)), count)
    number = np.arange(len(bid)) - np.repeat(np.cumsum(count) - count, count)  # of an auction among its bid's
    auction = by_seller[first[bid] + number]
    return pa.table(
        _columns(bids, bid, _Q23_BID) | _columns(people, person[bid], _Q23_PERSON) | _columns(sold, auction, _AUCTION)
    )


EXPANDED: dict[str, Query] = {
    "q20": Query(_Q20, _q20, _native_q20, _a20, buckets=True, channels=True),
    "q23": Query(_Q23, _q23, _native_q23, _a23, buckets=True, channels=True),
}
