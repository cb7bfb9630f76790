"""Nexmark's queries of single bids (q13, q14, q21, q22) as frames of both sides, and their answers by numpy.

Rule: none has state, so both sides select with the same expressions and differ in the source alone. Hours are those of
UTC, worked out of milliseconds, so that no session's time zone counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_channels import LARGE
from benchmarks.nexmark_events import BID
from benchmarks.nexmark_frames import BID_FIELDS, EXCHANGE, Events, Query, events_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.spark.hosting.source_description import Source

SIDE_ROWS = 10_000  # of q13's side input
HOUR_MS = 3_600_000
_URL_FIELDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING"
_BID = ("auction", "bidder", "price")

# q13: bids beside the row of a side input that does not change: a broadcast join of Spark, on both sides.

_Q13 = (*_BID, "dateTime", "value")


def _q13(rows: DataFrame | Source) -> DataFrame:
    from pyspark.sql import functions as F

    bids = events_of(rows, BID_FIELDS, "bid")
    side = bids.sparkSession.range(SIDE_ROWS).selectExpr("id", "cast(id AS string) value")
    return bids.join(F.broadcast(side), F.expr(f"auction % {SIDE_ROWS} = id")).select(*_Q13)


def _a13(events: Events) -> pa.Table:
    rows = events.rows(BID)
    value = (rows["auction"].to_numpy() % SIDE_ROWS).astype(str)
    return rows.append_column("value", pa.array(value)).select(list(_Q13))


# q14: bids of some prices in euro, the part of the day, and how often a letter is in the filling.

LOW, HIGH = 1_000_000_000, 50_000_000_000  # thousandths of a euro
_Q14 = ("auction", "bidder", "milli_euro", "bidTimeType", "dateTime", "extra", "c_counts")
_MILLI_EURO = f"price * {EXCHANGE}"
_HOUR = f"dateTime div {HOUR_MS} % 24"
_PART_OF_DAY = f"""
    CASE WHEN {_HOUR} BETWEEN 8 AND 18 THEN 'dayTime'
         WHEN {_HOUR} <= 6 OR {_HOUR} >= 20 THEN 'nightTime'
         ELSE 'otherTime' END bidTimeType"""
_LETTERS = "length(extra) - length(replace(extra, 'c', '')) c_counts"


def _q14(rows: DataFrame | Source) -> DataFrame:
    within = f"{_MILLI_EURO} > {LOW} AND {_MILLI_EURO} < {HIGH}"
    bids = events_of(rows, f"{BID_FIELDS}, extra STRING", "bid", where=within)
    return bids.selectExpr(
        "auction", "bidder", f"{_MILLI_EURO} milli_euro", _PART_OF_DAY, "dateTime", "extra", _LETTERS
    )


def _a14(events: Events) -> pa.Table:
    rows = events.rows(BID)
    price = rows["price"].to_numpy() * EXCHANGE
    is_within = (price > LOW) & (price < HIGH)
    rows, price = rows.filter(pa.array(is_within)), price[is_within]
    hour = rows["dateTime"].to_numpy() // HOUR_MS % 24
    is_night = (hour <= 6) | (hour >= 20)
    part = np.where((hour >= 8) & (hour <= 18), "dayTime", np.where(is_night, "nightTime", "otherTime"))
    letters = pc.count_substring(rows["extra"], "c").cast(pa.int64())
    columns = (rows["auction"], rows["bidder"], price, part, rows["dateTime"], rows["extra"], letters)
    return pa.table(dict(zip(_Q14, columns, strict=True)))


# q21: the number of each bid's channel: a large channel's place, else the URL's parameter; bids without are dropped.

_Q21 = (*_BID, "channel", "channel_id")
_PLACES = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
_ID_IN_URL = "(&|^)channel_id=([^&]*)"
_CHANNEL_ID = (
    "CASE lower(channel) "
    + " ".join(f"WHEN '{name}' THEN '{place}'" for name, place in _PLACES.items())
    + f" ELSE regexp_extract(url, '{_ID_IN_URL}', 2) END channel_id"
)


def _q21(rows: DataFrame | Source) -> DataFrame:
    bids = events_of(rows, _URL_FIELDS, "bid")
    return bids.selectExpr(*_BID, "channel", _CHANNEL_ID).where("channel_id <> ''")


def _a21(events: Events) -> pa.Table:
    rows = events.rows(BID)
    urls = rows["url"].combine_chunks().dictionary_encode()
    ids = pc.struct_field(pc.extract_regex(urls.dictionary, r"&channel_id=(?P<id>[^&]*)"), "id")
    id_ = ids.take(urls.indices)
    for name in LARGE:
        id_ = pc.if_else(pc.equal(rows["channel"], name), _PLACES[name.lower()], id_)
    columns = rows.select([*_BID, "channel"]).append_column("channel_id", id_)
    return columns.filter(pc.is_valid(columns["channel_id"]))


# q22: the directories of each bid's URL.

_Q22 = (*_BID, "channel", "dir1", "dir2", "dir3")
_FIRST_DIRECTORY = 3  # behind the scheme, nothing, and the host


def _q22(rows: DataFrame | Source) -> DataFrame:
    directories = (f"split_part(url, '/', {_FIRST_DIRECTORY + at}) dir{at}" for at in (1, 2, 3))
    return events_of(rows, _URL_FIELDS, "bid").selectExpr(*_BID, "channel", *directories)


def _a22(events: Events) -> pa.Table:
    rows = events.rows(BID)
    urls = rows["url"].combine_chunks().dictionary_encode()
    parts = pc.split_pattern(urls.dictionary, "/")
    columns = rows.select([*_BID, "channel"])
    for at in range(3):
        directory = pc.list_element(parts, _FIRST_DIRECTORY + at)
        columns = columns.append_column(f"dir{at + 1}", directory.take(urls.indices))
    return columns


ROWS: dict[str, Query] = {
    "q13": Query(_Q13, _q13, _q13, _a13, windowed=False),
    "q14": Query(_Q14, _q14, _q14, _a14, windowed=False),
    "q21": Query(_Q21, _q21, _q21, _a21, windowed=False, channels=True),
    "q22": Query(_Q22, _q22, _q22, _a22, windowed=False, channels=True),
}
