"""Nexmark over Kafka, q0 to q23: the keyedwm source and operators beside Spark's own, in turn.

Run: python -m benchmarks.nexmark [--query q5] [--from q5] [--events 4000000] [--pairs 5] [--group 1] [--quick]
`--quick`: 400,000 events in three micro-batches, one round that nothing warms up, to see that all sides agree; its
figures say more of a start than of the rest. A query that fails is named, and the next one runs; the last line has the
command that runs the failed ones. Each query writes its result at its end, so `--from q9` continues a run that was
stopped in q9.
First all sides run the 60,000 events that the golden results were made for, mixed in groups of 1,000, and must give
exactly those, or the answer of a query that has none. Then each round is a fresh query per side over all events into a
no-op sink, of q10 into files; a figure counts only if the number of results and their checksum are those computed
straight from the generator.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.measure import HDFS, Run, Sheet, finished, how_many, new_topic, scratch
from benchmarks.nexmark_days import DAYS
from benchmarks.nexmark_events import Stream, records
from benchmarks.nexmark_expanded import EXPANDED
from benchmarks.nexmark_frames import END, END_MS, LAG, PARTITIONS, RECORD, Events, checksum, observed
from benchmarks.nexmark_joins import JOINS
from benchmarks.nexmark_log import LOGS, log_to_files
from benchmarks.nexmark_queries import QUERIES as OF_ONE_STREAM
from benchmarks.nexmark_rows import ROWS
from benchmarks.nexmark_tops import TOPS
from benchmarks.turns import MOST_WARMING, PAIRS, in_turn, running
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import Sender, new_producer
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = Path(__file__).parents[1] / "tests" / "vectors"
_EVERY = OF_ONE_STREAM | JOINS | EXPANDED | LOGS | ROWS | DAYS | TOPS
QUERIES = dict(sorted(_EVERY.items(), key=lambda one: int(one[0][1:].partition("-")[0])))
GOLDEN = Events(Stream(rate=1_000, group=1_000), 60_000)
SPARK, KEYEDWM, PUSHED = "spark", "keyedwm", "keyedwm, stage one in the source"
FIELDS = "keyedwm, JSON read by the source"
# Of the events that are timed: enough for ten full micro-batches behind the first.
BATCHES, QUICK_BATCHES = 12, 3
FULL_EVENTS, QUICK_EVENTS = 4_000_000, 400_000
_PIECE = 500_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the events lie, and how many of them a micro-batch reads."""

    bootstrap: str
    topic: str
    batch: int

    def frame(self, spark: SparkSession, side: str, name: str) -> DataFrame:
        """A query over them, read as the side reads."""
        from keyedwm.spark import source

        query = QUERIES[name]
        record = RECORD if query.whole else ()
        # transformWithState needs RocksDB; Spark's own operators are faster with the default store.
        spark.conf.set(PROVIDER, ROCKSDB if query.buckets and side != SPARK else HDFS)
        reading = {
            "kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.batch),
        }  # fmt: skip
        if side == SPARK:
            rows = spark.readStream.format("kafka").options(**reading).load()
            return query.native(rows.select(*dict.fromkeys(["key", "value", "timestamp", *record])))
        reading |= {"watermarkLag": LAG, "idleTimeout": "none"}
        if side == PUSHED and query.on_pushed:
            return query.on_pushed(source(spark).options(**reading))
        times = "event_time,watermark,control" if query.windowed else "event_time"
        if side == FIELDS:
            return query.on_keyedwm(source(spark).options(**reading, columns=times))
        return query.on_keyedwm(
            source(spark).options(**reading, columns=",".join(dict.fromkeys(["key", "value", *record, times]))).load()
        )


def sides_of(name: str) -> tuple[str, ...]:
    """Who runs a query, the rival first."""
    return SPARK, KEYEDWM, PUSHED if QUERIES[name].on_pushed else FIELDS


def events_for(name: str, events: Events) -> Events:
    """The events as a query needs them: their bids with channels, or without."""
    return events.with_channels(channels=QUERIES[name].channels)


def load(cluster: Cluster, topic: str, events: Events) -> None:
    """Produce the events, one after the other over the partitions, and at last what closes every window."""
    new_topic(cluster, topic, PARTITIONS)
    sender = Sender(cluster, new_producer(cluster))
    end_ms = int(events.stream.times(events.count)) + END_MS
    end = pa.table({"key": pa.array([END]), "value": pa.nulls(1, pa.binary()), "timestamp": [end_ms]})
    for first in range(0, events.count, _PIECE):
        piece = records(events.stream, first, min(_PIECE, events.count - first))
        sender.send(topic, {p: piece.take(pa.array(range(p, len(piece), PARTITIONS))) for p in range(PARTITIONS)})
    sender.send(topic, dict.fromkeys(range(PARTITIONS), end))


def golden_trouble(name: str, rows: Iterable[Sequence]) -> str | None:
    """How a query's rows over GOLDEN differ from the golden results, or from its answer; None if they do not."""
    if name not in IN_VECTORS:
        columns = QUERIES[name].answer(events_for(name, GOLDEN)).to_pydict().values()
        expected_rows = sorted(zip(*columns, strict=True))
        return None if sorted(map(tuple, rows)) == expected_rows else f"{name}: other rows than its answer"
    file, key = IN_VECTORS[name]
    expected = json.loads((VECTORS / file).read_text())["expect"][key]
    result_rows = [tuple(row) for row in rows]
    answer: dict[str, object] = {"rows": len(result_rows)}
    if name == "q1":
        answer["sum_milli_euro"] = sum(row[2] for row in result_rows)
    elif name == "q4":
        sums = {str(row[0]): {"n": row[1], "sum": row[2], "avg_trunc": row[2] // row[1]} for row in result_rows}
        answer = {"by_category": sums}
    else:
        lines = sorted(row[:4] for row in result_rows)
        answer["sha256"] = hashlib.sha256("\n".join("|".join(map(str, line)) for line in lines).encode()).hexdigest()
    return None if answer == {part: expected[part] for part in answer} else f"{name}: {answer}, expected {expected}"


IN_VECTORS = {
    **{name: ("nexmark/nexmark-golden-q0-q4.json", name) for name in ("q0", "q1", "q2", "q3", "q4")},
    "q5": ("windows/nexmark-golden-q5.json", "q5"),
    "q7": ("windows/nexmark-golden-q7-q8.json", "q7"),
    "q8": ("windows/nexmark-golden-q7-q8.json", "q8_flink"),
    "q8-join": ("windows/nexmark-golden-q7-q8.json", "q8_flink"),
    "q9": ("nexmark/nexmark-golden-q9.json", "q9"),
}


def collected(spark: SparkSession, frame: DataFrame) -> list[tuple]:
    """Run a query to its end and return its rows."""
    name = f"nexmark_{time.time_ns()}"
    with scratch() as checkpoint:
        writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    rows = [tuple(row) for row in spark.table(name).collect()]
    spark.catalog.dropTempView(name)
    return rows


def checked_rows(spark: SparkSession, golden: Reading, side: str, name: str) -> list[tuple]:
    """Run a query of a side over GOLDEN to its end and return its rows."""
    query, frame = QUERIES[name], golden.frame(spark, side, name)
    if not query.folders:
        return collected(spark, frame)
    _, rows = log_to_files(frame, query, is_keyedwm=side != SPARK)
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def measured(frame: DataFrame, side: str, name: str, events: int, expected: tuple[int, int]) -> Run:
    """Run a query to its end; raises SystemExit unless results and checksum are the expected ones."""
    query = QUERIES[name]
    if query.folders:
        done, rows = log_to_files(frame, query, is_keyedwm=side != SPARK)
        results = len(rows), checksum(rows)
    else:
        done = finished(observed(frame).writeStream.format("noop"))
        checks = [progress.observedMetrics["check"] for progress in done.progress]
        results = sum(one.results for one in checks), sum(one.checksum or 0 for one in checks)
    if results != expected:
        raise SystemExit(f"{side}: {results[0]} results with the checksum {results[1]}, expected {expected}: no figure")
    return done.run(events)


def compare(name: str, reading: Reading, events: Events, spark: SparkSession, *, pairs: int, most_warming: int) -> None:
    """The timed rounds of one query."""
    rows = QUERIES[name].answer(events)
    expected = len(rows), checksum(rows)
    setting = {"events": events.count, "results": expected[0], "batch": reading.batch, "lag": LAG}
    sheet = Sheet(f"nexmark-{name}", SPARK, setting | {"rate": events.stream.rate, "group": events.stream.group})

    def run(side: str) -> Run:
        return measured(reading.frame(spark, side, name), side, name, events.count, expected)

    in_turn(sheet, {side: partial(run, side) for side in sides_of(name)}, pairs, most_warming)


def each_of(names: Sequence[str], run: Callable[[str], None]) -> list[str]:
    """Run the queries one after the other; return those that failed, of which the error is printed.

    Only what a query or a check of one raises is a failure; an interrupt ends the run.
    """
    failures = []
    for at, name in enumerate(names, 1):
        print(f"nexmark-{name}, {at} of {len(names)}, from {time.strftime('%H:%M:%S')}", flush=True)
        try:
            run(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the next query runs, whatever this one raised)
            failures.append(name)
            traceback.print_exc()
            reason = str(error).strip().partition("\n")[0]
            print(f"nexmark-{name} FAILED: {type(error).__name__}: {reason}", flush=True)
    return failures


def main() -> None:
    """Check the queries, run them and write their results; exit with an error that names the queries that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--query", action="append", choices=list(QUERIES))
    choice.add_argument("--from", dest="first", choices=list(QUERIES), default="q0")
    parser.add_argument("--events", type=how_many, help=f"{FULL_EVENTS:,} by default")
    parser.add_argument("--pairs", type=how_many, help=f"{PAIRS} by default")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_EVENTS:,} events, one round")
    parser.add_argument("--group", type=how_many, default=1, help="events are mixed in groups of so many")
    options = parser.parse_args()
    every = list(QUERIES)
    names = options.query or every[every.index(options.first) :]
    count = options.events or (QUICK_EVENTS if options.quick else FULL_EVENTS)
    pairs = options.pairs or (1 if options.quick else PAIRS)
    with running() as (cluster, spark):
        events = Events(Stream(group=options.group), count)
        loaded: dict[bool, tuple[Reading, Reading]] = {}

        def run(name: str) -> None:
            of_query = events_for(name, events)
            channels = of_query.stream.channels
            if channels not in loaded:
                batches = QUICK_BATCHES if options.quick else BATCHES
                loaded[channels] = readings(cluster, events_for(name, GOLDEN), of_query, batches)
            golden, timed = loaded[channels]
            for side in sides_of(name):
                if trouble := golden_trouble(name, checked_rows(spark, golden, side, name)):
                    raise SystemExit(f"{side} {trouble}: no figure")
            print(f"nexmark-{name}: all sides gave the golden results", flush=True)
            compare(name, timed, of_query, spark, pairs=pairs, most_warming=0 if options.quick else MOST_WARMING)

        failures = each_of(names, run)
    if failures:
        raise SystemExit(f"failed: python -m benchmarks.nexmark {' '.join(f'--query {name}' for name in failures)}")


def readings(cluster: Cluster, golden: Events, events: Events, batches: int) -> tuple[Reading, Reading]:
    """Load the events that are checked and those that are timed, in so many micro-batches."""
    addresses, kind = cluster.config.addresses, "-channels" if events.stream.channels else ""
    checked = Reading(addresses, f"nexmark-golden{kind}", golden.count // 3)
    timed = Reading(addresses, f"nexmark{kind}", max(1, events.count // batches))
    load(cluster, checked.topic, golden)
    load(cluster, timed.topic, events)
    return checked, timed


if __name__ == "__main__":
    main()
