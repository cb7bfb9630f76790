"""Joins of joins, a read that is joined with itself, and Spark's own join beside ours where nothing is late."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F

from keyedwm.spark import events, join
from tests.spark.started import event, keyed
from tests.tools import produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
KEPT = ("k", "v", "event_time", "watermark", "control")


@pytest.fixture
def two(topic_of, load):
    """Two topics of one partition, and their rows with `k` and `v`; no row is late."""
    topics = topic_of(1), topic_of(1)
    given = {"idleTimeout": "none", "watermarkLag": "1 hour", "maxOffsetsPerTrigger": "25"}
    return topics, [keyed(load(topic, given)).select(*KEPT) for topic in topics]


def test_three_sides_of_which_one_was_read_before_meet_in_one_query(two, started):
    (orders, shipments), (left, right) = two
    shipped = join(left, right, "k", within=("0 seconds", "10 seconds"), names=("order", "shipment"), name="shipped")
    # The orders again: each order with those of its key up to five seconds later, itself among them.
    bounds = {("order", "next"): ("0 seconds", "5 seconds")}
    query = started(join(shipped, left, "k", bounds=bounds, names=("shipped", "next"), name="followed"))
    produce(query.bootstrap, orders, [event(1_000, "a", 1), event(3_000, "a", 2), event(9_000, "a", 3)])
    made = query.give(shipments, [event(4_000, "a", 10)])
    query.restart()
    produce(query.bootstrap, orders, [event(5_500, "a", 4), event(5_500, "b", 5)])
    made += query.give(shipments, [event(15_500, "a", 20)])
    found = sorted((r["v_order"], r["v_shipment"], r["v"]) for r in made if r["control"] is None)
    assert found == [(1, 10, 1), (1, 10, 2), (1, 10, 4), (2, 10, 2), (2, 10, 4), (3, 20, 3), (4, 20, 3), (4, 20, 4)]


def test_a_frame_that_is_joined_with_itself_is_read_once(two, started):
    (topic, _), (frame, other) = two
    itself = join(frame, frame, "k", within=("1 second", "10 seconds"), names=("first", "next"))
    query = started(itself)
    # Pairs of one batch, and of two with a restart between them.
    made = query.give(topic, [event(1_000, "a", 1), event(3_000, "a", 2), event(3_500, "b", 3)])
    query.restart()
    made += query.give(topic, [event(9_000, "a", 4), event(9_500, "c", 5)])
    found = sorted((r["v_first"], r["v_next"]) for r in made if r["control"] is None)
    assert found == [(1, 2), (1, 4), (2, 4)]
    assert (reads(itself), reads(join(frame, other, "k", within=("1 second", "10 seconds")))) == (1, 2)


def reads(frame):
    return frame._jdf.queryExecution().analyzed().toString().count("StreamingRelation")


def test_where_nothing_is_late_the_pairs_are_those_of_sparks_own_join(two, run, kafka):
    topics, frames = two
    chance = random.Random(17)
    for topic in topics:
        rows = [event(chance.randrange(60_000), chance.choice("abcde"), number) for number in range(60)]
        produce(kafka.bootstrap, topic, rows)
    ours = run(events(join(*frames, "k", within=("-2 seconds", "8 seconds"), condition="left.v <> right.v")))
    left, right = (
        events(frame).selectExpr("k", "v", "event_time t").withWatermark("t", "1 hour").alias(side)
        for frame, side in zip(frames, "lr", strict=True)
    )
    close = "r.t >= l.t - interval 2 seconds AND r.t <= l.t + interval 8 seconds"
    theirs = run(left.join(right, F.expr(f"l.k = r.k AND {close} AND l.v <> r.v")).selectExpr("l.v left", "r.v right"))
    pairs = sorted((row["v_left"], row["v_right"]) for row in ours.rows)
    assert pairs == sorted((row["left"], row["right"]) for row in theirs.rows)
    assert len(pairs) > 50
    assert ours.batches > 2
