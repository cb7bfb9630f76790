"""Results to one topic and rejected messages to another, by one query through real Kafka and Spark: counts add up."""

from __future__ import annotations

import json

import pytest

from keyedwm.spark import Store, aggregate, count, tumbling
from tests.sink.conftest import records_of
from tests.spark.started import AHEAD, event, keyed, steer
from tests.tools import produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
# A window of ten seconds closes, is updated by a late message, and is gone when the last ones come.
ROUNDS = (
    [AHEAD, event(1_000, "a"), event(2_000, "a"), event(3_000, "b"), steer(15_000)],
    [event(4_000, "a"), steer(30_000)],
    [event(5_000, "a", 7), event(6_000, "b", 8), event(31_000, "c"), steer(60_000)],
)


def test_results_and_rejected_messages_of_two_topics_add_up_to_the_input(spark, kafka, topic_of, load, tmp_path):
    topic, results, errors = topic_of(2), topic_of(1), topic_of(1)
    rows = keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds"))
    panes = aggregate(
        rows, "k", tumbling("10 seconds"), {"n": count()}, store=Store(retention="20 seconds"), late="emit", buckets=1
    )
    written = panes.selectExpr("k key", "to_json(struct(window, n, pane)) value", "rejected", "watermark", "control")
    target = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": results, "errorsTo": errors}
    for records in ROUNDS:  # each by a run of its own, from the checkpoint
        produce(kafka.bootstrap, topic, records)
        writer = written.writeStream.format("keyedwm").options(**target).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    told = [(key, value) for _, key, value, _ in records_of(kafka.bootstrap, results)]
    rejected = [(key, value) for _, key, value, _ in records_of(kafka.bootstrap, errors)]
    assert sorted(rejected) == [(b"a", b"7"), (b"b", b"8")]
    assert {key: n for (key, _), n in last_counts(told).items()} == {b"a": 3, b"b": 1, b"c": 1}
    assert sum(last_counts(told).values()) + len(rejected) == 7


def last_counts(records: list[tuple]) -> dict[tuple, int]:
    """How many messages the last pane of each key and window counts."""
    newest: dict[tuple, tuple] = {}
    for key, value in records:
        told = json.loads(value)
        where = (key, told["window"]["start"])
        newest[where] = max(newest.get(where, (-1, 0)), (told["pane"]["index"], told["n"]))
    return {where: n for where, (_, n) in newest.items()}
