"""Running aggregates through real Kafka and Spark, restarted on the way; wrong calls are refused."""

from __future__ import annotations

import re

import pytest

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import collect, count, running
from keyedwm.spark import sum as total
from tests.spark.started import AHEAD, event, keyed, steer

pytestmark = pytest.mark.usefixtures("bucket_conf")


def test_each_row_has_the_aggregates_up_to_it_also_after_a_restart(topic_of, load, started):
    topic = topic_of(2)
    frame = keyed(load(topic, idleTimeout="none")).select("k", "v", "topic", "partition", "offset", *TIMES)
    query = started(running(frame, "k", {"n": count(), "total": total("v")}, buckets=2, name="so_far"))
    made = query.give(topic, [AHEAD, event(3_000, "a", 4), event(1_000, "a", 1), event(2_000, "b", 2), steer(2_500)])
    query.restart()
    made += query.give(topic, [event(2_600, "a", 8), event(9_000, "b", 16), steer(8_000)])
    made += query.give(topic, [steer(10_000)])
    events = [(row["k"], row["v"], row["n"], row["total"]) for row in made if row["control"] is None]
    assert sorted(events) == [("a", 1, 1, 1), ("a", 4, 3, 13), ("a", 8, 2, 9), ("b", 2, 1, 2), ("b", 16, 2, 18)]


TIMES = ("event_time", "watermark", "control")
ONE = {"n": count()}


@pytest.mark.parametrize(
    ("said", "call"),
    {
        "running: df=5: a frame, or keyedwm.spark.source(spark), is expected": lambda _: running(5, "k", ONE),
        "running: by=5: the names of columns are expected": lambda df: running(df, 5, ONE),
        "running: aggs=5: a mapping is expected": lambda df: running(df, "k", 5),
        "the result column 'n' is given 5": lambda df: running(df, "k", {"n": 5}),
        "running: the frame has no column 'kk'; did you mean 'k'": lambda df: running(df, "kk", ONE),
        "running: the frame has no column 'offset'": lambda df: running(df.drop("offset"), "k", ONE),
        "running: the frame has no control rows": lambda df: running(df.drop("control"), "k", ONE),
        "'n' is collect(v), which keeps every value": lambda df: running(df, "k", {"n": collect("v")}),
        "two columns called 'v'": lambda df: running(df, "k", {"v": count()}),
        "option keep: 'soon' is wrong": lambda df: running(df, "k", ONE, keep="soon"),
        "running: keep=0 ms, it must be 1 ms or more": lambda df: running(df, "k", ONE, keep="0 s"),
        "option late: 'drip' is wrong": lambda df: running(df, "k", ONE, late="drip"),
        "running: late='emit'": lambda df: running(df, "k", ONE, late="emit"),
        "running: name='': a text is expected": lambda df: running(df, "k", ONE, name=""),
        "running: continue_from=5": lambda df: running(df, "k", ONE, continue_from=5),
        "running: axis=5: the name of a time axis": lambda df: running(df, "k", ONE, axis=5),
    }.items(),
)
def test_a_wrong_call_is_one_sentence(said, call, topic_of, load):
    with pytest.raises(KeyedwmError, match=re.escape(said)) as refused:
        call(keyed(load(topic_of(1))))
    assert "\n" not in str(refused.value)
