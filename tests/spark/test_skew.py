"""Two partitions, one ten times faster: Spark's own watermark loses the slow one's rows, ours loses none."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as F

from keyedwm.spark import with_watermark
from tests.tools import Record, produce

STEPS = 12
MINUTE_MS = 60_000
FAST, SLOW = 0, 1
LAST_MS = 100_000 * MINUTE_MS


@pytest.fixture
def skewed(kafka, topic_of) -> str:
    """Minutes 10, 20, 30 ... on partition 0 and 1, 2, 3 ... on partition 1; the last record closes all windows."""
    topic = topic_of(2)
    for step in range(1, STEPS + 1):
        produce(kafka.bootstrap, topic, [Record(FAST, 10 * step * MINUTE_MS), Record(SLOW, step * MINUTE_MS)])
    produce(kafka.bootstrap, topic, [Record(FAST, LAST_MS), Record(SLOW, LAST_MS)])
    return topic


def counted(frame):
    windows = frame.groupBy(F.window("event_time", "1 minute"), "partition").count()
    return windows.selectExpr("unix_millis(window.start) start", "partition", "count")


def exact() -> Counter:
    fast = {(10 * step * MINUTE_MS, FAST): 1 for step in range(1, STEPS + 1)}
    slow = {(step * MINUTE_MS, SLOW): 1 for step in range(1, STEPS + 1)}
    return Counter(fast | slow)


def found(ran) -> Counter:
    return Counter({(row["start"], row["partition"]): row["count"] for row in ran.rows})


def test_with_keyedwm_nothing_is_lost(skewed, load, run):
    ran = run(counted(with_watermark(load(skewed, maxOffsetsPerTrigger="4"))))
    assert ran.batches > STEPS // 2
    assert ran.dropped == 0
    assert found(ran) == exact()


def test_with_sparks_own_watermark_the_slow_partition_loses_rows(skewed, load, run):
    plain = load(skewed, maxOffsetsPerTrigger="4", emitControl="false").drop("watermark")
    ran = run(counted(plain.withWatermark("event_time", "0 seconds")))
    lost = exact() - found(ran)
    assert ran.dropped >= STEPS // 2
    assert lost.total() == ran.dropped
    assert {partition for _, partition in lost} == {SLOW}
