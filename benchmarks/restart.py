"""What open windows cost: bytes of state a (key, frame), and the time until a restarted query has done its first batch.

Run: python -m benchmarks.restart [--records 1000000] [--pairs 5]
Tumbling windows of 1 s, 1,000 keys, one record each: 1,000,000 (key, frame) stay open, because the watermark trails by
an hour. The query stops; it is started again with one more record in each partition. Both sides read the same records,
and must say that so many are held. A restart's time is from start() to the end of its first micro-batch; beside it the
same of a query that starts with nothing.
"""

from __future__ import annotations

import tempfile
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.measure import FIRST_MS, HDFS, KEYS, PARTITIONS, Sheet, new_topic
from benchmarks.turns import Bench, bench
from benchmarks.windows import DEFAULT, KEYEDWM
from keyedwm.kafka.requests.produce import send
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FRAMES = 1_000_000
FRAME, LAG, BATCH = "1 second", "1 hour", "250000"


def produce(on: Bench, topic: str, first: int, records: int) -> None:
    """Record n has key n % 1,000 and the event time of second n // 1,000; they go to the partitions in turn."""
    tables = {}
    for partition in range(PARTITIONS):
        numbers = np.arange(first + partition, first + records, PARTITIONS)
        keys = pa.array(numbers % KEYS).cast(pa.string())
        tables[partition] = pa.table({"key": keys, "timestamp": pa.array(FIRST_MS + numbers // KEYS * 1_000)})
    send(on.cluster, topic, tables)


def counts(on: Bench, side: str, topic: str) -> DataFrame:
    """The windows of one side."""
    from pyspark.sql import functions as F

    from keyedwm.spark import aggregate, count, tumbling

    reading = {**on.where, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": BATCH}
    if side == KEYEDWM:
        rows = on.spark.readStream.format("keyedwm").options(**reading, watermarkLag=LAG, idleTimeout="none").load()
        rows = rows.selectExpr("cast(key as string) k", "event_time", "watermark", "control")
        return aggregate(rows, "k", tumbling(FRAME), {"n": count()}, name="held")
    rows = on.spark.readStream.format("kafka").options(**reading).load()
    rows = rows.selectExpr("cast(key as string) k", "timestamp").withWatermark("timestamp", LAG)
    return rows.groupBy(F.window("timestamp", FRAME).alias("window"), "k").agg(F.count("*").alias("n"))


def drained(on: Bench, side: str, topic: str, checkpoint: str) -> tuple[list, float]:
    """Run to the end of what is there; returns the progress, and the ms until the first micro-batch had ended."""
    on.spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
    writer = counts(on, side, topic).writeStream.format("noop").option("checkpointLocation", checkpoint)
    began = time.time()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    first = query.recentProgress[0]
    began_batch = datetime.fromisoformat(first.timestamp.replace("Z", "+00:00")).timestamp()
    return query.recentProgress, (began_batch - began) * 1e3 + first.durationMs["triggerExecution"]


def held_state(progress: list, side: str) -> tuple[int, int]:
    """The number of (key, frame) that are open, and the bytes of their state in memory as each side reports them."""
    if side == KEYEDWM:
        state = progress[-1].observedMetrics["held"]
        return state.frames, state.state_bytes
    operator = progress[-1].stateOperators[0]
    return operator.numRowsTotal, operator.memoryUsedBytes


def on_disk(checkpoint: str) -> int:
    """Bytes of the state in a checkpoint."""
    return sum(path.stat().st_size for path in Path(checkpoint, "state").rglob("*") if path.is_file())


def measure(on: Bench, side: str, frames: int, place: str) -> list[dict[str, float]]:
    """Build the state, and restart from it again and again; raises SystemExit if it is not all there."""
    topic = f"bench-restart-{time.time_ns()}"
    new_topic(on.cluster, topic)
    produce(on, topic, 0, frames)
    progress, _ = drained(on, side, topic, f"{place}/held")
    each = {"state_bytes": held_state(progress, side)[1] / frames, "disk_bytes": on_disk(f"{place}/held") / frames}
    rounds, few = [], f"{topic}-few"
    new_topic(on.cluster, few)
    produce(on, few, 0, PARTITIONS)
    for number in range(on.pairs):
        fresh_ms = drained(on, side, few, f"{place}/fresh-{number}")[1]
        produce(on, topic, frames + number * PARTITIONS, PARTITIONS)
        progress, restart_ms = drained(on, side, topic, f"{place}/held")
        count, expected_frames = held_state(progress, side)[0], frames + (number + 1) * PARTITIONS
        if count != expected_frames:
            raise SystemExit(
                f"restart {side}: {count} (key, frame) are held, there should be {expected_frames}: no figure"
            )
        rounds.append({"restart_ms": restart_ms, "fresh_ms": fresh_ms, **each})
    return rounds


def main() -> None:
    """Measure all sides and write the result."""
    with bench(__doc__, ["restart"]) as on:
        frames = on.at_most(FRAMES)
        sheet = Sheet("windows-restart", DEFAULT, {"open_frames": frames, "keys": KEYS})
        with tempfile.TemporaryDirectory() as place:
            run = partial(measure, on, frames=frames)
            rounds_of = {side: run(side, place=f"{place}/{number}") for number, side in enumerate((DEFAULT, KEYEDWM))}
        for side, rounds in rounds_of.items():
            for one in rounds:
                sheet.add(side, one)
        sheet.finish()


if __name__ == "__main__":
    main()
