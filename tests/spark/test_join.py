"""Joins through a real Kafka and a real Spark: what leaves and when, what is late, what a restart keeps."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from keyedwm.spark import aggregate, count, join, join_latest, source, tumbling
from tests.spark.started import BASE_MS, event, keyed
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")


@pytest.fixture
def two(topic_of, load):
    """Two topics of one partition, and their rows with `k` and `v`; an event at t moves its side's watermark to t."""
    topics = topic_of(1), topic_of(1)
    frames = [keyed(load(topic, idleTimeout="none")).select(*KEPT) for topic in topics]
    return topics, frames


KEPT = ("k", "v", "event_time", "watermark", "control")


def ms(moment):
    return None if moment is None else round(moment.timestamp() * 1_000) - BASE_MS


def shown(rows):
    found = [(row["k"], row["v_left"], row["v_right"], ms(row["event_time_left"]), ms(row["event_time_right"]))
             for row in rows if row["control"] is None]  # fmt: skip
    return sorted(found, key=str)


def watermarks(rows):
    return {
        (row["control"]["key"], ms(row["control"]["watermark"]))
        for row in rows
        if row["control"] is not None and row["control"]["kind"] == "watermark"
    }


def test_rows_match_within_their_time_and_each_side_keeps_its_watermark(two, started):
    (orders, shipments), frames = two
    query = started(join(*frames, "k", within=("0 seconds", "10 seconds")))
    produce(query.bootstrap, orders, [event(1_000, "a", 1), event(2_000, "b", 2)])
    made = query.give(shipments, [event(5_000, "a", 10), event(13_000, "b", 20), event(1_500, "b", 30)])
    assert shown(made) == [("a", 1, 10, 1_000, 5_000)]
    # The left side is far behind: its rows are not late by what the right side has seen.
    made = query.give(orders, [event(3_000, "b", 3)])
    assert shown(made) == [("b", 3, 20, 3_000, 13_000)]
    assert watermarks(made) == {(0, 3_000), (1, 3_000)}
    query.restart()
    made = query.give(orders, [event(4_000, "a", 4), event(2_500, "a", 5)])
    assert shown(made) == [("a", 4, 10, 4_000, 5_000)]
    assert query.metrics()["late_rows"] == 1


def test_unmatched_rows_leave_padded_when_they_are_forgotten_and_feed_a_window(two, started):
    (orders, shipments), frames = two
    joined = join(*frames, "k", within=("0 seconds", "10 seconds"), how="left", name="shipped")
    query = started(aggregate(joined, "k", tumbling("5 seconds"), {"n": count(), "hit": count("v_right")}, axis="left"))
    produce(query.bootstrap, orders, [event(1_000, "a", 1), event(2_000, "b", 2)])
    assert all(row["control"] is not None for row in query.give(shipments, [event(3_000, "a", 10)]))
    query.restart()
    produce(query.bootstrap, orders, [event(40_000, "c", 3)])
    made = query.give(shipments, [event(30_000, "z", 9)])
    assert sorted((row["k"], row["n"], row["hit"]) for row in made if row["control"] is None) == [
        ("a", 1, 1), ("b", 1, 0),
    ]  # fmt: skip


def test_each_row_meets_the_latest_change_before_it_after_a_restart_too(two, started):
    (trades, rates), frames = two
    query = started(join_latest(*frames, "k", names=("trade", "rate")))
    produce(query.bootstrap, trades, [event(5_000, "a", 1), event(6_000, "b", 2)])
    made = query.give(rates, [event(1_000, "a", 10), event(4_000, "a", 20), event(5_001, "a", 30)])
    assert [(row["k"], row["v_trade"], row["v_rate"]) for row in made if row["control"] is None] == [("a", 1, 20)]
    query.restart()
    made = query.give(rates, [event(7_000, "c", 1)])
    assert [(row["k"], row["v_trade"], row["v_rate"]) for row in made if row["control"] is None] == [("b", 2, None)]
    assert watermarks(made) == {(0, 6_000)}


AXES = '{"made": {"key": 3, "eventTime": "json:$.made"}, "sent": {"key": 5, "eventTime": "json:$.sent"}}'


def test_rows_divided_in_the_reading_tasks_are_joined_as_loaded_ones_are(topic_of, spark, kafka, started, seed):
    chance = random.Random(f"{seed} divided")
    topics = [topic_of(2), topic_of(1)]
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest", "idleTimeout": "none"}
    given["watermarkLag"] = "20 seconds"  # nothing is late, so the cut into batches cannot be seen in the results
    reads = [
        source(spark).options(**given, subscribe=topics[0], watermarks=AXES, includeHeaders=True),
        source(spark).options(**given, subscribe=topics[1], columns="key,offset,event_time,watermark,control"),
    ]
    how = {"bounds": {("sent", "right"): ("-3 seconds", "4 seconds")}, "how": "full"}
    queries = [started(join(*sides, "key", **how)) for sides in (reads, [read.load() for read in reads])]
    made: tuple[Counter[str], ...] = (Counter(), Counter())
    for step in range(3):
        far = [] if step < 2 else [99_999_999]
        left, right = ([*(chance.randrange(20_000) for _ in range(60)), *far] for _ in range(2))
        keys = [chance.choice([None, b"a", b"b", b"", b"c"]) for _ in range(80)]
        times = [{"made": chance.randrange(9), "sent": ms if chance.random() < 0.9 or far else None} for ms in left]
        values = [json.dumps(one).encode() for one in times]
        both_partitions = [*enumerate(values), *((len(values), values[-1]) for _ in far)]
        produce(kafka.bootstrap, topics[0], [Record(at % 2, 1, value, keys[at]) for at, value in both_partitions])
        produce(kafka.bootstrap, topics[1], [Record(0, ms, b"", keys[-1 - at]) for at, ms in enumerate(right)])
        for query, seen in zip(queries, made, strict=True):
            rows = [row.asDict(recursive=True) for row in query.give(topics[0], []) if not row["control"]]
            seen.update(repr({name: row[name] for name in row if not name.startswith("watermark")}) for row in rows)
        if step == 0:
            queries[0].restart()
    assert made[0] == made[1]
    assert made[0].total() > 100
