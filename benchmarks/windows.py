"""Windows: `keyedwm.spark.aggregate` beside Spark's own operators driven by `with_watermark`, in turn, on one topic.

Run: python benchmarks/windows.py [--case tumbling|sliding-60|sliding-600|sessions] [--records 4000000] [--pairs 1]
Both sides read the same rows with the same source and end in a no-op sink. What comes out (rows, sum of counts, a hash
of keys and windows) is compared before a time is printed. Spark's side runs with RocksDB and with its default state
store, on `--native-records` rows where it copies every row size/slide times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from keyedwm.kafka.admin import create_topic
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.produce import send
from keyedwm.spark.conf import PROVIDER, ROCKSDB
from keyedwm.testing.broker import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
FIRST_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
KEYS = 1_000
BURST_ROWS, BURST_KEYS, SESSION_KEYS = 20_000, 2_000, 100_000
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
SESSION_CASE = "sessions"


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked of both sides; `share`: of how many of the rows Spark's own operator sees one."""

    window: tuple[str, ...]
    native_share: int = 1


CASES = {
    "tumbling": Case(("10 seconds",)),
    "sliding-60": Case(("60 seconds", "1 second"), native_share=4),
    "sliding-600": Case(("600 seconds", "1 second"), native_share=200),
    SESSION_CASE: Case(("2 seconds",), native_share=4),
}


def keys_of(case: str, records: int) -> np.ndarray:
    """One key a record, in order of event time. Sessions: bursts of 2,000 keys, five seconds each."""
    chance = np.random.default_rng(1)
    if case != SESSION_CASE:
        return chance.integers(0, KEYS, records)
    burst = np.arange(records) // BURST_ROWS * BURST_KEYS % SESSION_KEYS
    return burst + chance.integers(0, BURST_KEYS, records)


def load(cluster: Cluster, topic: str, case: str, records: int) -> None:
    """Produce the records, one a ms of event time and partition, and at last one in each that closes all windows."""
    create_topic(cluster, topic, PARTITIONS, {"retention.ms": "-1"})
    names = pa.array([b"k%06d" % i for i in range(SESSION_KEYS if case == SESSION_CASE else KEYS)], pa.binary())
    keys = keys_of(case, records)
    times = FIRST_MS + np.arange(records) // PARTITIONS
    tables = {}
    for partition in range(PARTITIONS):
        mine = slice(partition, records, PARTITIONS)
        stamps = np.append(times[mine], times[-1] + HOUR_MS)
        key = names.take(pa.array(np.append(keys[mine], 0)))
        tables[partition] = pa.table({"key": key, "value": pa.nulls(len(stamps), pa.binary()), "timestamp": stamps})
    send(cluster, topic, tables)


def session(batch_rows: int) -> SparkSession:
    """Start Spark as both sides use it."""
    from pyspark.sql import SparkSession

    from keyedwm.spark import recommended_conf

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "6g")
    for name, value in recommended_conf(cores=2).items():
        builder = builder.config(name, value)
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows))
        .getOrCreate()
    )


def ours(rows: DataFrame, case: str) -> DataFrame:
    from keyedwm.spark import aggregate, count, sliding, tumbling
    from keyedwm.spark import session as session_window

    given = CASES[case].window
    window = session_window(*given) if case == SESSION_CASE else (tumbling if len(given) == 1 else sliding)(*given)
    return aggregate(rows, "k", window, {"n": count()}).where("control IS NULL")


def native(rows: DataFrame, case: str) -> DataFrame:
    from pyspark.sql import functions as F

    from keyedwm.spark import with_watermark

    make = F.session_window if case == SESSION_CASE else F.window
    window = make("event_time", *CASES[case].window).alias("window")
    return with_watermark(rows).groupBy(window, "k").agg(F.count("*").alias("n"))


@dataclass(frozen=True, slots=True)
class Measured:
    """A finished query: rows a second from start to end, and in the full batches but the first; what came out."""

    rate: float
    steady: float
    seen: Mapping[str, Any]
    state_bytes: int


def measured(frame: DataFrame, records: int) -> Measured:
    """Run a query over the topic to its end."""
    from pyspark.sql import functions as F

    checked = frame.observe(
        "check",
        F.count("*").alias("results"),
        F.sum("n").alias("rows"),
        F.sum(F.xxhash64("k", "window.start", "window.end", "n").bitwiseAND(0xFFFFFF)).alias("hash"),
    )
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = checked.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.recentProgress
    took = time.perf_counter() - began
    seen: dict[str, int] = {}
    for one in progress:
        for name, value in one.observedMetrics["check"].asDict().items():
            seen[name] = seen.get(name, 0) + (value or 0)
    full = max(one.numInputRows for one in progress)
    steady = [one for one in progress[1:] if one.numInputRows > full * 0.9]
    ms = sum(one.durationMs["triggerExecution"] for one in steady)
    return Measured(
        rate=records / took,
        steady=sum(one.numInputRows for one in steady) / ms * 1_000 if ms else 0.0,
        seen=seen,
        state_bytes=max((operator.memoryUsedBytes for one in progress for operator in one.stateOperators), default=0),
    )


def main() -> None:
    """Run the cases and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--batch", type=int, default=1_000_000, help="maxOffsetsPerTrigger of our side")
    parser.add_argument("--native-batch", type=int, default=500_000, help="the same of Spark's own operators")
    parser.add_argument("--arrow-rows", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--side", action="append", choices=["ours", "rocksdb", "default"])
    chosen = parser.parse_args()
    with broker() as kafka:
        print(kafka.describe(), file=sys.stderr)
        cluster = Cluster.connect(ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap}))
        spark = session(chosen.arrow_rows)

        def rows(topic: str, batch: int) -> DataFrame:
            return (
                spark.readStream.format("keyedwm").option("kafka.bootstrap.servers", kafka.bootstrap)
                .option("subscribe", topic).option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", str(batch)).option("idleTimeout", "none")
                .option("columns", "key,event_time,watermark,control").load()
                .selectExpr("cast(key as string) k", "event_time", "watermark", "control")
            )  # fmt: skip

        for case in chosen.case or list(CASES):
            compare(case, chosen, cluster, spark, rows)
        spark.stop()
        cluster.close()


def compare(
    case: str, chosen: argparse.Namespace, cluster: Cluster, spark: SparkSession, rows: Callable[[str, int], DataFrame]
) -> None:
    """One case: our side on all records, and both sides on those that Spark's own sees."""
    sides = chosen.side or ["ours", "rocksdb", "default"]
    share = chosen.records // CASES[case].native_share
    for records in dict.fromkeys([chosen.records, share]):
        topic = f"bench-windows-{case}-{records}"
        load(cluster, topic, case, records)
        for number in range(chosen.pairs + 1):
            seen = None
            for side in sides:
                if side != "ours" and records != share:
                    continue
                spark.conf.set(PROVIDER, HDFS if side == "default" else ROCKSDB)
                make, batch = (
                    (ours, chosen.batch) if side == "ours" else (native, min(chosen.native_batch, records // 4))
                )
                found = measured(make(rows(topic, batch), case), records)
                if seen is not None and seen != found.seen:
                    raise SystemExit(f"{case} {side}: {found.seen}, the side before had {seen}: no figure")
                seen = found.seen
                print(
                    f"{case} round {number} {side}: {records:,} rows at {found.rate / 1e3:,.0f} thousand/s, in full "
                    f"batches {found.steady / 1e3:,.0f}; results {found.seen['results']:,}; "
                    f"state {found.state_bytes / 1e6:,.1f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
