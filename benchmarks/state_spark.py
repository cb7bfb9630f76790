"""Small batches over many open keys through Spark: our windows beside Spark's own over its RocksDB.

Run: python -m benchmarks.state_spark [--records 600000] [--pairs 5]
A tumbling hour, a million keys: each comes once in a first query, whose checkpoint each side then continues, over and
over from a copy, with batches of 10,000 rows. No window closes, so what is measured is what a batch costs over a
million open entries. Before that each side does the same with 20,000 keys, and a last record closes the windows: their
number, counts and sums must be exact. A timed run counts only if its batches read every record once.
"""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.measure import PARTITIONS, Finished, Run, Sheet, finished, new_topic, scratch, whole
from benchmarks.turns import Bench, bench, in_turn
from keyedwm.kafka.requests.produce import send
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYEDWM, ROCKS = "keyedwm", "spark, RocksDB"
PUSHED = f"{KEYEDWM}, stage one in the source"
KEYS, BATCH = 1_000_000, 10_000
HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS


def produce(on: Bench, topic: str, keys: np.ndarray, second: int) -> None:
    """Send a record of each of these keys, over the partitions in turn, BATCH of them a second."""
    tables = {}
    for partition in range(PARTITIONS):
        partition_keys = keys[partition::PARTITIONS]
        times = FIRST_MS + (second + np.arange(len(partition_keys)) * PARTITIONS // BATCH) * 1_000
        tables[partition] = pa.table({"key": pa.array(partition_keys).cast(pa.string()), "timestamp": pa.array(times)})
    send(on.cluster, topic, tables)


def counts(on: Bench, side: str, topic: str, batch: int) -> DataFrame:
    """The windows of one side."""
    from pyspark.sql import functions as F

    from keyedwm.spark import aggregate, count, source, tumbling
    from keyedwm.spark import sum as total

    reading = {**on.where, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch)}
    if side != ROCKS:
        read = source(on.spark).options(**reading, watermarkLag="1 second", idleTimeout="none")
        how = tumbling("1 hour"), {"n": count(), "total": total("offset")}
        if side == PUSHED:
            return aggregate(read, {"k": "key::string"}, *how, name="many")
        rows = read.load().selectExpr("cast(key as string) k", "offset", "event_time", "watermark", "control")
        return aggregate(rows, "k", *how, name="many")
    rows = on.spark.readStream.format("kafka").options(**reading).load()
    rows = rows.selectExpr("cast(key as string) k", "offset", "timestamp").withWatermark("timestamp", "1 second")
    windows = rows.groupBy(F.window("timestamp", "1 hour").alias("window"), "k")
    return windows.agg(F.count("*").alias("n"), F.sum("offset").alias("total"))


def drained(on: Bench, side: str, topic: str, batch: int, checkpoint: str) -> Finished:
    """Run to the end of what is there."""
    on.spark.conf.set(PROVIDER, ROCKSDB)
    return finished(counts(on, side, topic, batch).writeStream.format("noop"), checkpoint)


def measured(on: Bench, side: str, topic: str, records: int, checkpoint: str) -> Run:
    """Continue a copy of a checkpoint; raises SystemExit unless every record was seen once."""
    with scratch() as place:
        done = drained(on, side, topic, BATCH, shutil.copytree(checkpoint, f"{place}/checkpoint"))
    if (read_records := _read_records(side, done.progress)) != records:
        raise SystemExit(f"{side}: full batches read {read_records} records of {records}: no figure")
    return done.run(records)


def _read_records(side: str, progress: list) -> int:
    """The records of full batches; of our sides Spark counts control rows, or what tasks ship, so they say it."""
    if side == ROCKS:
        reads = [one.numInputRows for one in progress]
    else:
        reads = [json.loads(one.sources[0].latestOffset)["reads"] for one in progress]
    return sum(read for read in reads if read == BATCH)


def check(on: Bench, side: str) -> None:
    """Run both queries with few keys; raises SystemExit if the windows are not exact."""
    from pyspark.sql import functions as F

    topic, keys, records = f"bench-state-check-{time.time_ns()}", 2 * BATCH, 4 * BATCH
    new_topic(on.cluster, topic)
    produce(on, topic, np.arange(keys), 0)
    with scratch() as checkpoint:
        drained(on, side, topic, BATCH, checkpoint)
        produce(on, topic, np.random.default_rng(3).integers(0, keys, records), keys // BATCH)
        closing = pa.table({"key": ["end"], "timestamp": [FIRST_MS + 2 * HOUR_MS]})
        send(on.cluster, topic, dict.fromkeys(range(PARTITIONS), closing))
        each = (keys + records) // PARTITIONS
        expected = {"results": keys, "n": keys + records, "total": PARTITIONS * each * (each - 1) // 2}
        columns = [F.count("n").alias("results"), *(F.sum(name).alias(name) for name in ("n", "total"))]
        whole(side, counts(on, side, topic, BATCH), columns, expected, checkpoint)


def main() -> None:
    """Build what is open, and run the sides in turn."""
    with bench(__doc__, ["many"]) as on:
        for side in (ROCKS, KEYEDWM, PUSHED):
            check(on, side)
        keys, records = on.at_most(KEYS), max(20 * BATCH, on.at_most(600_000) // BATCH * BATCH)
        topic = f"bench-state-{time.time_ns()}"
        new_topic(on.cluster, topic)
        produce(on, topic, np.arange(keys), 0)
        with scratch() as place:
            checkpoints = {side: f"{place}/{number}" for number, side in enumerate((ROCKS, KEYEDWM, PUSHED))}
            for side, checkpoint in checkpoints.items():
                drained(on, side, topic, keys, checkpoint)
            produce(on, topic, np.random.default_rng(3).integers(0, keys, records), keys // BATCH)
            sides = {side: partial(measured, on, side, topic, records, one) for side, one in checkpoints.items()}
            in_turn(Sheet("state-rocksdb", ROCKS, {"keys": keys, "batch": BATCH, "records": records}), sides, on.pairs)


if __name__ == "__main__":
    main()
