"""Joins: `keyedwm.spark.join` beside Spark's own stream-stream join over its own Kafka connector, in turn.

Run: python -m benchmarks.join [--case one-to-one|one-to-twenty] [--records N] [--pairs N]
Each left record is matched by so many right ones of its key within ten seconds; records have 100 bytes. What comes out
is counted, and each pair is checked by the numbers of its records, before a figure is shown. Rates are of the records
of both sides. State is what the last micro-batch says of it: rows held, and the bytes of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.measure import FIRST_MS, HDFS, PARTITIONS, VALUE, Finished, Sheet, finished, new_topic
from benchmarks.turns import Bench, bench, in_turn
from keyedwm.kafka.produce import send
from keyedwm.spark.conf import PROVIDER, ROCKSDB, recommended_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.kafka.cluster import Cluster

LAG = "1 second"
OURS, DEFAULT, ROCKS = "keyedwm", "spark, default store", "spark, RocksDB"
PUSHED = f"{OURS}, stage one in the source"
_COLUMNS = ("key", "value", "partition", "offset", "event_time", "watermark", "control")
WITHIN_MS, APART_MS, PER_MS = 10_000, 5_000, 10
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """So many left records of so many keys, in micro-batches of so many; each is met by `fan_out` right ones."""

    left: int
    keys: int
    batch: int
    fan_out: int = 1

    @property
    def right(self) -> int:
        """How many right records there are."""
        return self.left * self.fan_out


CASES = {
    "one-to-one": Case(MILLION, 100_000, 500_000),
    "one-to-twenty": Case(100_000, 100_000, 50_000, 20),
}


def load(cluster: Cluster, topics: tuple[str, str], case: Case) -> None:
    """Produce both sides over the partitions in turn: right record i follows left record i // fan_out."""
    names = pa.array([b"%06d" % number for number in range(case.keys)], pa.binary())
    for topic, records, fan_out in ((topics[0], case.left, 1), (topics[1], case.right, case.fan_out)):
        new_topic(cluster, topic)
        number = np.arange(records) // fan_out
        times = FIRST_MS + number // PER_MS + (APART_MS if topic == topics[1] else 0)
        tables = {}
        for partition in range(PARTITIONS):
            mine = slice(partition, records, PARTITIONS)
            values = pa.array([VALUE], pa.binary()).take(pa.array(np.zeros(len(number[mine]), np.int64)))
            key = names.take(pa.array(number[mine] % case.keys))
            tables[partition] = pa.table({"key": key, "value": values, "timestamp": times[mine]})
        send(cluster, topic, tables)


def reading(on: Bench, topic: str, batch: int) -> dict[str, str]:
    """The options of every side."""
    return {**on.where, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch)}


def ours(on: Bench, case: Case, topics: tuple[str, str], *, pushed: bool) -> DataFrame:
    """Our join; pushed: the reading tasks divide the rows by key, so that only pairs become Spark's rows."""
    from keyedwm.spark import join, source

    sides = []
    for topic, batch in zip(topics, (case.batch, case.batch * case.fan_out), strict=True):
        options = reading(on, topic, batch) | {"watermarkLag": LAG, "idleTimeout": "none"}
        read = source(on.spark).options(**options)
        sides.append(read.option("columns", ",".join(_COLUMNS)) if pushed else read.load().select(*_COLUMNS))
    joined = join(*sides, "key", within=("0 seconds", f"{WITHIN_MS - 1} milliseconds")).where("control IS NULL")
    return joined.withColumnsRenamed(
        {"partition_left": "p", "offset_left": "o", "partition_right": "q", "offset_right": "r"}
    )


def native(on: Bench, case: Case, topics: tuple[str, str]) -> DataFrame:
    """Spark's own."""
    sides = []
    for topic, batch, name in zip(topics, (case.batch, case.batch * case.fan_out), ("l", "r"), strict=True):
        rows = on.spark.readStream.format("kafka").options(**reading(on, topic, batch)).load()
        columns = {"l": ("k", "v", "p", "o", "t"), "r": ("k2", "w", "q", "r", "u")}[name]
        rows = rows.select("key", "value", "partition", "offset", "timestamp").toDF(*columns)
        sides.append(rows.withWatermark(columns[-1], LAG))
    close = f"k = k2 AND u >= t AND u <= t + INTERVAL {WITHIN_MS - 1} MILLISECONDS"
    from pyspark.sql import functions as F

    return sides[0].join(sides[1], F.expr(close))


def measured(on: Bench, side: str, case: Case, topics: tuple[str, str]) -> dict[str, float | None]:
    """Run a query over all records; raises SystemExit if what came out is not the answer."""
    from pyspark.sql import functions as F

    on.spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
    is_ours = side in (OURS, PUSHED)
    frame = ours(on, case, topics, pushed=side == PUSHED) if is_ours else native(on, case, topics)
    left, right = (F.col(offset) * PARTITIONS + F.col(partition) for offset, partition in ("op", "rq"))
    paired = F.sum((left == F.floor(right / case.fan_out)).cast("int"))
    done = finished(frame.observe("check", F.count("*").alias("n"), paired.alias("paired")).writeStream.format("noop"))
    seen = [sum(one.observedMetrics["check"][name] or 0 for one in done.progress) for name in ("n", "paired")]
    if seen != [case.right, case.right]:
        raise SystemExit(f"{side}: {seen} pairs and right ones came out, {case.right} are the answer: no figure")
    run = done.run(case.left + case.right)
    return {"rate": run.rate, "steady": run.steady, "cpu_s": run.cpu_s, "state_bytes_per_row": _held(done)}


def _held(done: Finished) -> float | None:
    """State in bytes for each row held, after the last batch that had rows; None where nothing says it."""
    sizes = []
    for one in done.progress:
        ours = [m.asDict() for m in one.observedMetrics.values() if "held_rows" in m.asDict()]
        if ours:
            sizes.append((ours[0]["state_bytes"], ours[0]["held_rows"]))
        else:
            sizes += [(state.memoryUsedBytes, state.numRowsTotal) for state in one.stateOperators]
    held = [(size, rows) for size, rows in sizes if size and rows]
    return held[-1][0] / held[-1][1] if held else None


def compare(on: Bench, name: str) -> None:
    """One case: load what the sides read, and run them in turn."""
    case = CASES[name]
    left = on.at_most(case.left)
    case = Case(left, min(case.keys, left), min(case.batch, left), case.fan_out)
    topics = f"bench-join-left-{name}", f"bench-join-right-{name}"
    load(on.cluster, topics, case)
    setting = {
        "records": case.left,
        "right": case.right,
        "keys": case.keys,
        "batch": case.batch,
        "within_ms": WITHIN_MS,
    }
    sides = {side: partial(measured, on, side, case, topics) for side in (DEFAULT, ROCKS, OURS, PUSHED)}
    in_turn(Sheet(f"join-{name}", DEFAULT, setting), sides, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    with bench(__doc__, CASES, recommended_conf(cores=2)) as on:
        for name in on.cases:
            compare(on, name)


if __name__ == "__main__":
    main()
