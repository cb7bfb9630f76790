"""From event to result: how long after the event that closes a window its result is there, ours beside Spark's own.

Run: python -m benchmarks.latency [--case at-once|2-seconds] [--seconds 20] [--pairs 5]
20,000 events a second (`feed.py`), tumbling windows of 1 s over 1,000 keys, a lag of 100 ms, the same trigger on both
sides. A window [start, end) can close when an event of end + 100 ms is there, which is produced when the clock shows
just that; its latency is from then until foreachBatch has its rows in hand (all of a window's rows were counted). A run
of ten seconds warms each side up, and the windows of a run's first five seconds do not count. Beside it: how many
micro-batches after the one that read the closing event the result left.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.feed import RATE
from benchmarks.measure import HDFS, KEYS, Sheet, how_many, new_topic, scratch
from benchmarks.turns import running
from benchmarks.windows import DEFAULT, KEYEDWM
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CASES = {"at-once": "0 seconds", "2-seconds": "2 seconds"}
WINDOW_MS, LAG_MS, WARM_MS = 1_000, 100, 5_000
WARMING_S, PATIENCE_S = 10, 120
WINDOW, LAG = f"{WINDOW_MS} milliseconds", f"{LAG_MS} milliseconds"


@dataclass(slots=True)
class Arrivals:
    """What foreachBatch saw: rows counted in each window, and when the last of them came, in which micro-batch."""

    rows: dict[int, int] = field(default_factory=dict)
    at_ms: dict[int, float] = field(default_factory=dict)
    batch: dict[int, int] = field(default_factory=dict)

    def record(self, frame: DataFrame, batch: int) -> None:
        """Have the results of a micro-batch in hand."""
        from pyspark.sql import functions as F

        batch_columns = frame.select(F.unix_millis("window.end").alias("end_ms"), "n").toArrow().to_pydict()
        now_ms = time.time() * 1e3
        for end_ms, n in zip(batch_columns["end_ms"], batch_columns["n"], strict=True):
            self.rows[end_ms] = self.rows.get(end_ms, 0) + n
            self.at_ms[end_ms], self.batch[end_ms] = now_ms, batch


def results(spark: SparkSession, side: str, bootstrap: str, topic: str) -> DataFrame:
    """Counts by key and window of one side; the newest event of each micro-batch shows in its progress."""
    from pyspark.sql import functions as F

    from keyedwm.spark import aggregate, count, tumbling

    reading = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    if side == KEYEDWM:
        own_options = {"columns": "key,event_time,watermark,control", "watermarkLag": LAG, "idleTimeout": "none"}
        rows = spark.readStream.format("keyedwm").options(**reading, **own_options).load().withColumnRenamed("key", "k")
        rows = rows.observe("input", F.max(F.unix_millis("event_time")).alias("newest_ms"))
        return aggregate(rows, "k", tumbling(WINDOW), {"n": count()}).where("control IS NULL")
    rows = spark.readStream.format("kafka").options(**reading).load().selectExpr("key k", "timestamp")
    rows = rows.observe("input", F.max(F.unix_millis("timestamp")).alias("newest_ms"))
    window = F.window("timestamp", WINDOW).alias("window")
    return rows.withWatermark("timestamp", LAG).groupBy(window, "k").agg(F.count("*").alias("n"))


def one_run(spark: SparkSession, cluster: Cluster, side: str, trigger: str, seconds: int) -> dict[str, Any]:
    """Feed for so many seconds; returns the latencies by window, micro-batches after, and how the feed kept up."""
    topic = f"bench-latency-{time.time_ns()}"
    new_topic(cluster, topic)
    spark.conf.set(PROVIDER, ROCKSDB if side == KEYEDWM else HDFS)
    arrivals = Arrivals()
    with scratch() as checkpoint:
        writer = results(spark, side, cluster.config.addresses, topic).writeStream.foreachBatch(arrivals.record)
        query = writer.option("checkpointLocation", checkpoint).trigger(processingTime=trigger).start()
        first_ms = (math.ceil(time.time()) + 5) * 1_000  # the feed is up by then, and the query mostly
        feed = [sys.executable, "-m", "benchmarks.feed", cluster.config.addresses, topic, str(first_ms), str(seconds)]
        feed_process = subprocess.run(feed, check=True, capture_output=True, text=True)
        last_ms = first_ms + (seconds - 1) * 1_000
        wait_for(query, arrivals, last_ms)
        query.stop()
        read = {one.batchId: one.observedMetrics["input"].newest_ms or 0 for one in query.recentProgress}
    ends = range(first_ms + WARM_MS, last_ms + 1, WINDOW_MS)
    if wrong := {end: arrivals.rows.get(end) for end in ends if arrivals.rows.get(end) != RATE * WINDOW_MS // 1_000}:
        raise SystemExit(f"latency {side}: rows counted in windows by their end: {wrong}, each had {RATE}: no figure")
    closing = {end: min(batch for batch, newest in read.items() if newest >= end + LAG_MS) for end in ends}
    return {
        "latency_ms": [arrivals.at_ms[end] - end - LAG_MS for end in ends],
        "batches_after": [arrivals.batch[end] - closing[end] for end in ends],
        "feed_p99_ms": float(feed_process.stdout),
    }


def wait_for(query: StreamingQuery, arrivals: Arrivals, end_ms: int) -> None:
    """Until the micro-batch has ended that brought the window of that end; raises SystemExit if it does not come."""
    until = time.monotonic() + PATIENCE_S
    while (query.lastProgress or {"batchId": -1})["batchId"] < arrivals.batch.get(end_ms, math.inf):
        if time.monotonic() > until or not query.isActive:
            raise SystemExit(f"latency: the window that ends at {end_ms} did not come: {query.exception()}")
        time.sleep(0.1)


def compare(spark: SparkSession, cluster: Cluster, name: str, pairs: int, seconds: int) -> None:
    """One trigger setting, sides in turn."""
    setting = {"trigger": CASES[name], "events_per_s": RATE, "keys": KEYS, "window": WINDOW, "lag": LAG}
    sheet = Sheet(f"latency-{name}", DEFAULT, {**setting, "seconds": seconds})
    for number in range(pairs + 1):
        for side in (DEFAULT, KEYEDWM):
            round_figures = one_run(spark, cluster, side, CASES[name], seconds if number else WARMING_S)
            latency_ms = round_figures["latency_ms"]
            figures = {
                "p50_ms": float(np.median(latency_ms)),
                "p99_ms": float(np.quantile(latency_ms, 0.99)),
                "batches_after": float(np.mean(round_figures["batches_after"])),
                "feed_p99_ms": round_figures["feed_p99_ms"],
            }
            sheet.add(side, figures, warming=number == 0)
            if number:
                sheet.samples.setdefault(side, []).extend(round(one, 1) for one in latency_ms)
    sheet.finish()


def main() -> None:
    """Run the cases and write their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--seconds", type=how_many, default=20)
    parser.add_argument("--pairs", type=how_many, default=5)
    options = parser.parse_args()
    conf = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
    with running(conf) as (cluster, spark):
        for name in options.case or CASES:
            compare(spark, cluster, name, options.pairs, options.seconds)


if __name__ == "__main__":
    main()
