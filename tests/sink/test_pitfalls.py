"""What at-least-once lets happen, and exactly-once does not: the two pitfalls of the seed design, from job to job.

The first job is the sink on a real Kafka with control rows inline, the second the source with `propagate`.
"""

from __future__ import annotations

import uuid
from itertools import pairwise

import pytest

from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.options.sink_options import SnapshotMode
from tests.sink.kafka_sink import Sink
from tests.sink.test_inline import barrier, watermark_row
from tests.tools import events

BOTH = pytest.mark.parametrize("guarantee", list(Guarantee), ids=lambda guarantee: guarantee.value)
PARTITIONS = 2


@pytest.fixture
def first_job(kafka, topic_of, tmp_path):
    def make(guarantee: Guarantee) -> Sink:
        kafka_sink = Sink(kafka.bootstrap, topic_of(PARTITIONS), tmp_path / "ledger", f"q-{uuid.uuid4().hex}")
        kafka_sink.inline, kafka_sink.mode, kafka_sink.guarantee = True, SnapshotMode.BARRIER, guarantee
        return kafka_sink

    return make


@pytest.fixture
def second_job(open_stream):
    def make(topic: str, guarantee: Guarantee, **options: str):
        isolation = {} if guarantee is Guarantee.EXACTLY_ONCE else {"kafka.isolation.level": "read_uncommitted"}
        return open_stream(topic, isolation, propagate="true", guarantee=guarantee.value, **options)

    return make


def publish(sink: Sink, snapshot: int, rows: int = 8) -> None:
    """One snapshot of the first job; its rows go to both partitions, three times as many to the first."""
    places = [0, 0, 0, 1] * (rows // 4)
    control = (watermark_row(0, snapshot + 1, 1_000 * (snapshot + 1)), barrier(0, snapshot + 1, snapshot, 1))
    sink.publish_and_settle(snapshot, sink.placed(snapshot, [(str(snapshot), place) for place in places], control))


def batch_values(batches: list) -> list[tuple[int, set[int]]]:
    """For each batch with rows: how many, and of which snapshots."""
    numbers = [[int(row["value"]) for row in events(batch)] for batch in batches]
    return [(len(batch), set(batch)) for batch in numbers if batch]


@BOTH
def test_rows_of_the_next_snapshot_overtake_the_barrier_under_at_least_once_only(first_job, second_job, guarantee):
    sink = first_job(guarantee)
    for snapshot in range(4):
        publish(sink, snapshot, rows=40)
    counts_and_values = batch_values(second_job(sink.topic, guarantee, maxOffsetsPerTrigger="50").drain())
    assert sum(count for count, _ in counts_and_values) == 160
    whole = [count % 40 == 0 for count, _ in counts_and_values]
    mixed = [later for (_, earlier), (_, later) in pairwise(counts_and_values) if earlier & later]
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert all(whole)
        assert not mixed
    else:
        # A batch ended in the middle of a snapshot: some of its rows came with rows of the next one.
        assert not all(whole)
        assert mixed


@BOTH
def test_a_watermark_is_seen_twice_after_a_restart_under_at_least_once_only(first_job, second_job, guarantee):
    sink = first_job(guarantee)
    publish(sink, 0)
    publish(sink, 1)
    reader = second_job(sink.topic, guarantee)
    batches = reader.drain()
    sink.run = "run-1"  # the driver died before Spark noted the batch, so it runs again
    publish(sink, 1)
    publish(sink, 2)
    batches += reader.drain()
    swallowed = [channel[-1][5] for channel in reader.offset["channels"][sink.topic].values()]
    rows = [int(row["value"]) for batch in batches for row in events(batch)]
    again = guarantee is Guarantee.AT_LEAST_ONCE
    assert swallowed == [int(again)] * PARTITIONS
    assert [rows.count(snapshot) for snapshot in range(3)] == [8, 16 if again else 8, 8]
    assert reader.watermark_ms() == 3_000
