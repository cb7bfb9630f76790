"""A stopped query that writes to Kafka moves to other buckets and is killed on the way: each result is sent once.

Run: pytest tests/spark/moved_to_kafka.py
Not in the suite, which moves and kills the same query without Kafka behind it, and one into Delta.
"""

from __future__ import annotations

import builtins
import json
from collections import Counter

import pytest

from keyedwm.spark import aggregate, savepoint
from tests.sink.conftest import records_of
from tests.spark.test_savepoint import AGGREGATES, TEN, records
from tests.tools import Record, produce

pytestmark = [pytest.mark.usefixtures("bucket_conf"), pytest.mark.starts]
KEPT = ("watermark", "control")


def test_a_moved_query_that_is_killed_on_the_way_writes_to_kafka_what_it_tells_once(spark, kafka, topic_of, tmp_path):
    topic, into, target = topic_of(2), topic_of(2), str(tmp_path / "target")

    def run(checkpoint, place, buckets, *, fail=False):
        begin = {"startingOffsets": "earliest"} if place is None else {"continueFrom": place}
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "idleTimeout": "none", **begin}
        rows = spark.readStream.format("keyedwm").options(**given).load()
        keyed = rows.selectExpr("*", "cast(key as string) k", "cast(cast(value as string) as bigint) v")
        made = aggregate(keyed, "k", TEN, AGGREGATES, buckets=buckets, name="tens", continue_from=place)
        made = made.selectExpr("to_json(struct(k, unix_millis(window.end) AS ms, n, total)) value", *KEPT)
        writer = (broken(made) if fail else made).writeStream.format("keyedwm").option("topic", into)
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap)
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    produce(kafka.bootstrap, topic, records(0))
    run("old", None, 2)
    savepoint(spark, str(tmp_path / "old"), target)
    produce(kafka.bootstrap, topic, records(1))
    with pytest.raises(Exception, match="killed on the way"):
        run("new", target, 3, fail=True)
    run("new", target, 3)
    sent = Counter(value for _, _, value, _ in records_of(kafka.bootstrap, into))
    assert sent == expected(records(0) + records(1))


def expected(given: list[Record]) -> Counter:
    """What the windows that the slower partition has passed say."""
    passed_ms = min(max(one.timestamp_ms for one in given if one.partition == part) for part in (0, 1))
    found: dict[tuple, list[int]] = {}
    for one in given:
        end_ms = one.timestamp_ms // 10_000 * 10_000 + 10_000
        if end_ms <= passed_ms:
            found.setdefault((one.key.decode(), end_ms), []).append(int(one.value))
    rows = ({"k": key, "ms": ms, "n": len(v), "total": builtins.sum(v)} for (key, ms), v in found.items())
    return Counter(json.dumps(row, separators=(",", ":")).encode() for row in rows)


def broken(rows):
    """The rows, of which every task fails behind its last one."""

    def last(batches):
        yield from batches
        raise RuntimeError("killed on the way")

    return rows.mapInArrow(last, rows.schema)
