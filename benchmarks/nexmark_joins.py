"""Nexmark's joins of two streams (q3, q4, q8, q9, q20) as frames of both sides, and their answers from the generator.

Rule: as in `nexmark_frames`. q9's winning bid needs no state of its own: an auction and its bids meet by auction and
time, and all pairs of an auction have the auction's event time. So a window over that axis holds them all, and closes
with the join's watermark of it, which says that no more bids of theirs come. q4 is one more window over the winners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_events import AUCTION, BID, PERSON
from benchmarks.nexmark_frames import BID_FIELDS, TIMES, WINDOW_MS, Events, Query, events_of, native_events
from benchmarks.nexmark_queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from keyedwm.spark.hosting.source_description import Source

CATEGORY, STATES = 10, ("OR", "ID", "CA")  # of q3; the category of q20, too
OPEN, OPEN_MS = "10 seconds", 10_000  # longer than any auction
HELD = "10 minutes"  # q3's bound, as in Beam
_PERSON_FIELDS = "id BIGINT, name STRING, city STRING, state STRING, dateTime BIGINT"
_AUCTION_FIELDS = "id BIGINT, seller BIGINT, category BIGINT, dateTime BIGINT, expires BIGINT"
# The highest price first, then the earliest bid: the highest number. Low bits hold the bidder.
_DELAY_BITS, _BIDDER_BITS = 14, 22
_RANK = (
    f"shiftleft(shiftleft(price, {_DELAY_BITS}) + {2**_DELAY_BITS - 1} - (bid_time - opened), {_BIDDER_BITS}) + bidder"
)


def _chosen(found: DataFrame, *columns: str) -> DataFrame:
    """Columns beside the times and control rows that there are."""
    return found.selectExpr(*columns, *(name for name in TIMES if name in found.columns))


def _between(left: str, right: str, least: str, most: str) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"{right} >= {left} + INTERVAL {least} AND {right} <= {left} + INTERVAL {most}")


def _apart(frame: DataFrame, prefix: str) -> DataFrame:
    """A native side with its own name of the time."""
    return frame.withColumnRenamed("timestamp", f"{prefix}_at")


# q3: who sells in a category, of some states.

_IN_STATES = f"state IN ({', '.join(map(repr, STATES))})"
_Q3 = ("name", "city", "state", "auction")


def _q3(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import join

    people = _chosen(events_of(rows, _PERSON_FIELDS, "person", where=_IN_STATES), "id seller", "name", "city", "state")
    sold = _chosen(events_of(rows, _AUCTION_FIELDS, "auction", where=f"category = {CATEGORY}"), "seller", "id auction")
    both = join(people, sold, "seller", within=(f"-{HELD}", HELD), names=("people", "auctions"), name="offered")
    return both.where("control IS NULL").select(*_Q3)


def _native_q3(rows: DataFrame) -> DataFrame:
    people = _apart(native_events(rows, _PERSON_FIELDS, "person").where(_IN_STATES), "person")
    sold = native_events(rows, _AUCTION_FIELDS, "auction").where(f"category = {CATEGORY}")
    sold = _apart(sold.selectExpr("seller", "id auction", "timestamp"), "auction")
    near = _between("person_at", "auction_at", f"-{HELD}", HELD)
    return people.join(sold, (people["id"] == sold["seller"]) & near).select(*_Q3)


def _a3(events: Events) -> pa.Table:
    people, sold = events.rows(PERSON), events.rows(AUCTION)
    people = people.filter(pc.is_in(people["state"], pa.array(STATES)))
    sold = sold.filter(pc.equal(sold["category"], CATEGORY)).select(["id", "seller"]).rename_columns(["auction", "id"])
    return people.join(sold, "id", join_type="inner").select(list(_Q3)).combine_chunks()


# q8: who registered and opened an auction in the same window. A semi join gives each person once.

_STARTED = f"dateTime - dateTime % {WINDOW_MS}"
_SAME = f"{WINDOW_MS} milliseconds"


def _q8(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import join

    people = _chosen(events_of(rows, _PERSON_FIELDS, "person"), "id", "name", f"{_STARTED} start")
    sold = _chosen(events_of(rows, _AUCTION_FIELDS, "auction"), "seller", f"{_STARTED} sold")
    new = join(
        people, sold, {"id": "seller"}, within=(f"-{_SAME}", _SAME), how="left_semi", condition="start = sold",
        names=("people", "auctions"), name="sellers",
    )  # fmt: skip
    return new.where("control IS NULL").select("id", "name", "start")


def _native_q8(rows: DataFrame) -> DataFrame:
    people = native_events(rows, _PERSON_FIELDS, "person").selectExpr("id", "name", f"{_STARTED} start", "timestamp")
    sold = native_events(rows, _AUCTION_FIELDS, "auction").selectExpr("seller", f"{_STARTED} sold", "timestamp")
    people, sold = _apart(people, "person"), _apart(sold, "auction")
    same = (people["id"] == sold["seller"]) & (people["start"] == sold["sold"])
    near = _between("person_at", "auction_at", f"-{_SAME}", _SAME)
    return people.join(sold, same & near, "leftsemi").select("id", "name", "start")


# q9: the winning bid of each auction; q4: of each category how many there are, and their sum (the average is theirs).

_Q9, _Q4 = ("auction", "bidder", "price", "dateTime"), ("category", "n", "total")
_OF_AUCTION = ("auction", "opened", "category")


def _sides(auctions: DataFrame, bids: DataFrame) -> tuple[DataFrame, DataFrame]:
    opened = _chosen(auctions, "id auction", "dateTime opened", "expires", "category")
    return opened, _chosen(bids, "auction", "bidder", "price", "dateTime bid_time")


def _won(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, join, max, tumbling  # noqa: A004

    opened, bids = _sides(events_of(rows, _AUCTION_FIELDS, "auction"), events_of(rows, BID_FIELDS, "bid"))
    offers = join(
        opened, bids, "auction", within=("0 seconds", OPEN), condition="bid_time <= expires",
        names=("auctions", "bids"), name="offers",
    )  # fmt: skip
    ranked = offers.selectExpr(*_OF_AUCTION, f"{_RANK} rank", "event_time_auctions", "watermark_auctions", "control")
    return aggregate(ranked, _OF_AUCTION, tumbling(OPEN), {"rank": max("rank")}, axis="auctions", name="won")


def _native_won(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    # Spark pushes its "is not null" of the join below the watermark, where the closing record has to pass.
    auctions = native_events(rows, _AUCTION_FIELDS, "auction").fillna(-1)
    opened, bids = _sides(auctions, native_events(rows, BID_FIELDS, "bid").fillna(-2))
    opened, bids = _apart(opened, "auction"), _apart(bids.withColumnRenamed("auction", "wanted"), "bid")
    meet = (opened["auction"] == bids["wanted"]) & F.expr("bid_time <= expires")
    offers = opened.join(bids, meet & _between("auction_at", "bid_at", "0 seconds", OPEN))
    return offers.groupBy(F.window("auction_at", OPEN), *_OF_AUCTION).agg(F.max(F.expr(_RANK)).alias("rank"))


_PRICE = f"shiftright(rank, {_DELAY_BITS + _BIDDER_BITS}) price"


def _winners(won: DataFrame) -> DataFrame:
    delay = f"{2**_DELAY_BITS - 1} - shiftright(rank, {_BIDDER_BITS}) % {2**_DELAY_BITS}"
    return won.selectExpr("auction", f"rank % {2**_BIDDER_BITS} bidder", _PRICE, f"opened + {delay} dateTime")


def _q9(rows: DataFrame | Source) -> DataFrame:
    return _winners(_won(rows).where("control IS NULL"))


def _native_q9(rows: DataFrame) -> DataFrame:
    return _winners(_native_won(rows))


def _q4(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, sum, tumbling  # noqa: A004

    won = _chosen(_won(rows), "category", _PRICE)
    made = {"n": count(), "total": sum("price")}
    return aggregate(won, "category", tumbling("1 hour"), made, name="sold").where("control IS NULL").select(*_Q4)


def _native_q4(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    won = _native_won(rows).select(F.window_time("window").alias("at"), "category", F.expr(_PRICE))
    made = F.count("*").alias("n"), F.sum("price").alias("total")
    return won.groupBy(F.window("at", "1 hour"), "category").agg(*made).select(*_Q4)


def _meeting(bids: pa.Table, sold: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Of each bid the place of its auction, and whether there is one."""
    ids, auction = sold["id"].to_numpy(), bids["auction"].to_numpy()
    order = np.argsort(ids)
    place = order[np.minimum(np.searchsorted(ids[order], auction), len(ids) - 1)]
    return place, ids[place] == auction


def _winning(events: Events) -> pa.Table:
    """The winning bids, with the category of their auction."""
    bids, sold = events.rows(BID), events.rows(AUCTION)
    place, meets = _meeting(bids, sold)
    time, price = bids["dateTime"].to_numpy(), bids["price"].to_numpy()
    counts = meets & (time >= sold["dateTime"].to_numpy()[place])
    at = np.flatnonzero(counts & (time <= sold["expires"].to_numpy()[place]))
    at = at[np.lexsort((time[at], -price[at], place[at]))]
    first = at[np.append(True, place[at][1:] != place[at][:-1])]
    category = pa.array(sold["category"].to_numpy()[place[first]])
    return bids.take(pa.array(first)).select(list(_Q9)).append_column("category", category)


def _a9(events: Events) -> pa.Table:
    return _winning(events).select(list(_Q9))


def _a4(events: Events) -> pa.Table:
    made = _winning(events).group_by("category").aggregate([([], "count_all"), ("price", "sum")])
    return made.rename_columns(list(_Q4))


# q20: each bid with its auction, of a category. Flink's join has no bound and keeps both sides for ever; a bid comes a
# hundred auctions after its own at most, or ten before, so q3's bound loses none.

_Q20_BID = ("auction", "bidder", "price", "channel", "url", "dateTime bid_dateTime", "extra bid_extra")
_Q20_AUCTION = (
    "id", "itemName", "description", "initialBid", "reserve", "dateTime auction_dateTime", "expires", "seller",
    "category", "extra auction_extra",
)  # fmt: skip
_Q20 = tuple(column.split()[-1] for column in (*_Q20_BID, *_Q20_AUCTION[1:]))
_Q20_BID_FIELDS = f"{BID_FIELDS}, channel STRING, url STRING, extra STRING"
_Q20_AUCTION_FIELDS = (
    f"{_AUCTION_FIELDS}, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, extra STRING"
)


def _q20(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import join

    bids = _chosen(events_of(rows, _Q20_BID_FIELDS, "bid"), *_Q20_BID)
    sold = events_of(rows, _Q20_AUCTION_FIELDS, "auction", where=f"category = {CATEGORY}")
    both = join(
        bids, _chosen(sold, *_Q20_AUCTION), {"auction": "id"}, within=(f"-{HELD}", HELD), names=("bids", "auctions"),
        name="expanded",
    )  # fmt: skip
    return both.where("control IS NULL").select(*_Q20)


def _native_q20(rows: DataFrame) -> DataFrame:
    bids = _apart(_chosen(native_events(rows, _Q20_BID_FIELDS, "bid"), *_Q20_BID), "bid")
    sold = native_events(rows, _Q20_AUCTION_FIELDS, "auction").where(f"category = {CATEGORY}")
    sold = _apart(_chosen(sold, *_Q20_AUCTION), "auction")
    near = _between("bid_at", "auction_at", f"-{HELD}", HELD)
    return bids.join(sold, (bids["auction"] == sold["id"]) & near).select(*_Q20)


def _a20(events: Events) -> pa.Table:
    bids, sold = events.rows(BID), events.rows(AUCTION)
    sold = sold.filter(pc.equal(sold["category"], CATEGORY))
    place, meets = _meeting(bids, sold)
    bids, sold = bids.filter(pa.array(meets)), sold.take(pa.array(place[meets]))
    chosen = [(bids, column) for column in _Q20_BID] + [(sold, column) for column in _Q20_AUCTION[1:]]
    columns = (side[column.split()[0]] for side, column in chosen)
    return pa.table(dict(zip(_Q20, columns, strict=True)))


JOINS: dict[str, Query] = {
    "q3": Query(_Q3, _q3, _native_q3, _a3, buckets=True),
    "q4": Query(_Q4, _q4, _native_q4, _a4, buckets=True),
    "q8-join": Query(("id", "name", "start"), _q8, _native_q8, QUERIES["q8"].answer, buckets=True),
    "q9": Query(_Q9, _q9, _native_q9, _a9, buckets=True),
    "q20": Query(_Q20, _q20, _native_q20, _a20, buckets=True, channels=True),
}
