"""Operators over columns that the source reads out of JSON: the results are those over Spark's own reading of it."""

from __future__ import annotations

import json
import random

import pytest

from keyedwm.spark import Store, aggregate, count, join, median, sum, tumbling  # noqa: A004
from tests.spark.random_records import shown
from tests.spark.started import BASE_MS
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
TEN = tumbling("10 seconds")
FIELDS = "json:$.k, json:$.v::bigint, key:$.id::double AS id"
# What Spark makes of the same: get_json_object reads a single field, as the source does, and gives a null for it.
PARSED = (
    "get_json_object(cast(value as string), '$.k') k",
    "cast(get_json_object(cast(value as string), '$.v') as bigint) v",
    "cast(get_json_object(cast(key as string), '$.id') as double) id",
)
KEPT = ("topic", "partition", "offset", "event_time", "watermark", "control")


def records(chance: random.Random, partitions: int) -> list[Record]:
    """Events of 40 seconds, some of other shapes, and at last one for each partition that closes every window."""
    made = []
    for at in range(200):
        value = {"k": chance.choice(["a", "b", "é\n", None]), "v": chance.randrange(-9, 9), "more": ["}", 1]}
        text = chance.choice([json.dumps(value), json.dumps(value), "[]", json.dumps({"v": 3})]).encode()
        key = json.dumps({"id": chance.random()}).encode()
        made.append(Record(at % partitions, BASE_MS + chance.randrange(40_000), text, key))
    return made + [Record(partition, BASE_MS + 10_000_000, None, None) for partition in range(partitions)]


def of_spark(read):
    """The rows of a source, and the fields as Spark reads them."""
    return read.load().selectExpr(*KEPT, *PARSED)


def of_source(read):
    """The same, as the source reads them."""
    return read.option("columns", f"{', '.join(KEPT)}, {FIELDS}")


def test_rows_are_those_that_spark_reads(topic_of, described, run, seed, kafka):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, records(random.Random(f"{seed} rows"), 2))
    read = described(topic)
    frames = of_source(read).load(), of_spark(read)
    both = [run(frame.select("k", "v", "id", "event_time", "control")) for frame in frames]
    assert shown(both[0].rows) == shown(both[1].rows)
    assert len({row["id"] for row in both[0].rows}) == 201


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_join_meets_on_them_before_and_after_the_rows_are_loaded(is_loaded, topic_of, described, run, seed, kafka):
    topics = [topic_of(2), topic_of(1)]
    chance = random.Random(f"{seed} join")
    for topic, partitions in zip(topics, (2, 1), strict=True):
        produce(kafka.bootstrap, topic, records(chance, partitions))
    reads = [described(topic, watermarkLag="1 minute") for topic in topics]
    sides = [of_source(read) for read in reads]
    how = {"within": ("-1 second", "1 second"), "how": "left"}
    made = run(join(*(side.load() if is_loaded else side for side in sides), "k", **how))
    expected = run(join(*map(of_spark, reads), "k", **how))
    assert shown(made.rows) == shown(expected.rows)
    assert len([row for row in made.rows if row["v_right"] is not None]) > 50


def test_windows_and_stores_name_them(topic_of, described, run, seed, kafka):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, records(random.Random(f"{seed} windows"), 2))
    read = described(topic, watermarkLag="1 minute")
    with_all = read.option("columns", f"*, {FIELDS}")
    wanted = {"n": count(), "total": sum("v")}
    frames = run(aggregate(with_all, "k", TEN, wanted))
    assert shown(frames.rows) == shown(run(aggregate(of_spark(read), "k", TEN, wanted)).rows)
    full = {"middle": median("v")}
    kept = [
        run(aggregate(one, "k", TEN, full, store=Store(retention="1 minute")))
        for one in (of_source(read), of_spark(read))
    ]
    assert shown(kept[0].rows) == shown(kept[1].rows)
    assert len([row for row in kept[0].rows if not row["control"]]) > 10
