"""A sink that is slow slows the reading down: what waits stays in Kafka, and a store holds what its limit says."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import functions as F

from keyedwm.spark import Store, aggregate, count, held_windows, start_in_turn, tumbling
from tests.spark.started import BASE_MS, keyed
from tests.tools import Record, produce, wait_until

pytestmark = pytest.mark.usefixtures("bucket_conf")
A_BATCH, MOST_BYTES, RECORDS = 400, 40_000, 3_000
CONTROL_ROWS = 20  # of a batch of two partitions, and some room


def records(first: int) -> list[Record]:
    """A record a second, in two partitions, of five keys."""
    return [
        Record(number % 2, BASE_MS + number * 1_000, b"1", b"k%d" % (number % 5))
        for number in range(first, first + RECORDS)
    ]


def test_while_a_sink_waits_nothing_more_is_read_and_the_state_keeps_to_its_limit(
    spark, kafka, topic_of, load, tmp_path
):
    topic, opened, waits = topic_of(2), Event(), Event()

    def slow(rows, _number):
        rows.write.format("noop").mode("overwrite").save()
        waits.set()
        assert opened.wait(300)

    rows = keyed(load(topic, maxOffsetsPerTrigger=str(A_BATCH), watermarkLag="0 seconds"))
    panes = aggregate(rows, "k", tumbling("2 minutes"), {"n": count()}, store=Store(max_bytes=MOST_BYTES), buckets=2)
    checkpoint = str(tmp_path / "checkpoint")
    (query,) = start_in_turn(panes.writeStream.foreachBatch(slow).option("checkpointLocation", checkpoint))
    try:
        produce(kafka.bootstrap, topic, records(0))
        wait_until(waits.is_set, "the first batch")
        produce(kafka.bootstrap, topic, records(RECORDS))
        planned = {name.name for name in Path(checkpoint, "offsets").iterdir() if name.name.isdecimal()}
        assert planned == {"0"}
        opened.set()
        query.processAllAvailable()
        progress = query.recentProgress
    finally:
        opened.set()
        query.stop()
    assert query.exception() is None
    assert max(one.numInputRows for one in progress) <= A_BATCH + CONTROL_ROWS
    told = [one for batch in progress for one in batch.observedMetrics.values()]
    assert sum(one.dropped_rows or 0 for one in told) > 0
    held = held_windows(spark, checkpoint).agg(F.sum("bytes"), F.sum("messages")).first()
    assert held[0] <= MOST_BYTES
    assert (
        held[1] + sum(one.dropped_rows or 0 for one in told) + sum(one.rejected_rows or 0 for one in told)
        == 2 * RECORDS
    )
