"""Nexmark's last bids (q18) and highest bids (q19) as frames of both sides, and their answers by numpy.

Rule: keys alone are parsed, an operator keeps whole records, and what comes out is parsed. Records of equal event time
are ordered by partition and offset: so there is one answer. A day's rows are emitted once, when the watermark closes
the day: they are the last ones of Flink's queries, which have no windows and update them with each bid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.nexmark_days import DAY, DAY_MS
from benchmarks.nexmark_events import BID
from benchmarks.nexmark_frames import RECORD, Events, Query, events_of, native_events, of_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.spark.hosting.source_description import Source

MOST = 10
_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
_FIELDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime BIGINT, extra STRING"


def _parsed(records: DataFrame, *others: str) -> DataFrame:
    """The bids whose records are in the column `bid`."""
    from pyspark.sql import functions as F

    return records.select(F.from_json(F.col("bid").cast("string"), _FIELDS).alias("bid"), *others).select(
        "bid.*", *others
    )


# q18: the last bid of each bidder for each auction.


def _q18(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, last, tumbling

    bids = events_of(rows, "bidder BIGINT, auction BIGINT", "bid", beside=RECORD)
    latest = aggregate(bids, ("bidder", "auction"), tumbling(DAY), {"bid": last("value")}, name="latest")
    return _parsed(latest.where("control IS NULL"))


def _staged_q18(read: Source) -> DataFrame:
    from keyedwm.spark import aggregate, last, tumbling

    by = {"bidder": "json:$.bidder::bigint", "auction": "json:$.auction::bigint"}
    bids = read.option("where", of_kinds("bid"))
    latest = aggregate(bids, by, tumbling(DAY), {"bid": last("value")}, name="latest")
    return _parsed(latest.where("control IS NULL"))


def _native_q18(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    bids = native_events(rows, "bidder BIGINT, auction BIGINT", "bid", beside=RECORD)
    bid = F.max_by("value", F.struct("timestamp", "partition", "offset")).alias("bid")
    return _parsed(bids.groupBy(F.window("timestamp", DAY), "bidder", "auction").agg(bid))


def _a18(events: Events) -> pa.Table:
    rows = events.rows(BID)
    time = rows["dateTime"].to_numpy()
    keys = np.stack([rows["bidder"].to_numpy(), rows["auction"].to_numpy(), time // DAY_MS])
    order = np.lexsort((events.places(BID), time, *keys))
    keys = keys[:, order]
    is_last = np.append((keys[:, 1:] != keys[:, :-1]).any(axis=0), True)
    return rows.take(pa.array(order[is_last])).select(list(_BID))


# q19: the ten highest bids of each auction; of equal prices the earlier.


def _q19(rows: DataFrame | Source) -> DataFrame:
    from keyedwm.spark import aggregate, top_n, tumbling

    bids = events_of(rows, "auction BIGINT, price BIGINT", "bid", beside=RECORD)
    highest = aggregate(bids, "auction", tumbling(DAY), {"bids": top_n(MOST, "price", "value")}, name="highest")
    return _ranked(highest.where("control IS NULL"))


def _native_q19(rows: DataFrame) -> DataFrame:
    """Spark has no aggregate of the highest few that keeps no others: it keeps all bids of a day."""
    from pyspark.sql import functions as F

    bids = native_events(rows, "auction BIGINT, price BIGINT", "bid", beside=RECORD)
    each = F.struct((-F.col("price")).alias("below"), "timestamp", "partition", "offset", "value")
    every = bids.groupBy(F.window("timestamp", DAY), "auction").agg(F.collect_list(each).alias("bids"))
    return _ranked(every.selectExpr(f"slice(sort_array(bids), 1, {MOST}).value bids"))


def _ranked(highest: DataFrame) -> DataFrame:
    placed = highest.selectExpr("posexplode(bids) AS (place, bid)").selectExpr("bid", "place + 1L rank_number")
    return _parsed(placed, "rank_number")


def _a19(events: Events) -> pa.Table:
    rows = events.rows(BID)
    time = rows["dateTime"].to_numpy()
    keys = np.stack([rows["auction"].to_numpy(), time // DAY_MS])
    order = np.lexsort((events.places(BID), time, -rows["price"].to_numpy(), *keys))
    keys = keys[:, order]
    begins = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
    place = np.arange(len(order)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    is_high = place < MOST
    highest = rows.take(pa.array(order[is_high])).select(list(_BID))
    return highest.append_column("rank_number", pa.array(place[is_high] + 1))


TOPS: dict[str, Query] = {
    "q18": Query(_BID, _q18, _native_q18, _a18, buckets=True, on_pushed=_staged_q18, channels=True, whole=True),
    "q19": Query((*_BID, "rank_number"), _q19, _native_q19, _a19, buckets=True, channels=True, whole=True),
}
