"""Nexmark's queries of one stream (q0, q1, q2, q5, q7, q8, q11) as frames of both sides, and their answers by numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_events import AUCTION, BID, PERSON
from benchmarks.nexmark_frames import (
    BID_FIELDS,
    EXCHANGE,
    TIMES,
    WINDOW_MS,
    Events,
    Query,
    events_of,
    native_events,
    of_kinds,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.spark.hosting.source_description import Source

HOP_MS = 2_000
EVERY = 123  # q2 looks at every so-many-th auction

# q0, q1, q2: no state, the same for both.


def _q0(rows: DataFrame | Source) -> DataFrame:
    return events_of(rows, f"{BID_FIELDS}, extra STRING", "bid").select(*Q0)


def _q1(rows: DataFrame | Source) -> DataFrame:
    bids = events_of(rows, f"{BID_FIELDS}, extra STRING", "bid")
    return bids.selectExpr("auction", "bidder", f"price * {EXCHANGE} milli_euro", "dateTime", "extra")


def _q2(rows: DataFrame | Source) -> DataFrame:
    return events_of(rows, BID_FIELDS, "bid").where(f"auction % {EVERY} = 0").select("auction", "price")


def _a0(events: Events) -> pa.Table:
    return events.rows(BID)


def _a1(events: Events) -> pa.Table:
    rows = events.rows(BID)
    return rows.set_column(2, "milli_euro", pc.multiply(rows["price"], EXCHANGE))


def _a2(events: Events) -> pa.Table:
    rows = events.rows(BID)
    return rows.filter(pa.array(rows["auction"].to_numpy() % EVERY == 0)).select(["auction", "price"])


# q5: the auctions with the most bids in each hopping window, ties included. A pair is n above, the auction below.

_BITS = 36
_PAIR = f"shiftleft(n, {_BITS}) + auction"


def _q5(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, sliding

    bids = events_of(rows, "auction BIGINT", "bid")
    return _gathered(aggregate(bids, "auction", sliding("10 seconds", "2 seconds"), {"n": count()}, name="counted"))


def _staged_q5(read: Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, sliding

    by, window = {"auction": "json:$.auction::bigint"}, sliding("10 seconds", "2 seconds")
    return _gathered(aggregate(read.option("where", of_kinds("bid")), by, window, {"n": count()}, name="counted"))


def _gathered(counted_bids: DataFrame) -> DataFrame:
    from keyedwm.spark import aggregate, collect, max, tumbling  # noqa: A004

    pairs = counted_bids.selectExpr(f"{_PAIR} pair", "event_time", "watermark", "control")
    aggregates = {"pairs": collect("pair"), "highest": max("pair")}
    gathered_rows = aggregate(pairs, (), tumbling("2 seconds"), aggregates, name="gathered")
    return _hottest(gathered_rows.where("control IS NULL"))


def _native_q5(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    bids = native_events(rows, "auction BIGINT", "bid")
    counted_bids = bids.groupBy(F.window("timestamp", "10 seconds", "2 seconds"), "auction").agg(
        F.count("*").alias("n")
    )
    slot = F.window(F.window_time("window"), "2 seconds").alias("window")
    pair = F.expr(_PAIR)
    return _hottest(counted_bids.groupBy(slot).agg(F.collect_list(pair).alias("pairs"), F.max(pair).alias("highest")))


def _hottest(gathered: DataFrame) -> DataFrame:
    """Of each window's pairs those with the highest n; all windows that end together lie in one hop.

    The highest is aggregated beside them: Spark evaluates `array_max(pairs)` once more for each pair.
    """
    end, top, pair = "unix_millis(window.end) end", f"shiftright(highest, {_BITS}) top", "explode(pairs) pair"
    pairs_of_top = gathered.selectExpr(end, top, pair).selectExpr("*", f"shiftright(pair, {_BITS}) n").where("n = top")
    return pairs_of_top.selectExpr(f"end - {WINDOW_MS} start", "end", f"pair - shiftleft(n, {_BITS}) auction", "n")


def _a5(events: Events) -> pa.Table:
    rows = events.rows(BID)
    hop = rows["dateTime"].to_numpy() // HOP_MS
    low, auction = int(hop.min()), rows["auction"].to_numpy()
    spread = int(auction.max()) + 1
    framed, counts = np.unique((hop - low) * spread + auction, return_counts=True)
    hops = WINDOW_MS // HOP_MS
    every = np.concatenate([framed + at * spread for at in range(hops)])
    pairs, place = np.unique(every, return_inverse=True)
    n = np.bincount(place, np.tile(counts, hops)).astype(np.int64)
    last, auction = pairs // spread, pairs % spread
    top = np.zeros(int(last.max()) + 1, np.int64)
    np.maximum.at(top, last, n)
    hot = n == top[last]
    end = (last[hot] + low + 1) * HOP_MS
    return pa.table({"start": end - WINDOW_MS, "end": end, "auction": auction[hot], "n": n[hot]})


# q7: the highest bid of each window; of equal prices the highest auction, bidder, time: then there is one answer. A row
# by its order is no aggregate of ours: Spark's own window on both sides.


def _q7(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import with_watermark

    return _highest(with_watermark(events_of(rows, BID_FIELDS, "bid")), "event_time")


def _native_q7(rows: DataFrame) -> DataFrame:
    return _highest(native_events(rows, BID_FIELDS, "bid"), "timestamp")


def _highest(bids: DataFrame, time: str) -> DataFrame:
    from pyspark.sql import functions as F

    top = bids.groupBy(F.window(time, "10 seconds")).agg(F.max(F.struct(*_Q7_ORDER)).alias("bid"))
    return top.select(*(f"bid.{name}" for name in Q7))


def _a7(events: Events) -> pa.Table:
    rows = events.rows(BID)
    window = rows["dateTime"].to_numpy() // WINDOW_MS
    columns = [rows[name].to_numpy() for name in _Q7_ORDER]
    order = np.lexsort((*reversed(columns), window))
    last = order[np.append(window[order][1:] != window[order][:-1], True)]
    return rows.take(pa.array(last)).select(list(Q7))


# q8: who registered and opened an auction in the same window, once each. Both kinds meet in one column.


def _people(events: DataFrame) -> DataFrame:
    beside = [name for name in TIMES if name in events.columns]
    return events.selectExpr("CASE WHEN kind = 'auction' THEN seller ELSE id END id", "name", "seller", *beside)


def _q8(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, max, tumbling  # noqa: A004

    people = _people(events_of(rows, _Q8_FIELDS, "person", "auction"))
    aggregates = {"name": max("name"), "sold": count("seller")}
    return _new_sellers(
        aggregate(people, "id", tumbling("10 seconds"), aggregates, name="sellers").where("control IS NULL")
    )


def _native_q8(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    people = _people(native_events(rows, _Q8_FIELDS, "person", "auction"))
    grouped = people.groupBy(F.window("timestamp", "10 seconds").alias("window"), "id")
    return _new_sellers(grouped.agg(F.max("name").alias("name"), F.count("seller").alias("sold")))


def _new_sellers(people: DataFrame) -> DataFrame:
    return people.where("name IS NOT NULL AND sold > 0").selectExpr("id", "name", "unix_millis(window.start) start")


def _a8(events: Events) -> pa.Table:
    people, sold = events.rows(PERSON), events.rows(AUCTION)
    seller_windows = set(
        zip(sold["seller"].to_pylist(), (sold["dateTime"].to_numpy() // WINDOW_MS).tolist(), strict=True)
    )
    window = people["dateTime"].to_numpy() // WINDOW_MS
    is_new = [pair in seller_windows for pair in zip(people["id"].to_pylist(), window.tolist(), strict=True)]
    start = pa.array(window * WINDOW_MS)
    return people.select(["id", "name"]).append_column("start", start).filter(pa.array(is_new))


# q11: how many bids a bidder makes in each session, which ends after ten seconds without one.

_Q11 = ("bidder", "n", "unix_millis(window.start) start", "unix_millis(window.end) end")


def _q11(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, session

    bids = events_of(rows, "bidder BIGINT", "bid")
    sessions = aggregate(bids, "bidder", session("10 seconds"), {"n": count()}, name="sessions")
    return sessions.where("control IS NULL").selectExpr(*_Q11)


def _staged_q11(read: Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, session

    bids, by = read.option("where", of_kinds("bid")), {"bidder": "json:$.bidder::bigint"}
    sessions = aggregate(bids, by, session("10 seconds"), {"n": count()}, name="sessions")
    return sessions.where("control IS NULL").selectExpr(*_Q11)


def _native_q11(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    # The closing record has no bidder: a group of its own. A condition on the key alone would be moved to before the
    # watermark, which would not see that record.
    bids = native_events(rows, "bidder BIGINT", "bid")
    grouped = bids.groupBy(F.session_window("timestamp", "10 seconds").alias("window"), "bidder")
    return grouped.agg(F.count("*").alias("n")).where("coalesce(bidder, -n) > 0").selectExpr(*_Q11)


def _a11(events: Events) -> pa.Table:
    rows = events.rows(BID)
    bidder, time = rows["bidder"].to_numpy(), rows["dateTime"].to_numpy()
    order = np.lexsort((time, bidder))
    bidder, time = bidder[order], time[order]
    starts = np.append(0, np.flatnonzero((np.diff(bidder) != 0) | (np.diff(time) > WINDOW_MS)) + 1)
    ends = np.append(starts[1:], len(time))
    return pa.table(
        {"bidder": bidder[starts], "n": ends - starts, "start": time[starts], "end": time[ends - 1] + WINDOW_MS}
    )


Q0 = ("auction", "bidder", "price", "dateTime", "extra")
Q7 = ("auction", "price", "bidder", "dateTime")
_Q7_ORDER = ("price", "auction", "bidder", "dateTime")
_Q8_FIELDS = "id BIGINT, name STRING, seller BIGINT"
QUERIES: dict[str, Query] = {
    "q0": Query(Q0, _q0, _q0, _a0, windowed=False),
    "q1": Query(("auction", "bidder", "milli_euro", "dateTime", "extra"), _q1, _q1, _a1, windowed=False),
    "q2": Query(("auction", "price"), _q2, _q2, _a2, windowed=False),
    "q5": Query(("start", "end", "auction", "n"), _q5, _native_q5, _a5, buckets=True, on_pushed=_staged_q5),
    "q7": Query(Q7, _q7, _native_q7, _a7),
    "q8": Query(("id", "name", "start"), _q8, _native_q8, _a8, buckets=True),
    "q11": Query(("bidder", "n", "start", "end"), _q11, _native_q11, _a11, buckets=True, on_pushed=_staged_q11),
}
