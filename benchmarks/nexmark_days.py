"""Nexmark's statistics of bids (q12, q15, q16, q17) as frames of both sides, and their answers by numpy.

Rule: a day is a window of 24 hours of UTC, and its row is emitted once, when the watermark closes it. Flink's queries
have no windows: they update a row with each bid, and their last row of a day is this one. q12 counts by the record's
timestamp: in a topic with `message.timestamp.type=LogAppendTime` the time at which the broker appended the record, here
the one at which the generator sent it. A window by the clock of the reader would give other counts in each replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.nexmark_events import BID
from benchmarks.nexmark_frames import BID_FIELDS, TIMES, WINDOW_MS, Events, Query, events_of, native_events, of_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.operators.aggregates.spec import AggregateSpec
    from keyedwm.spark.hosting.source_description import Source

DAY, DAY_MS, MINUTE_MS = "1 day", 86_400_000, 60_000
LOW, HIGH = 10_000, 1_000_000
# The ranks of prices.
RANKS = (f"price < {LOW}", f"price >= {LOW} AND price < {HIGH}", f"price >= {HIGH}")
_RANK_BIDS = tuple(f"rank{rank}_bids" for rank in (1, 2, 3))


def date_of(ms: str) -> str:
    """The SQL of the UTC date of a time in ms, as 2015-07-15: no session's time zone counts."""
    return f"cast(date_from_unix_date(cast({ms} div {DAY_MS} AS int)) AS string)"


def minute_of(ms: str) -> str:
    """The SQL of the hour and minute of a time in ms, as 09:05."""
    minutes = f"{ms} div {MINUTE_MS}"
    return f"concat(lpad({minutes} div 60 % 24, 2, '0'), ':', lpad({minutes} % 60, 2, '0'))"


def day_text(days: np.ndarray) -> pa.Array:
    """The dates of days since 1970."""
    each, places = np.unique(days, return_inverse=True)
    return pa.array(each.astype("datetime64[D]").astype(str)).take(pa.array(places))


def minute_text(times: np.ndarray) -> pa.Array:
    """The hours and minutes of times in ms."""
    minutes, places = np.unique(times // MINUTE_MS % (DAY_MS // MINUTE_MS), return_inverse=True)
    texts = pa.array([f"{minute // 60:02}:{minute % 60:02}" for minute in minutes.tolist()], pa.string())
    return texts.take(pa.array(places))


def ranks(price: np.ndarray) -> list[np.ndarray]:
    """Of each rank which prices it has."""
    return [price < LOW, (price >= LOW) & (price < HIGH), price >= HIGH]


# q12: how many bids a bidder makes in each ten seconds, by the timestamp of the record.

_Q12 = ("bidder", "bid_count", "unix_millis(window.start) starttime", "unix_millis(window.end) endtime")


def _q12(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, tumbling

    bids = events_of(rows, "bidder BIGINT", "bid")
    counted_bids = aggregate(bids, "bidder", tumbling("10 seconds"), {"bid_count": count()}, name="bids")
    return counted_bids.where("control IS NULL").selectExpr(*_Q12)


def _staged_q12(read: Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, tumbling

    bids, by = read.option("where", of_kinds("bid")), {"bidder": "json:$.bidder::bigint"}
    counted_bids = aggregate(bids, by, tumbling("10 seconds"), {"bid_count": count()}, name="bids")
    return counted_bids.where("control IS NULL").selectExpr(*_Q12)


def _native_q12(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    bids = native_events(rows, "bidder BIGINT", "bid")
    windows = bids.groupBy(F.window("timestamp", "10 seconds"), "bidder").agg(F.count("*").alias("bid_count"))
    return windows.selectExpr(*_Q12)


def _a12(events: Events) -> pa.Table:
    rows = events.rows(BID)
    bidder, window = rows["bidder"].to_numpy(), rows["dateTime"].to_numpy() // WINDOW_MS
    spread = int(bidder.max()) + 1
    pairs, counts = np.unique(window * spread + bidder, return_counts=True)
    start = pairs // spread * WINDOW_MS
    return pa.table({"bidder": pairs % spread, "bid_count": counts, "starttime": start, "endtime": start + WINDOW_MS})


# q15: of each day how many bids, bidders and auctions there are, also of each rank; q16: of each channel and day.
# Distinct bidders are counted exactly, by two windows: each bidder's day, and then the day. A bid is a row of its
# bidder, and one of its auction; the bidders' rows count the bids.

_ROLES = {"bidders": "role = 'bidder'", "auctions": "role = 'auction'"}
_COUNTS = {"total_bids": "n", **{name: f"n{rank}" for rank, name in enumerate(_RANK_BIDS, 1)}}
_DISTINCT = {
    name: condition
    for role, of_role in _ROLES.items()
    for name, condition in (
        (f"total_{role}", of_role),
        *((f"rank{rank}_{role}", f"{of_role} AND n{rank} > 0") for rank in (1, 2, 3)),
    )
}
_REPORT = (*_COUNTS, *_DISTINCT)
_Q15, _Q16 = ("day", *_REPORT), ("channel", "day", "minute", *_REPORT)
_OF_PARTS = ("role", "n", "n1", "n2", "n3")
_DATE = f"{date_of('unix_millis(window.start)')} day"
_MINUTE = f"{minute_of('latest')} minute"


def _in_roles(bids: DataFrame, *columns: str) -> DataFrame:
    """A row of each bid's bidder and one of its auction; a control row stays one."""
    roles = "array('bidder', 'auction')"
    if "control" in bids.columns:
        roles = f"CASE WHEN control IS NULL THEN {roles} ELSE array('') END"
    times = [name for name in TIMES if name in bids.columns]
    each = bids.selectExpr(*columns, "bidder", "auction", "price", "dateTime", f"explode({roles}) role", *times)
    id_ = "CASE role WHEN 'bidder' THEN bidder ELSE auction END id"
    return each.selectExpr(*columns, "role", id_, "price", "dateTime", *times)


def _reported(bids: DataFrame, *by: str) -> DataFrame:
    """Our report of each day by some columns."""
    from keyedwm.spark import aggregate, count, count_if, max, sum, tumbling  # noqa: A004

    parts = {"n": count(), **{f"n{rank}": count_if(condition) for rank, condition in enumerate(RANKS, 1)}}
    parts |= {"latest": max("dateTime")}
    each = aggregate(_in_roles(bids, *by), (*by, "role", "id"), tumbling(DAY), parts, name="each")
    aggregates: dict[str, AggregateSpec] = {
        name: sum(column, where=_ROLES["bidders"]) for name, column in _COUNTS.items()
    }
    aggregates |= {name: count_if(condition) for name, condition in _DISTINCT.items()} | {"latest": max("latest")}
    rows = each.select(*by, *_OF_PARTS, "latest", "event_time", "watermark", "control")
    return aggregate(rows, by, tumbling(DAY), aggregates, name="report").where("control IS NULL")


def _native_reported(bids: DataFrame, *by: str) -> DataFrame:
    """Spark's."""
    from pyspark.sql import functions as F

    parts = [F.count("*").alias("n"), F.max("dateTime").alias("latest")]
    parts += [F.expr(f"count_if({condition}) n{rank}") for rank, condition in enumerate(RANKS, 1)]
    each = _in_roles(bids, *by).groupBy(F.window("timestamp", DAY), *by, "role", "id").agg(*parts)
    aggregates = [
        F.expr(f"sum({column}) FILTER (WHERE {_ROLES['bidders']}) {name}") for name, column in _COUNTS.items()
    ]
    aggregates += [F.expr(f"count_if({condition}) {name}") for name, condition in _DISTINCT.items()]
    rows = each.select(F.window_time("window").alias("at"), *by, *_OF_PARTS, "latest")
    return rows.groupBy(F.window("at", DAY), *by).agg(*aggregates, F.max("latest").alias("latest"))


def _q15(rows: DataFrame | Source) -> DataFrame:
    return _reported(events_of(rows, BID_FIELDS, "bid")).selectExpr(_DATE, *_REPORT)


def _native_q15(rows: DataFrame) -> DataFrame:
    return _native_reported(native_events(rows, BID_FIELDS, "bid")).selectExpr(_DATE, *_REPORT)


def _q16(rows: DataFrame | Source) -> DataFrame:
    bids = events_of(rows, f"{BID_FIELDS}, channel STRING", "bid")
    return _reported(bids, "channel").selectExpr("channel", _DATE, _MINUTE, *_REPORT)


def _native_q16(rows: DataFrame) -> DataFrame:
    bids = native_events(rows, f"{BID_FIELDS}, channel STRING", "bid")
    return _native_reported(bids, "channel").selectExpr("channel", _DATE, _MINUTE, *_REPORT)


def _report_of(rows: pa.Table, groups: np.ndarray, count: int) -> Mapping[str, np.ndarray]:
    """The columns of the report for each of `count` groups."""
    of_ranks = [np.ones(len(rows), bool), *ranks(rows["price"].to_numpy())]
    names = ("total", "rank1", "rank2", "rank3")
    columns = {
        f"{name}_bids": np.bincount(groups[one], minlength=count) for name, one in zip(names, of_ranks, strict=True)
    }
    for column in ("bidder", "auction"):
        ids = rows[column].to_numpy()
        spread = int(ids.max()) + 1
        for name, one in zip(names, of_ranks, strict=True):
            pairs = np.unique(groups[one] * spread + ids[one])
            columns[f"{name}_{column}s"] = np.bincount(pairs // spread, minlength=count)
    return columns


def _a15(events: Events) -> pa.Table:
    rows = events.rows(BID)
    days, groups = np.unique(rows["dateTime"].to_numpy() // DAY_MS, return_inverse=True)
    return pa.table({"day": day_text(days), **_report_of(rows, groups, len(days))})


def _a16(events: Events) -> pa.Table:
    rows = events.rows(BID)
    time, channel = rows["dateTime"].to_numpy(), rows["channel"].combine_chunks().dictionary_encode()
    of_days = time // DAY_MS * len(channel.dictionary) + channel.indices.to_numpy()
    pairs, groups = np.unique(of_days, return_inverse=True)
    latest = np.zeros(len(pairs), np.int64)
    np.maximum.at(latest, groups, time)
    return pa.table({
        "channel": channel.dictionary.take(pa.array(pairs % len(channel.dictionary))),
        "day": day_text(pairs // len(channel.dictionary)),
        "minute": minute_text(latest),
        **_report_of(rows, groups, len(pairs)),
    })  # fmt: skip


# q17: of each auction and day how many bids there are, also of each rank, and their prices.

_Q17 = ("auction", "day", "total_bids", *_RANK_BIDS, "min_price", "max_price", "avg_price", "sum_price")
_PRICES = ("min_price", "max_price", "sum_price div total_bids avg_price", "sum_price")
_PRICE_FIELDS = "auction BIGINT, price BIGINT"


def _q17(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, count, count_if, max, min, sum, tumbling  # noqa: A004

    aggregates = {"total_bids": count()}
    aggregates |= {name: count_if(condition) for name, condition in zip(_RANK_BIDS, RANKS, strict=True)}
    aggregates |= {"min_price": min("price"), "max_price": max("price"), "sum_price": sum("price")}
    days = aggregate(events_of(rows, _PRICE_FIELDS, "bid"), "auction", tumbling(DAY), aggregates, name="auctions")
    return days.where("control IS NULL").selectExpr("auction", _DATE, "total_bids", *_RANK_BIDS, *_PRICES)


def _native_q17(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    aggregates = [F.count("*").alias("total_bids")]
    aggregates += [F.expr(f"count_if({condition}) {name}") for name, condition in zip(_RANK_BIDS, RANKS, strict=True)]
    aggregates += [getattr(F, name)("price").alias(f"{name}_price") for name in ("min", "max", "sum")]
    days = native_events(rows, _PRICE_FIELDS, "bid").groupBy(F.window("timestamp", DAY), "auction").agg(*aggregates)
    return days.selectExpr("auction", _DATE, "total_bids", *_RANK_BIDS, *_PRICES)


def _a17(events: Events) -> pa.Table:
    rows = events.rows(BID)
    auction, price = rows["auction"].to_numpy(), rows["price"].to_numpy()
    pairs = np.stack([auction, rows["dateTime"].to_numpy() // DAY_MS])
    order = np.lexsort(pairs)
    pairs, price = pairs[:, order], price[order]
    first = np.flatnonzero(np.append(True, (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)))
    total = np.diff(np.append(first, len(price)))
    of_ranks = [np.add.reduceat(one.astype(np.int64), first) for one in ranks(price)]
    lowest, highest, total_price = (function.reduceat(price, first) for function in (np.minimum, np.maximum, np.add))
    columns = (
        pairs[0, first],
        day_text(pairs[1, first]),
        total,
        *of_ranks,
        lowest,
        highest,
        total_price // total,
        total_price,
    )
    return pa.table(dict(zip(_Q17, columns, strict=True)))


_Q12_COLUMNS = ("bidder", "bid_count", "starttime", "endtime")
DAYS: dict[str, Query] = {
    "q12": Query(_Q12_COLUMNS, _q12, _native_q12, _a12, buckets=True, on_pushed=_staged_q12),
    "q15": Query(_Q15, _q15, _native_q15, _a15, buckets=True),
    "q16": Query(_Q16, _q16, _native_q16, _a16, buckets=True, channels=True),
    "q17": Query(_Q17, _q17, _native_q17, _a17, buckets=True),
}
