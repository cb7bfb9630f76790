"""The three queries of the demo, side by side on one topic.

Rule: native and keyedwm differ in what their names say and in nothing else: the same topic, lag, trigger, windows and
target. Of Avro values each reads the event time with its own decoder. This file is what a user would write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.demo.as_avro import AvroTopic, decoded_by_spark
from examples.demo.exact import COUNTS
from keyedwm.spark import start_in_turn, with_watermark

LAG = "3 hours"
LAG_MS = 10_800_000
# Ticks stand at whole multiples of the interval since 1970, so the loader can keep clear of them (see `drive`).
TICK_MS = 250
NATIVE, KEYEDWM, EVENTS = "native", "keyedwm", "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Starts the queries; `home`: directory of tables and checkpoints. avro: of the values, None for JSON."""

    spark: SparkSession
    bootstrap: str
    topic: str
    home: Path
    native_kafka: bool
    avro: AvroTopic | None = None

    @contextmanager
    def running(self) -> Iterator[Mapping[str, StreamingQuery]]:
        """All three, for the time of the `with`."""
        try:
            writers = {
                NATIVE: self._write(NATIVE, self._native_counts()),
                KEYEDWM: self._write(KEYEDWM, hourly(with_watermark(self._rows()), "event_time")),
                EVENTS: self._write(EVENTS, self._rows(), snapshot="barrier"),
            }
            yield dict(zip(writers, start_in_turn(*writers.values()), strict=True))
        finally:
            for query in self.spark.streams.active:
                query.stop()

    def _native_counts(self) -> DataFrame:
        """As people write it today; without Spark's connectors on our plain event rows."""
        if self.native_kafka:
            rows = self._read("kafka")
            rows, time = (rows, "timestamp") if self.avro is None else (decoded_by_spark(rows), "departs")
        else:
            rows = self._read("keyedwm", emitControl="false", **self._format())
            time = "timestamp" if self.avro is None else "event_time"
        return hourly(rows.withWatermark(time, LAG), time)

    def _format(self) -> Mapping[str, str]:
        return {} if self.avro is None else self.avro.options()

    def _rows(self) -> DataFrame:
        """Keyedwm's rows. Simulated time flies: 60 s without records, the default idleTimeout, can be months of it, and
        no feed of the demo falls silent, so idleness is off.
        """
        return self._read("keyedwm", watermarkLag=LAG, idleTimeout="none", **self._format())

    def _read(self, source: str, **options: str) -> DataFrame:
        return (
            self.spark.readStream.format(source)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    def _write(self, name: str, rows: DataFrame, snapshot: str = "batch") -> DataStreamWriter:
        return (
            rows.writeStream.format("keyedwm")
            .option("path", str(self.table(name)))
            .option("snapshot", snapshot)
            .option("checkpointLocation", str(self.home / "checkpoints" / name))
            .queryName(name)
            .trigger(processingTime=f"{TICK_MS} milliseconds")
        )

    def table(self, name: str) -> Path:
        """Where a query's Delta table is."""
        return self.home / "tables" / name


def hourly(rows: DataFrame, time: str) -> DataFrame:
    """The count per origin and hour of event time."""
    counts = rows.groupBy(F.window(time, "1 hour"), F.col("key").cast("string").alias("origin")).count()
    return counts.select("origin", F.col("window.start").alias("hour"), "count")


def read_counts(path: Path) -> pa.Table:
    """A table of counts with the columns of COUNTS."""
    table = DeltaTable(str(path)).to_pyarrow_table(columns=["origin", "hour", "count"])
    return pa.table([table["origin"], _ms(table["hour"]), table["count"]], schema=COUNTS)


def read_events(path: Path) -> pa.Table:
    """The table of events with the columns partition, offset, key, value and timestamp_ms."""
    table = DeltaTable(str(path)).to_pyarrow_table(columns=["partition", "offset", "key", "value", "timestamp"])
    return table.set_column(4, "timestamp_ms", _ms(table["timestamp"])).sort_by("offset")


def _ms(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(times.cast(pa.timestamp("ms", "UTC")), pa.int64())
