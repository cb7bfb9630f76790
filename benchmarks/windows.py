"""Windows: `keyedwm.spark.aggregate` beside Spark's own operators over its own Kafka connector, in turn, on one topic.

Run: python -m benchmarks.windows [--case tumbling|sliding-60|sliding-600|sessions|hot-partition|overlap|...]
[--records N] [--pairs N]
Counts the rows and sums the offsets of every key and window, into a no-op sink. What comes out is compared with the
exact answer, worked out of the numbers that were produced, before a figure is shown. Spark's operators copy every row
size/slide times, so they are given fewer rows, such that their run takes about as long as ours: what is compared is the
rate.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measure import HDFS, Run, Sheet, checked
from benchmarks.turns import Bench, bench, in_turn
from benchmarks.windows_answer import SESSION, Stream, answer, check_columns, load
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAG = "1 second"
KEYEDWM, PUSHED, DEFAULT, ROCKS = (
    "keyedwm", "keyedwm, stage one in the source", "spark, default store", "spark, RocksDB",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Share:
    """What a side is given: so many records, in micro-batches of so many."""

    records: int
    batch: int

    def of(self, on: Bench) -> Share:
        """The same with as many records as are run."""
        records = on.at_most(self.records)
        return Share(records, min(self.batch, records))


@dataclass(frozen=True, slots=True)
class Case:
    """Windows (size and slide, or a gap), what each side is given, and how far watermarks lag.

    A batch takes whole records of each partition, so partitions drift apart by what a record of theirs spans.
    """

    stream: Stream
    keyedwm: Share
    native: Share
    lag: str = LAG


MILLION = 1_000_000
# Ten full batches and more on every side, and the same for both where Spark's side can do them in a minute.
FULL = Share(8 * MILLION, 800_000)
HALF = Share(4 * MILLION, 400_000)
# Nine tenths in one partition, half of the rows of one key, and a hundred partitions: Spark starts a task for each.
SKEWED = {
    "hot-partition": Case(Stream(10_000, 10_000, hot_partition=0.87), HALF, HALF, lag="1 minute"),
    "hot-key": Case(Stream(10_000, 10_000, hot_key=0.5), HALF, HALF),
    "many-partitions": Case(Stream(10_000, 10_000, partitions=100), HALF, HALF, lag="1 minute"),
}
CASES = {
    "tumbling": Case(Stream(10_000, 10_000), FULL, FULL),
    "sliding-60": Case(Stream(60_000, 1_000), FULL, Share(MILLION, 100_000)),
    "sliding-600": Case(Stream(600_000, 1_000), FULL, Share(20_000, 2_000)),
    "sessions": Case(Stream(2_000, SESSION, keys=100_000, per_ms=4), FULL, FULL),
    **SKEWED,
}
OVERLAP = "overlap"


def reading(on: Bench, topic: str, share: Share) -> dict[str, str]:
    """The options of every side."""
    return {**on.where, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(share.batch)}


def keyedwm_counts(on: Bench, case: Case, topic: str, share: Share, *, pushed: bool) -> DataFrame:
    """Our windows, over loaded rows or with stage one in the tasks that read."""
    from keyedwm.spark import aggregate, count, session, sliding, source
    from keyedwm.spark import sum as total

    stream = case.stream
    size, slide = f"{stream.size_ms} milliseconds", f"{stream.slide_ms} milliseconds"
    window = session(size) if stream.slide_ms == SESSION else sliding(size, slide)
    aggregates = {"n": count(), "total": total("offset")}
    read = source(on.spark).options(**reading(on, topic, share), watermarkLag=case.lag, idleTimeout="none")
    if pushed:
        counts = aggregate(read, {"k": "key::string"}, window, aggregates)
    else:
        rows = read.option("columns", "key,offset,event_time,watermark,control").load()
        rows = rows.selectExpr("cast(key as string) k", "offset", "event_time", "watermark", "control")
        counts = aggregate(rows, "k", window, aggregates)
    return counts.where("control IS NULL")


def native(on: Bench, case: Case, topic: str, share: Share) -> DataFrame:
    """Spark's own windows."""
    from pyspark.sql import functions as F

    stream = case.stream
    size, slide = f"{stream.size_ms} milliseconds", f"{stream.slide_ms} milliseconds"
    window = F.session_window("timestamp", size) if stream.slide_ms == SESSION else F.window("timestamp", size, slide)
    rows = on.spark.readStream.format("kafka").options(**reading(on, topic, share)).load()
    rows = rows.selectExpr("cast(key as string) k", "offset", "timestamp").withWatermark("timestamp", case.lag)
    return rows.groupBy(window.alias("window"), "k").agg(F.count("*").alias("n"), F.sum("offset").alias("total"))


def measured(on: Bench, side: str, case: Case, share: Share) -> Run:
    """Run a query over all records of a share; raises SystemExit if what came out is not the exact answer."""
    on.spark.conf.set(PROVIDER, HDFS if side == DEFAULT else ROCKSDB)
    make = {KEYEDWM: partial(keyedwm_counts, pushed=False), PUSHED: partial(keyedwm_counts, pushed=True)}.get(
        side, native
    )
    frame = make(on, case, topic_of(case.stream, share), share)
    return checked(side, frame, check_columns(), answer(case.stream, share.records), share.records)


def topic_of(stream: Stream, share: Share) -> str:
    """Where the records of a share lie."""
    shape = (*astuple(stream), share.records)
    return f"bench-windows-{'-'.join(map(str, shape))}"


def compare(on: Bench, name: str) -> None:
    """One case: load what the sides read, and run them in turn."""
    case, stream = CASES[name], CASES[name].stream
    shares_of = {DEFAULT: case.native, ROCKS: case.native, KEYEDWM: case.keyedwm, PUSHED: case.keyedwm}
    if name in SKEWED:  # how the shape tells shows beside the quicker of Spark's stores
        del shares_of[ROCKS]
    shares = {side: share.of(on) for side, share in shares_of.items()}
    for topic, records in {topic_of(stream, share): share.records for share in shares.values()}.items():
        load(on.cluster, topic, stream, records)
    setting = {
        "size_ms": stream.size_ms, "slide_ms": stream.slide_ms or None, "keys": stream.keys,
        "records_per_ms": stream.per_ms, "partitions": stream.partitions, "lag": case.lag,
        "sides": {side: asdict(share) for side, share in shares.items()},
    }  # fmt: skip
    sides = {side: partial(measured, on, side, case, share) for side, share in shares.items()}
    in_turn(Sheet(f"windows-{name}", DEFAULT, setting), sides, on.pairs)


def compare_overlaps(on: Bench) -> None:
    """Our windows of 60 frames beside those of 600, in turn."""
    sides, setting = {}, {}
    for name in ("sliding-60", "sliding-600"):
        case = CASES[name]
        share = case.keyedwm.of(on)
        load(on.cluster, topic_of(case.stream, share), case.stream, share.records)
        sides[name], setting = partial(measured, on, KEYEDWM, case, share), asdict(share)
    in_turn(Sheet(f"windows-{OVERLAP}", "sliding-60", setting), sides, on.pairs)


def main() -> None:
    """Run the cases and write their results."""
    with bench(__doc__, [*CASES, OVERLAP]) as on:
        for name in on.cases:
            if name == OVERLAP:
                compare_overlaps(on)
            else:
                compare(on, name)


if __name__ == "__main__":
    main()
