"""Joins: `join` and `join_latest` beside Spark's own stream-stream join over its own Kafka connector, in turn.

Run: python -m benchmarks.join [--case one-to-one|one-to-twenty|latest] [--records N] [--batches N] [--pairs N]
Each left record is matched by so many right ones of its key within ten seconds; records have 100 bytes. `latest`: each
right record meets the latest left one of its key before it. What comes out is counted, and each pair is checked by the
numbers of its records, before a figure is shown. Rates are of the records of both sides. State is what the last
micro-batch says of it: rows held, and the bytes of the store. `--batches N`: so many full micro-batches, of the case's
size and so of more records, or with `--records` of as many fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import FIRST_MS, HDFS, PARTITIONS, VALUE, Finished, Sheet, finished, new_topic
from benchmarks.turns import Bench, bench, in_turn
from keyedwm.kafka.requests.produce import send
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from keyedwm.kafka.requests.cluster import Cluster

LAG = "1 second"
KEYEDWM, DEFAULT, ROCKS = "keyedwm", "spark, default store", "spark, RocksDB"
PUSHED = f"{KEYEDWM}, stage one in the source"
CLOSING_MS = 3_600_000  # what closes the last rows comes so much later
_COLUMNS = ("key", "value", "partition", "offset", "event_time", "watermark", "control")
WITHIN_MS, APART_MS, PER_MS = 10_000, 5_000, 10
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """So many left records of so many keys, in micro-batches of so many; each is met by `fan_out` right ones.

    latest: the right ones are the stream, and the left ones are the changes that it meets.
    """

    left: int
    keys: int
    batch: int
    fan_out: int = 1
    latest: bool = False

    @property
    def right(self) -> int:
        """The number of right records."""
        return self.left * self.fan_out

    def sized_for(self, on: Bench) -> Case:
        """Return the case with the records and micro-batches that the command line asks for."""
        if on.batches is None:
            left_rows = on.at_most(self.left)
            return replace(self, left=left_rows, keys=min(self.keys, left_rows), batch=min(self.batch, left_rows))
        left_rows = self.batch * on.batches if on.asked_records is None else on.at_most(self.left)
        return replace(self, left=left_rows, keys=min(self.keys, left_rows), batch=max(1, left_rows // on.batches))


CASES = {
    "one-to-one": Case(MILLION, 100_000, 100_000),
    "one-to-twenty": Case(100_000, 100_000, 10_000, 20),
    "latest": Case(MILLION, 100_000, 100_000, latest=True),
}


def load(cluster: Cluster, topics: tuple[str, str], case: Case) -> None:
    """Produce both sides over the partitions in turn: right record i follows left record i // fan_out.

    A row that waits for what comes before it leaves only behind a later watermark: `latest` ends with a record that has
    no match in each partition, the two sides' of different keys.
    """
    names = pa.array([b"%06d" % number for number in range(case.keys)], pa.binary())
    for topic, records, fan_out in ((topics[0], case.left, 1), (topics[1], case.right, case.fan_out)):
        new_topic(cluster, topic)
        number = np.arange(records) // fan_out
        times = FIRST_MS + number // PER_MS + (APART_MS if topic == topics[1] else 0)
        tables = {}
        for partition in range(PARTITIONS):
            own_rows = slice(partition, records, PARTITIONS)
            values = pa.array([VALUE], pa.binary()).take(pa.array(np.zeros(len(number[own_rows]), np.int64)))
            key = names.take(pa.array(number[own_rows] % case.keys))
            tables[partition] = pa.table({"key": key, "value": values, "timestamp": times[own_rows]})
            if case.latest:
                last = {"key": [topic.encode()], "value": [VALUE], "timestamp": [int(times[-1]) + CLOSING_MS]}
                tables[partition] = pa.concat_tables([tables[partition], pa.table(last, tables[partition].schema)])
        send(cluster, topic, tables)


def reading(on: Bench, topic: str, batch: int) -> dict[str, str]:
    """The options of every side."""
    return {**on.where, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch)}


def keyedwm_join(on: Bench, case: Case, topics: tuple[str, str], *, pushed: bool) -> DataFrame:
    """Our join; pushed: the reading tasks divide the rows by key, so that only pairs become Spark's rows."""
    from keyedwm.spark import join, join_latest, source

    sides = []
    for topic, batch in zip(topics, (case.batch, case.batch * case.fan_out), strict=True):
        options = reading(on, topic, batch) | {"watermarkLag": LAG, "idleTimeout": "none"}
        read = source(on.spark).options(**options)
        sides.append(read.option("columns", ",".join(_COLUMNS)) if pushed else read.load().select(*_COLUMNS))
    if case.latest:
        joined = join_latest(*reversed(sides), "key", how="inner", names=("right", "left"))
    else:
        joined = join(*sides, "key", within=("0 seconds", f"{WITHIN_MS - 1} milliseconds"))
    return joined.where("control IS NULL").withColumnsRenamed(
        {"partition_left": "p", "offset_left": "o", "partition_right": "q", "offset_right": "r"}
    )


def native(on: Bench, case: Case, topics: tuple[str, str]) -> DataFrame:
    """Spark's own, which has no join with the latest: of all changes within a bound the last one of each row."""
    from pyspark.sql import functions as F

    sides = []
    for topic, batch, name in zip(topics, (case.batch, case.batch * case.fan_out), ("l", "r"), strict=True):
        rows = on.spark.readStream.format("kafka").options(**reading(on, topic, batch)).load()
        columns = {"l": ("k", "v", "p", "o", "t"), "r": ("k2", "w", "q", "r", "u")}[name]
        rows = rows.select("key", "value", "partition", "offset", "timestamp").toDF(*columns)
        sides.append(rows.withWatermark(columns[-1], LAG))
    close = f"k = k2 AND u >= t AND u <= t + INTERVAL {WITHIN_MS - 1} MILLISECONDS"
    pairs = sides[0].join(sides[1], F.expr(close))
    if not case.latest:
        return pairs
    return pairs.groupBy("u", "k2", "w", "q", "r").agg(F.expr("max_by(struct(v, p, o), t) c")).select("*", "c.*")


def measured(on: Bench, side: str, case: Case, topics: tuple[str, str]) -> dict[str, Any]:
    """Run a query over all records; raises SystemExit if what came out is not the answer."""
    from pyspark.sql import functions as F

    on.spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
    is_ours = side in (KEYEDWM, PUSHED)
    frame = keyedwm_join(on, case, topics, pushed=side == PUSHED) if is_ours else native(on, case, topics)
    left, right = (F.col(offset) * PARTITIONS + F.col(partition) for offset, partition in ("op", "rq"))
    paired = F.sum((left == F.floor(right / case.fan_out)).cast("int"))
    done = finished(frame.observe("check", F.count("*").alias("n"), paired.alias("paired")).writeStream.format("noop"))
    counts = [sum(one.observedMetrics["check"][name] or 0 for one in done.progress) for name in ("n", "paired")]
    if counts != [case.right, case.right]:
        raise SystemExit(f"{side}: {counts} pairs and right ones came out, {case.right} are the answer: no figure")
    run = done.run(case.left + case.right)
    return run.figures() | {"state_bytes_per_row": _state_bytes_per_row(done)}


def _state_bytes_per_row(done: Finished) -> float | None:
    """State in bytes for each row held, after the batch with the most rows; None where nothing says it."""
    sizes = []
    for one in done.progress:
        own_metrics = [m.asDict() for m in one.observedMetrics.values() if "held_rows" in m.asDict()]
        if own_metrics:
            sizes.append((own_metrics[0]["state_bytes"], own_metrics[0]["held_rows"]))
        else:
            states = [(state.memoryUsedBytes, state.numRowsTotal) for state in one.stateOperators]
            sizes.append((sum(size for size, _ in states), sum(rows for _, rows in states)))
    held_sizes = [(size, rows) for size, rows in sizes if size and rows]
    size, rows = max(held_sizes, key=lambda one: one[1], default=(0, 0))
    return size / rows if rows else None


def compare(on: Bench, name: str) -> None:
    """One case: load what the sides read, and run them in turn."""
    case = CASES[name].sized_for(on)
    topics = f"bench-join-left-{name}", f"bench-join-right-{name}"
    load(on.cluster, topics, case)
    near = {"within_ms": WITHIN_MS}
    setting = {
        "records": case.left,
        "right": case.right,
        "keys": case.keys,
        "batch": case.batch,
        # A change counts for ours however old it is, so the bound is Spark's alone.
        **({"sides": dict.fromkeys((DEFAULT, ROCKS), near)} if case.latest else near),
    }
    sides = {side: partial(measured, on, side, case, topics) for side in (DEFAULT, ROCKS, KEYEDWM, PUSHED)}
    in_turn(Sheet(f"join-{name}", DEFAULT, setting), sides, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    with bench(__doc__, CASES, batches=True) as on:
        for name in on.cases:
            compare(on, name)


if __name__ == "__main__":
    main()
