"""A policy that follows the clock, through Spark: an idle side lets rows of the other go."""

from __future__ import annotations

import time

import pytest

from keyedwm.spark import join
from tests.spark.started import keyed
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
CLOCK = {"watermarkPolicy": "realTimeLag", "wallClockLag": "1 second", "idleTimeout": "500ms"}
PATIENCE_S = 120


def test_a_left_row_comes_out_though_the_right_topic_never_had_a_record(topic_of, load, started):
    topics = topic_of(1), topic_of(2)
    left, right = [keyed(load(topic, CLOCK)).select("k", "v", "event_time", "watermark", "control") for topic in topics]
    query = started(join(left, right, "k", within=("0 seconds", "2 seconds"), how="left", names=("a", "b")))
    produce(query.bootstrap, topics[0], [Record(0, time.time_ns() // 1_000_000, b"7", b"x")])
    until_s = time.monotonic() + PATIENCE_S
    while not (made := [row for rows in dict(query.rows).values() for row in rows if row["control"] is None]):
        assert query.query.isActive, query.query.exception()
        assert time.monotonic() < until_s, "the left row never came"
        time.sleep(0.2)
    assert [(row["v_a"], row["v_b"]) for row in made] == [(7, None)]
