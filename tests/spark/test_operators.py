"""Spark's own stateful operators follow the coalesced watermark: none drops the slow partition's rows, all clean up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from keyedwm.spark import with_watermark
from tests.tools import Record, produce

STEPS = 5
LAST_MS = 10_000_000
SLOW_MS = [10_000 * step for step in range(1, STEPS + 1)]
FAST_MS = [100_000 * step for step in range(1, STEPS + 1)]
TIMES = sorted(SLOW_MS + FAST_MS)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(scope="module")
def topic(kafka) -> str:
    """Partition 0 moves 100 s a step, partition 1 moves 10 s; each value comes twice. One last record ends both."""
    import uuid

    from tests.tools import make_topic

    name = make_topic(kafka.bootstrap, f"t-{uuid.uuid4().hex[:16]}", 2)
    for fast, slow in zip(FAST_MS, SLOW_MS, strict=True):
        of_step = [Record(0, fast, b"%d" % fast), Record(1, slow, b"%d" % slow)]
        produce(kafka.bootstrap, name, of_step * 2)
    produce(kafka.bootstrap, name, [Record(0, LAST_MS, b"last"), Record(1, LAST_MS, b"last")])
    return name


@pytest.fixture
def rows(topic, load):
    """The rows, in batches of about one step."""
    return load(topic, maxOffsetsPerTrigger="4", idleTimeout="none")


@pytest.fixture
def rocksdb(spark) -> Iterator[None]:
    before = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    yield
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", before)


def watermarks_ms(ran) -> list[int]:
    """Spark's watermark of every batch."""
    stamps = [p["eventTime"]["watermark"] for p in ran.progress if "watermark" in p.get("eventTime", {})]
    return [int(pd.Timestamp(stamp).timestamp() * 1_000) for stamp in stamps]


def test_sparks_watermark_is_ours_less_a_millisecond(rows, run):
    ran = run(with_watermark(rows).groupBy(F.window("event_time", "10 seconds")).count())
    seen = watermarks_ms(ran)
    assert seen == sorted(seen)
    # Where it starts, the slow partition's own watermarks, and the end: never anything of the fast one's.
    assert set(seen) <= {0, *(ms - 1 for ms in SLOW_MS), LAST_MS - 1}
    assert seen[-1] == LAST_MS - 1
    assert len(set(seen)) > STEPS - 1


def test_windows(rows, run):
    ran = run(
        with_watermark(rows).groupBy(F.window("event_time", "10 seconds")).count()
        .selectExpr("unix_millis(window.start) start", "count")
    )  # fmt: skip
    assert ran.dropped == 0
    assert sorted((row["start"], row["count"]) for row in ran.rows) == [(ms, 2) for ms in TIMES]


def test_session_windows(rows, run):
    ran = run(
        with_watermark(rows).groupBy(F.session_window("event_time", "5 seconds"), "partition").count()
        .selectExpr("unix_millis(session_window.start) start", "count")
    )  # fmt: skip
    assert ran.dropped == 0
    assert sorted((row["start"], row["count"]) for row in ran.rows) == [(ms, 2) for ms in TIMES]


@pytest.mark.parametrize("name", ["dropDuplicates", "dropDuplicatesWithinWatermark"])
def test_duplicates_are_dropped_late_rows_are_not_and_state_is_cleaned(rows, run, name):
    frame = with_watermark(rows)
    columns = ["value", "event_time"] if name == "dropDuplicates" else ["value"]
    ran = run(getattr(frame, name)(columns).selectExpr("unix_millis(event_time) ms"))
    assert ran.dropped == 0
    assert sorted(row["ms"] for row in ran.rows) == [*TIMES, LAST_MS]
    assert ran.progress[-1]["stateOperators"][0]["numRowsTotal"] <= 1


def test_a_join_of_two_streams(topic, load, run):
    def side(name: str):
        frame = with_watermark(load(topic, maxOffsetsPerTrigger="4", idleTimeout="none"))
        return frame.select(
            F.col("value").alias(f"{name}_value"), F.col("event_time").alias(f"{name}_time"), "partition"
        )

    left = side("left")
    right = side("right").where("partition = 1").drop("partition")
    joined = left.join(
        right, F.expr("left_value = right_value AND right_time BETWEEN left_time AND left_time + INTERVAL 1 SECOND"),
        "left_outer",
    )  # fmt: skip
    ran = run(joined.selectExpr("unix_millis(left_time) ms", "right_time IS NULL alone"))
    assert ran.dropped == 0
    closed = [(row["ms"], row["alone"]) for row in ran.rows if row["ms"] < LAST_MS]
    # Both copies meet both copies; what has no partner comes out alone once the watermark has passed it.
    assert sorted(closed) == sorted([(ms, False) for ms in SLOW_MS] * 4 + [(ms, True) for ms in FAST_MS] * 2)


class Told(StatefulProcessor):
    """Gives every row with the watermark that Spark shows."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002
        watermark_ms = timers.getCurrentWatermarkInMs()
        for frame in rows:
            yield pd.DataFrame({"ms": frame["event_time"].astype("int64") // 1_000_000, "watermark_ms": watermark_ms})

    def close(self) -> None:
        pass


@pytest.mark.usefixtures("rocksdb")
def test_transform_with_state(rows, run):
    grouped = with_watermark(rows).select("partition", "event_time").groupBy("partition")
    ran = run(grouped.transformWithStateInPandas(Told(), "ms bigint, watermark_ms bigint", "append", "EventTime"))
    assert ran.dropped == 0
    assert sorted(row["ms"] for row in ran.rows) == sorted([*TIMES * 2, LAST_MS, LAST_MS])
    shown = {row["watermark_ms"] for row in ran.rows}
    assert shown <= {0, *(ms - 1 for ms in SLOW_MS), LAST_MS - 1}
    assert len(shown) > STEPS - 2


def test_no_filter_sinks_below_the_watermark(rows, capsys):
    filtered = with_watermark(rows).where("key IS NOT NULL AND partition = 1 AND control IS NULL").where("offset > 3")
    filtered.explain(extended=True)
    plan = (
        capsys.readouterr()
        .out.partition("== Optimized Logical Plan ==")[2]
        .partition("== Physical Plan ==")[0]
        .splitlines()
    )
    at = next(number for number, line in enumerate(plan) if "EventTimeWatermark" in line)
    assert any("Filter" in line and "partition" in line for line in plan[:at])
    assert not any("Filter" in line for line in plan[at:])


def test_the_watermark_moves_on_batches_whose_rows_are_all_filtered_out(rows, run):
    none = with_watermark(rows).where("partition = 7").groupBy(F.window("event_time", "10 seconds")).count()
    ran = run(none)
    assert ran.rows == []
    assert watermarks_ms(ran)[-1] == LAST_MS - 1


def test_a_frame_without_our_columns_is_refused_by_name(rows):
    from keyedwm.core.errors import InputError

    with pytest.raises(InputError, match="with_watermark: the frame has no column 'watermark'"):
        with_watermark(rows.select("value", "event_time"))
