"""Nexmark's joins of two streams (q3, q4, q6, q8, q9) as frames of both sides, and answers from the generator.

Rule: as in `nexmark_frames`. q9's winning bid needs no state of its own: an auction and its bids meet by auction and
time, and all pairs of an auction have the auction's event time. So a window over that axis holds them all, and closes
with the join's watermark of it, which says that no more bids of theirs come. q4 is one more window over the winners, q6
a running aggregate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_days import DAY
from benchmarks.nexmark_events import AUCTION, BID, PERSON
from benchmarks.nexmark_frames import BID_FIELDS, TIMES, WINDOW_MS, Events, Query, events_of, native_events
from benchmarks.nexmark_queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from keyedwm.spark.hosting.source_description import Source

CATEGORY, STATES = 10, ("OR", "ID", "CA")  # of q3
OPEN, OPEN_MS = "10 seconds", 10_000  # longer than any auction
JOIN_BOUND, JOIN_BOUND_MS = "10 minutes", 600_000  # q3's bound, as in Beam
_PERSON_FIELDS = "id BIGINT, name STRING, city STRING, state STRING, dateTime BIGINT"
_AUCTION_FIELDS = "id BIGINT, seller BIGINT, category BIGINT, dateTime BIGINT, expires BIGINT"
# The highest price first, then the earliest bid: the highest number. Low bits hold the bidder.
_DELAY_BITS, _BIDDER_BITS = 14, 22
_RANK = (
    f"shiftleft(shiftleft(price, {_DELAY_BITS}) + {2**_DELAY_BITS - 1} - (bid_time - opened), {_BIDDER_BITS}) + bidder"
)


def with_times(rows: DataFrame, *columns: str) -> DataFrame:
    """Columns beside the times and control rows that there are."""
    return rows.selectExpr(*columns, *(name for name in TIMES if name in rows.columns))


def between(left: str, right: str, least: str, most: str) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"{right} >= {left} + INTERVAL {least} AND {right} <= {left} + INTERVAL {most}")


def apart(frame: DataFrame, prefix: str) -> DataFrame:
    """A native side with its own name of the time."""
    return frame.withColumnRenamed("timestamp", f"{prefix}_at")


# q3: who sells in a category, of some states.

_IN_STATES = f"state IN ({', '.join(map(repr, STATES))})"
_Q3 = ("name", "city", "state", "auction")


def _q3(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import join

    people = with_times(
        events_of(rows, _PERSON_FIELDS, "person", where=_IN_STATES), "id seller", "name", "city", "state"
    )
    sold = with_times(
        events_of(rows, _AUCTION_FIELDS, "auction", where=f"category = {CATEGORY}"), "seller", "id auction"
    )
    both = join(
        people, sold, "seller", within=(f"-{JOIN_BOUND}", JOIN_BOUND), names=("people", "auctions"), name="offered"
    )
    return both.where("control IS NULL").select(*_Q3)


def _native_q3(rows: DataFrame) -> DataFrame:
    people = apart(native_events(rows, _PERSON_FIELDS, "person").where(_IN_STATES), "person")
    sold = native_events(rows, _AUCTION_FIELDS, "auction").where(f"category = {CATEGORY}")
    sold = apart(sold.selectExpr("seller", "id auction", "timestamp"), "auction")
    near = between("person_at", "auction_at", f"-{JOIN_BOUND}", JOIN_BOUND)
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

    people = with_times(events_of(rows, _PERSON_FIELDS, "person"), "id", "name", f"{_STARTED} start")
    sold = with_times(events_of(rows, _AUCTION_FIELDS, "auction"), "seller", f"{_STARTED} sold")
    new = join(
        people, sold, {"id": "seller"}, within=(f"-{_SAME}", _SAME), how="left_semi", condition="start = sold",
        names=("people", "auctions"), name="sellers",
    )  # fmt: skip
    return new.where("control IS NULL").select("id", "name", "start")


def _native_q8(rows: DataFrame) -> DataFrame:
    people = native_events(rows, _PERSON_FIELDS, "person").selectExpr("id", "name", f"{_STARTED} start", "timestamp")
    sold = native_events(rows, _AUCTION_FIELDS, "auction").selectExpr("seller", f"{_STARTED} sold", "timestamp")
    people, sold = apart(people, "person"), apart(sold, "auction")
    same = (people["id"] == sold["seller"]) & (people["start"] == sold["sold"])
    near = between("person_at", "auction_at", f"-{_SAME}", _SAME)
    return people.join(sold, same & near, "leftsemi").select("id", "name", "start")


# q9: the winning bid of each auction; q4: of each category how many there are, and their sum (the average is theirs).
# A frame of winners has the auction, when it opened, one more column of it, and the rank.

_Q9, _Q4 = ("auction", "bidder", "price", "dateTime"), ("category", "n", "total")
_PRICE = f"shiftright(rank, {_DELAY_BITS + _BIDDER_BITS})"
_BID_TIME = f"opened + {2**_DELAY_BITS - 1} - shiftright(rank, {_BIDDER_BITS}) % {2**_DELAY_BITS}"


def _sides(auctions: DataFrame, bids: DataFrame, beside: str) -> tuple[DataFrame, DataFrame]:
    open_auctions = with_times(auctions, "id auction", "dateTime opened", "expires", beside)
    return open_auctions, with_times(bids, "auction", "bidder", "price", "dateTime bid_time")


def _won(rows: DataFrame | Source, beside: str) -> DataFrame:
    from keyedwm.spark import aggregate, join, max, tumbling  # noqa: A004

    open_auctions, bids = _sides(
        events_of(rows, _AUCTION_FIELDS, "auction"), events_of(rows, BID_FIELDS, "bid"), beside
    )
    offers = join(
        open_auctions, bids, "auction", within=("0 seconds", OPEN), condition="bid_time <= expires",
        names=("auctions", "bids"), name="offers",
    )  # fmt: skip
    by = ("auction", "opened", beside)
    ranked = offers.selectExpr(*by, f"{_RANK} rank", "event_time_auctions", "watermark_auctions", "control")
    return aggregate(ranked, by, tumbling(OPEN), {"rank": max("rank")}, axis="auctions", name="won")


def _native_won(rows: DataFrame, beside: str) -> DataFrame:
    from pyspark.sql import functions as F

    # Spark pushes its "is not null" of the join below the watermark, where the closing record has to pass.
    auctions = native_events(rows, _AUCTION_FIELDS, "auction").fillna(-1)
    open_auctions, bids = _sides(auctions, native_events(rows, BID_FIELDS, "bid").fillna(-2), beside)
    open_auctions, bids = apart(open_auctions, "auction"), apart(bids.withColumnRenamed("auction", "wanted"), "bid")
    is_same_auction = (open_auctions["auction"] == bids["wanted"]) & F.expr("bid_time <= expires")
    offers = open_auctions.join(bids, is_same_auction & between("auction_at", "bid_at", "0 seconds", OPEN))
    return offers.groupBy(F.window("auction_at", OPEN), "auction", "opened", beside).agg(
        F.max(F.expr(_RANK)).alias("rank")
    )


def _winners(won: DataFrame) -> DataFrame:
    return won.selectExpr("auction", f"rank % {2**_BIDDER_BITS} bidder", f"{_PRICE} price", f"{_BID_TIME} dateTime")


def _q9(rows: DataFrame | Source) -> DataFrame:
    return _winners(_won(rows, "category").where("control IS NULL"))


def _native_q9(rows: DataFrame) -> DataFrame:
    return _winners(_native_won(rows, "category"))


def _q4(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, sum, tumbling  # noqa: A004

    won = with_times(_won(rows, "category"), "category", f"{_PRICE} price")
    aggregates = {"n": count(), "total": sum("price")}
    return aggregate(won, "category", tumbling("1 hour"), aggregates, name="sold").where("control IS NULL").select(*_Q4)


def _native_q4(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    won = _native_won(rows, "category").select(
        F.window_time("window").alias("at"), "category", F.expr(f"{_PRICE} price")
    )
    aggregates = F.count("*").alias("n"), F.sum("price").alias("total")
    return won.groupBy(F.window("at", "1 hour"), "category").agg(*aggregates).select(*_Q4)


# q6: at each sale the mean price of the seller's last ten, a whole number as Flink's. Sales are in order of the time of
# the winning bid, then of the auction. A sale's event time is the end of the ten seconds of this bid: winners of later
# windows have no earlier bid, so no sale is late, and `running` has all sales of ten seconds when it orders them.

LAST = 10
_Q6 = ("seller", "avg_price")
_AUCTION_BITS = 22
_PLACE = f"shiftleft({_BID_TIME}, {_AUCTION_BITS}) + auction"
_SLOT_END = f"timestamp_millis((({_BID_TIME}) div {OPEN_MS} + 1) * {OPEN_MS} - 1) event_time"
_MEAN = "aggregate(prices, 0L, (total, price) -> total + price) div size(prices) avg_price"


def _q6(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import running, top_n

    sales = _won(rows, "seller").selectExpr(
        "seller",
        f"{_PRICE} price",
        "'sales' topic",
        "0 partition",
        f"{_PLACE} offset",
        _SLOT_END,
        "watermark",
        "control",
    )
    latest = running(sales, "seller", {"prices": top_n(LAST, "offset", "price")}, name="latest")
    return latest.where("control IS NULL").selectExpr("seller", _MEAN)


def _native_q6(rows: DataFrame) -> DataFrame:
    """Spark has no aggregate over the rows so far: it keeps a day's sales."""
    from pyspark.sql import functions as F

    sale = F.expr(f"struct({_PLACE} place, {_PRICE} price)").alias("sale")
    sales = _native_won(rows, "seller").select(F.window_time("window").alias("at"), "seller", sale)
    days = sales.groupBy(F.window("at", DAY), "seller").agg(F.sort_array(F.collect_list("sale")).alias("sales"))
    each = days.selectExpr("seller", "sales.price prices", "explode(sequence(1, size(sales))) number")
    latest = f"slice(prices, greatest(number - {LAST - 1}, 1), least(number, {LAST})) prices"
    return each.selectExpr("seller", latest).selectExpr("seller", _MEAN)


def places(keys: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each key the place of its id, and whether there is one; ids are distinct."""
    order = np.argsort(ids)
    place = order[np.minimum(np.searchsorted(ids[order], keys), len(ids) - 1)]
    return place, ids[place] == keys


def _winning(events: Events) -> pa.Table:
    """The winning bids, with the category and the seller of their auction."""
    bids, sold = events.rows(BID), events.rows(AUCTION)
    place, meets = places(bids["auction"].to_numpy(), sold["id"].to_numpy())
    time, price = bids["dateTime"].to_numpy(), bids["price"].to_numpy()
    counts = meets & (time >= sold["dateTime"].to_numpy()[place])
    at = np.flatnonzero(counts & (time <= sold["expires"].to_numpy()[place]))
    at = at[np.lexsort((time[at], -price[at], place[at]))]
    first = at[np.append(True, place[at][1:] != place[at][:-1])]
    auctions = sold.take(pa.array(place[first]))
    won = bids.take(pa.array(first)).select(list(_Q9))
    return won.append_column("category", auctions["category"]).append_column("seller", auctions["seller"])


def _a9(events: Events) -> pa.Table:
    return _winning(events).select(list(_Q9))


def _a4(events: Events) -> pa.Table:
    sums = _winning(events).group_by("category").aggregate([([], "count_all"), ("price", "sum")])
    return sums.rename_columns(list(_Q4))


def _a6(events: Events) -> pa.Table:
    won = _winning(events)
    seller, price = won["seller"].to_numpy(), won["price"].to_numpy()
    order = np.lexsort((won["auction"].to_numpy(), won["dateTime"].to_numpy(), seller))
    seller, price = seller[order], price[order]
    ends = np.arange(1, len(price) + 1)
    first = np.maximum.accumulate(np.where(np.diff(seller, prepend=-1) != 0, ends, 0))
    count = np.minimum(ends - first + 1, LAST)
    total = np.append(0, np.cumsum(price))
    return pa.table({"seller": seller, "avg_price": (total[ends] - total[ends - count]) // count})


JOINS: dict[str, Query] = {
    "q3": Query(_Q3, _q3, _native_q3, _a3, buckets=True),
    "q4": Query(_Q4, _q4, _native_q4, _a4, buckets=True),
    "q6": Query(_Q6, _q6, _native_q6, _a6, buckets=True),
    "q8-join": Query(("id", "name", "start"), _q8, _native_q8, QUERIES["q8"].answer, buckets=True),
    "q9": Query(_Q9, _q9, _native_q9, _a9, buckets=True),
}
