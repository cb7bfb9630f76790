"""What Nexmark's queries share: a query as frames of both sides and an answer, parsed events, and a checksum of rows.

Rule: both sides read the same topic, parse with Spark's `from_json` the same fields, and select with the same
expressions; they differ in the source and in the windows. Our side runs once more with fields that the source reads
itself, of the records that a query needs. Event time is the record's, the watermark trails it by LAG.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.nexmark_events import MAKERS, Stream, kinds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from keyedwm.spark.hosting.source_description import Source

LAG = "4 seconds"
PARTITIONS = 4  # of the topic
# Beside the events each partition ends with one record of this key, so much later: it closes every window.
END = b"end"
END_MS = 2 * 86_400_000
BID_FIELDS = "auction BIGINT, bidder BIGINT, price BIGINT, dateTime BIGINT"
# A whole record beside parsed fields, and its place, which orders records of equal event time.
RECORD = ("value", "topic", "partition", "offset")
TIMES = ("event_time", "watermark", "control", "timestamp")
WINDOW_MS = 10_000
EXCHANGE = 908  # a dollar in thousandths of a euro
_PIECE = 1_000_000
_PRIME = 2**31 - 1
# More than a query has columns.
WEIGHTS = (1_000_003, 10_007, 101, 7, 3, 5, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its result columns, both sides' frames (of a source's rows), and the rows that must come out.

    on_keyedwm: of loaded rows, or of a source that is not loaded and gets the fields to read. windowed: it has windows;
    buckets: they are our own on our side. on_pushed: the same, with stage one in the reading tasks; None where keys
    or aggregates are no plain fields. channels: it reads bids that have a channel and a URL. whole: it reads RECORD.
    folders: the columns of its directories, if it writes its rows to files; else a no-op sink drops them.
    """

    columns: tuple[str, ...]
    on_keyedwm: Callable[[DataFrame | Source], DataFrame]
    native: Callable[[DataFrame], DataFrame]
    answer: Callable[[Events], pa.Table]
    windowed: bool = True
    buckets: bool = False
    on_pushed: Callable[[Source], DataFrame] | None = None
    channels: bool = False
    whole: bool = False
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Events:
    """The first events of a stream, by kind."""

    stream: Stream
    count: int

    def rows(self, kind: int) -> pa.Table:
        """All rows of a kind, in order of their numbers."""
        numbers = self.numbers(kind)
        parts = [numbers[first : first + _PIECE] for first in range(0, len(numbers), _PIECE)]
        return pa.concat_tables([MAKERS[kind](self.stream, part) for part in parts]).combine_chunks()

    def numbers(self, kind: int) -> np.ndarray:
        """The numbers of a kind's events."""
        every = np.arange(self.count)
        return every[kinds(every) == kind]

    def with_channels(self, *, channels: bool = True) -> Events:
        """The same events, bids with a channel and a URL or without."""
        return replace(self, stream=replace(self.stream, channels=channels))

    def places(self, kind: int) -> np.ndarray:
        """What orders the records of a kind's rows where event times are equal: the partition, then the offset."""
        at = np.empty(self.count, np.int64)
        at[self.stream.numbers(0, self.count)] = np.arange(self.count)
        return (at % PARTITIONS * self.count + at // PARTITIONS)[self.numbers(kind)]


def checksum(rows: pa.Table) -> int:
    """What `observed` finds of the same rows."""
    total = np.zeros(len(rows), np.int64)
    for column, weight in zip(rows.columns, WEIGHTS, strict=False):
        if pa.types.is_string(column.type):
            texts = column.combine_chunks().dictionary_encode()
            each = np.array([zlib.crc32(text.encode()) for text in texts.dictionary.to_pylist()], np.int64)
            numbers = each[texts.indices.to_numpy()]
        else:
            numbers = column.to_numpy()
        total += numbers * weight
    return int((total % _PRIME).sum())


def observed(frame: DataFrame) -> DataFrame:
    """The frame, told to report `results` and `checksum` of its rows as the metric `check`."""
    from pyspark.sql import functions as F

    def number(name: str) -> Column:
        return F.crc32(name) if frame.schema[name].dataType.typeName() == "string" else F.col(name)

    weighed = [number(name) * weight for name, weight in zip(frame.columns, WEIGHTS, strict=False)]
    total = sum(weighed[1:], weighed[0])
    return frame.observe("check", F.count("*").alias("results"), F.sum(F.pmod(total, F.lit(_PRIME))).alias("checksum"))


def events_of(
    rows: DataFrame | Source, fields: str, *kinds: str, where: str = "", beside: Sequence[str] = ()
) -> DataFrame:
    """The parsed events of some kinds; of ours the control rows stay, of Spark's the closing record does.

    where: a condition on their fields. beside: columns of the record that stay.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    if not isinstance(rows, DataFrame):
        return _read(rows.option("columns", ", ".join([*beside, rows.set_options["columns"]])), fields, kinds, where)
    of_kind = F.col("kind").isin(*kinds)
    read = rows.withColumn("kind", F.col("key").cast("string"))
    event_rows = read.where(of_kind | F.col("control").isNotNull() if "control" in read.columns else of_kind)
    others = [*beside, *(name for name in TIMES if name in rows.columns)]
    parsed = F.from_json(F.col("value").cast("string"), fields).alias("event")
    events = event_rows.select("kind", parsed, *others).select("kind", "event.*", *others)
    if not where:
        return events
    return events.where(f"({where}) OR control IS NOT NULL" if "control" in rows.columns else where)


def _read(read: Source, fields: str, kinds: Sequence[str], where: str) -> DataFrame:
    """The same rows of a source that reads fields of values, and leaves the others out."""
    columns = [read.set_options["columns"], *(["key::string AS kind"] if len(kinds) > 1 else [])]
    columns += (f"json:$.{name}::{kind.lower()}" for name, kind in (field.split() for field in fields.split(", ")))
    settings = {"columns": ", ".join(columns), "where": of_kinds(*kinds) + (f" AND {where}" if where else "")}
    return read.options(**settings).load()


def of_kinds(*kinds: str) -> str:
    """The condition of the source that keeps events of some kinds."""
    return f"key IN ({', '.join(map(repr, kinds))})"


def native_events(rows: DataFrame, fields: str, *kinds: str, beside: Sequence[str] = ()) -> DataFrame:
    """The parsed events with Spark's watermark, and the closing record."""
    return events_of(rows, fields, *kinds, END.decode(), beside=beside).withWatermark("timestamp", LAG)
