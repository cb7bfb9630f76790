"""Stage one inside the source: the results are those of the plan over loaded rows, whatever the window or aggregate."""

from __future__ import annotations

import pytest

from keyedwm.spark import aggregate, count, source, tumbling
from tests.spark.started import AHEAD, event, panes, steer

pytestmark = pytest.mark.usefixtures("bucket_conf")
TEN = tumbling("10 seconds")


@pytest.fixture
def described(spark, kafka):
    """A maker of descriptions of a topic read from its beginning."""

    def describe(topic: str, **options: str):
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return source(spark).options(**(given | {"idleTimeout": "none"} | options))

    return describe


def test_a_window_leaves_in_the_batch_that_carried_its_watermark(topic_of, described, started):
    topic = topic_of(2)
    query = started(aggregate(described(topic), {"k": "key::string"}, TEN, {"n": count()}))
    query.give(topic, [AHEAD, event(1_000, "a"), event(2_000, "b"), event(3_000, "a")])
    before = query.query.lastProgress.batchId
    made = query.give(topic, [steer(10_000)])
    assert sorted(panes(made)) == [(0, 10_000, "a", 2), (0, 10_000, "b", 1)]
    assert query.batches == {before + 1}
