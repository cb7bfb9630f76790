"""Windows that keep their messages: full-state medians beside Spark's own, bytes a message, what a late one costs.

Run: python -m benchmarks.store [--case median|bytes|late] [--records N] [--pairs N]
median: of each key and minute, 100,000 keys, through Kafka, into a no-op sink; Spark keeps the same rows with
`applyInPandasWithState`, by key and by bucket, and with `transformWithStateInPandas`, and has its own `median`, which
keeps no row once its window has ended. The slow sides are given fewer rows: what is compared is the rate. What comes
out is compared with the exact answer before a figure is shown. bytes, late: the store alone, in this process: its blobs
beside the Arrow size of what they hold, and the bytes that a late message reads and writes in a store of ten million
messages.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from benchmarks import store_native
from benchmarks.measure import FIRST_MS, PARTITIONS, Run, Sheet, checked, how_many
from benchmarks.store_native import MINUTE, MINUTE_MS, with_apply, with_buckets, with_processor
from benchmarks.turns import RECORDS, Bench, in_turn, running
from benchmarks.windows import LAG, MILLION, Share, reading
from benchmarks.windows_answer import Stream, load
from keyedwm.operators.frames.plan import tumbling
from keyedwm.operators.messages.functions import median
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.state.store import MemoryStore
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB
from keyedwm.windows import WindowOperator

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYEDWM, PUSHED = "keyedwm", "keyedwm, stage one in the source"
APPLY, BUCKETS = "spark, applyInPandasWithState by key", "spark, applyInPandasWithState by bucket"
PROCESSOR = "spark, transformWithStateInPandas by key"
BUILT_IN = "spark, median, which keeps no rows"
STREAM = Stream(MINUTE_MS, MINUTE_MS, keys=100_000, per_ms=5)
SHARES = {
    BUCKETS: Share(RECORDS, RECORDS // 10),
    APPLY: Share(20_000, 2_000),
    PROCESSOR: Share(20_000, 2_000),
    BUILT_IN: Share(RECORDS, RECORDS // 10),
    KEYEDWM: Share(RECORDS, RECORDS // 10),
    PUSHED: Share(RECORDS, RECORDS // 10),
}
_KEY_FACTOR, _PLACES, _PRIME = 1_000_003, 1_000_033, 1_000_000_007
PAIRS = 5
BATCH = 400_000
HELD_MESSAGES, MANY = MILLION, 10 * MILLION
DAY_MS = 86_400_000


def main() -> None:
    """Run the cases and write their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = {"median": compare, "bytes": weigh, "late": late}
    parser.add_argument("--case", action="append", choices=list(cases))
    parser.add_argument("--records", type=how_many, help="so many for the sides with the most")
    parser.add_argument(
        "--pairs", type=how_many, default=PAIRS, help="rounds that count, after two to four that warm up"
    )
    options = parser.parse_args()
    for name in options.case or cases:
        cases[name](options.records, options.pairs)


# Medians through Kafka and Spark


def compare(records: int | None, pairs: int) -> None:
    """All sides in turn."""
    cloudpickle.register_pickle_by_value(store_native)  # the workers need not find this package
    with running() as (cluster, spark):
        on = Bench(cluster, spark, ("median",), records, pairs)
        shares = {side: _scaled(share, on.records) for side, share in SHARES.items()}
        for record_count in sorted({share.records for share in shares.values()}):
            load(cluster, _topic(record_count), STREAM, record_count)
        setting = {
            "size_ms": MINUTE_MS, "keys": STREAM.keys, "records_per_ms": STREAM.per_ms,
            "sides": {side: asdict(share) for side, share in shares.items()},
        }  # fmt: skip
        sides = {side: partial(measured, on, side, share) for side, share in shares.items()}
        in_turn(Sheet("store-median", BUCKETS, setting), sides, pairs)


def measured(on: Bench, side: str, share: Share) -> Run:
    """Run a query over all records of a share; raises SystemExit if what came out is not the exact answer."""
    on.spark.conf.set(PROVIDER, ROCKSDB)
    frame = keyedwm_median(on, side, share) if side in (KEYEDWM, PUSHED) else native(on, side, share)
    return checked(side, frame, check_columns(), answer(share.records), share.records)


def keyedwm_median(on: Bench, side: str, share: Share) -> DataFrame:
    """Our windows: the messages are kept for a minute after their window's end."""
    from keyedwm.spark import Store, aggregate, median, source, tumbling

    names = ("topic", "partition", "offset", "event_time", "watermark", "control")
    read = source(on.spark).options(**reading(on, _topic(share.records), share), watermarkLag=LAG, idleTimeout="none")
    how = (tumbling(MINUTE), {"median": median("offset")})
    store = Store(retention=MINUTE)
    if side == PUSHED:
        medians = aggregate(read.option("columns", ",".join(names)), {"k": "key::string"}, *how, store=store)
    else:
        medians = aggregate(read.load().selectExpr("cast(key as string) k", *names), "k", *how, store=store)
    return medians.where("control IS NULL").selectExpr("k", "unix_millis(window.start) start_ms", "median")


def native(on: Bench, side: str, share: Share) -> DataFrame:
    """Spark's own."""
    from pyspark.sql import functions as F

    rows = on.spark.readStream.format("kafka").options(**reading(on, _topic(share.records), share)).load()
    rows = rows.selectExpr("cast(key as string) k", "offset", "timestamp").withWatermark("timestamp", LAG)
    makers = {BUCKETS: with_buckets, APPLY: with_apply, PROCESSOR: with_processor}
    if side in makers:
        return makers[side](rows)
    medians = rows.groupBy(F.window("timestamp", MINUTE).alias("window"), "k").agg(F.median("offset").alias("median"))
    return medians.selectExpr("k", "unix_millis(window.start) start_ms", "median")


@cache
def answer(records: int) -> dict[str, int]:
    """The number of results, the sum of their medians, doubled, and a checksum with keys and windows."""
    keys, minutes = STREAM.numbers(records), STREAM.after_ms(records) + FIRST_MS
    starts, offsets = minutes // MINUTE_MS * MINUTE_MS, np.arange(records) // PARTITIONS
    order = np.lexsort((offsets, starts, keys))
    keys, starts, offsets = keys[order], starts[order], offsets[order]
    first = np.flatnonzero(np.append(True, (np.diff(keys) != 0) | (np.diff(starts) != 0)))
    counts = np.diff(np.append(first, records))
    doubled = offsets[first + (counts - 1) // 2] + offsets[first + counts // 2]
    place = (keys[first] * _KEY_FACTOR + starts[first]) % _PLACES
    return {
        "results": len(first), "doubled": int(doubled.sum()), "checksum": int((place * (1 + doubled) % _PRIME).sum())
    }  # fmt: skip


def check_columns() -> list[Column]:
    """The same of results in Spark: columns k, start_ms, median."""
    from pyspark.sql import functions as F

    doubled = (F.col("median") * 2).cast("long")
    place = F.pmod(F.col("k").cast("long") * _KEY_FACTOR + F.col("start_ms"), F.lit(_PLACES))
    checksum = F.pmod(place * (1 + doubled), F.lit(_PRIME))
    return [
        F.count("*").alias("results"), F.sum(doubled).alias("doubled"), F.sum(checksum).alias("checksum"),
    ]  # fmt: skip


def _scaled(share: Share, records: int) -> Share:
    """The same where the sides with the most are given so many records."""
    return Share(share.records * records // RECORDS, share.batch * records // RECORDS)


def _topic(records: int) -> str:
    return f"bench-store-{records}"


# The store alone

SCHEMA = pa.schema([
    ("k", pa.string()), ("v", pa.int64()), ("event_time", pa.timestamp("ms", "UTC")), ("topic", pa.string()),
    ("partition", pa.int32()), ("offset", pa.int64()),
])  # fmt: skip


class CountingStore(MemoryStore):
    """Counts the bytes of the blobs that are read."""

    read_bytes = 0

    def get(self, name: str) -> bytes:
        """Read one blob."""
        self.read_bytes += len(self.blobs[name])
        return self.blobs[name]


def batches(records: int, per_ms: int) -> Iterator[pa.Table]:
    """Yield messages in batches, so many a ms."""
    names = pa.array([f"{number:06}" for number in range(STREAM.keys)])
    chance = np.random.default_rng(5)
    for first in range(0, records, BATCH):
        numbers = np.arange(first, min(first + BATCH, records))
        columns = [
            names.take(pa.array(chance.integers(0, STREAM.keys, len(numbers)))),
            pa.array(chance.integers(0, 1_000_000, len(numbers))),
            pa.array(FIRST_MS // MINUTE_MS * MINUTE_MS + numbers // per_ms, SCHEMA.field("event_time").type),
            pa.array(["bench"]).take(pa.array(np.zeros(len(numbers), np.int64))),
            pa.array((numbers % PARTITIONS).astype(np.int32)),
            pa.array(numbers // PARTITIONS),
        ]
        yield pa.Table.from_arrays(columns, schema=SCHEMA)


def operator_on(store: MemoryStore) -> WindowOperator:
    """Return an operator over a store, as every batch in Spark has a new one."""
    plan = StorePlan(
        schema=SCHEMA, by=("k",), window=tumbling(MINUTE_MS), aggregates=(("median", median("v")),),
        retention=Retention(time_ms=DAY_MS),
    )  # fmt: skip
    return WindowOperator(plan, store)


def filled(records: int, per_ms: int) -> tuple[CountingStore, int]:
    """Return a store that holds so many messages, and their size in Arrow."""
    store, arrow_bytes = CountingStore(), 0
    for rows in batches(records, per_ms):
        operator = operator_on(store)
        operator.add_message(rows)
        operator.watermark(int(rows["event_time"].cast(pa.int64())[-1].as_py()))
        operator.flush()
        arrow_bytes += rows.nbytes
    counts = operator_on(store).counts
    held_messages = counts.taken - counts.expired
    if held_messages != records:
        raise SystemExit(f"{held_messages} messages are held, there should be {records}: no figure")
    return store, arrow_bytes


def weigh(records: int | None, _pairs: int) -> None:
    """Bytes of all blobs a message held, beside the Arrow size of the same messages."""
    held_messages = min(records or HELD_MESSAGES, HELD_MESSAGES)
    sheet = Sheet("store-bytes", None, {"messages": held_messages, "batch": BATCH, "keys": STREAM.keys})
    store, arrow_bytes = filled(held_messages, STREAM.per_ms)
    size = sum(store.sizes.values())
    sheet.add(
        KEYEDWM,
        {"bytes": size / held_messages, "arrow_bytes": arrow_bytes / held_messages, "of_arrow": size / arrow_bytes},
    )
    sheet.finish()


def late(records: int | None, _pairs: int) -> None:
    """One late message: the bytes that its batch reads and writes, beside its window's slice and the whole store."""
    held_messages = min(records or MANY, MANY)
    sheet = Sheet("store-late", None, {"messages": held_messages, "messages_a_minute": MINUTE_MS, "keys": STREAM.keys})
    store, _ = filled(held_messages, 1)
    start_ms = FIRST_MS // MINUTE_MS * MINUTE_MS + held_messages // 2 // MINUTE_MS * MINUTE_MS
    of_slice = sum(size for name, size in store.sizes.items() if f"-{start_ms}" in name)
    before, whole, store.read_bytes = dict(store.blobs), sum(store.sizes.values()), 0
    operator = operator_on(store)
    message = {"k": "000000", "v": 1, "topic": "bench", "partition": 0, "offset": held_messages}
    operator.add_message(pa.Table.from_pylist([message | {"event_time": start_ms + 1}], SCHEMA))
    panes = operator.flush()
    if panes.num_rows < 1 or set(panes["pane"].combine_chunks().field("timing").to_pylist()) != {"late"}:
        raise SystemExit(f"the late message made {panes.num_rows} panes: no figure")
    written_bytes = sum(len(blob) for name, blob in store.blobs.items() if before.get(name) != blob)
    cost = {
        "read_bytes": store.read_bytes,
        "written_bytes": written_bytes,
        "slice_bytes": of_slice,
        "store_bytes": whole,
    }
    sheet.add(KEYEDWM, {**cost, "of_slice": (store.read_bytes + written_bytes) / of_slice})
    sheet.finish()


if __name__ == "__main__":
    main()
