"""Running aggregates through real Kafka and Spark, restarted on the way; wrong calls are refused."""

from __future__ import annotations

import re

import pytest

from keyedwm.cli.inspect_state import print_keys
from keyedwm.cli.printable import PlainConsole
from keyedwm.core.errors import KeyedwmError
from keyedwm.savepoint_files import Files
from keyedwm.spark import collect, count, per_key, running
from keyedwm.spark import sum as total
from keyedwm.spark.api.savepoint import read_operators
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


def test_a_device_far_behind_keeps_its_rows_and_it_shows_who_is_slow_and_loses_rows(topic_of, load, started, capsys):
    topic = topic_of(2)
    frame = keyed(load(topic, idleTimeout="none")).select("k", "v", "topic", "partition", "offset", *TIMES)
    how = {"key_watermark": per_key("1 second", behind="20 seconds"), "buckets": 2, "name": "so_far"}
    query = started(running(frame, "k", {"n": count()}, **how))
    made = query.give(topic, [AHEAD, event(30_000, "on time", 1), event(18_000, "slow", 2), steer(30_000)])
    made += query.give(topic, [event(32_000, "on time", 3), event(20_000, "slow", 4), event(26_000, "on time", 5)])
    query.restart()
    made += query.give(topic, [event(21_000, "slow", 6), event(34_000, "on time", 7)])
    events = [(row["k"], row["v"], row["n"]) for row in made if row["control"] is None]
    assert sorted(events) == [("on time", 1, 1), ("on time", 3, 2), ("slow", 2, 1)]
    told = query.metrics()
    assert (told["keys_held"], told["keys_behind"], told["late_rows"]) == (2, 1, 1)
    assert 9_500 <= told["keys_behind_ms_p99"] <= 10_100
    observed = [
        of["so_far"].asDict(recursive=True) for of in (one.observedMetrics for one in query.query.recentProgress)
    ]
    slow, fast = {"key": "slow", "behind_ms": 10_000}, {"key": "on time", "behind_ms": 0}
    assert [slow, fast] in [one["slowest_keys"] for one in observed]
    query.stop()
    for operator, blobs in read_operators(frame.sparkSession, Files(query.checkpoint)):
        print_keys(PlainConsole.open(), operator, blobs)
    assert capsys.readouterr().out.splitlines() == [
        "2 keys are held, of which 1 are behind W, by half 0 ms, 90 % 10 seconds, 99 % 10 seconds or less",
        "most keys of a bucket: 1; forgotten so far: 0",
        "slowest: slow, 10 seconds behind W",
        "slowest: on time, 0 ms behind W",
        "rows dropped: on time, 1 or more",
    ]


TIMES = ("event_time", "watermark", "control")
ONE = {"n": count()}


@pytest.mark.parametrize(
    ("said", "call"),
    {
        "running: df=5: a frame, or keyedwm.spark.kafka(...), is expected": lambda _: running(5, "k", ONE),
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
        "running: key_watermark=5: keyedwm.spark.per_key": lambda df: running(df, "k", ONE, key_watermark=5),
        "by names 'kk', which is not among the key columns 'k'": lambda df: running(
            df, "k", ONE, key_watermark=per_key("1 s", behind="1 day", by="kk")
        ),
        "running: axis=5: the name of a time axis": lambda df: running(df, "k", ONE, axis=5),
    }.items(),
)
def test_a_wrong_call_is_one_sentence(said, call, topic_of, load):
    with pytest.raises(KeyedwmError, match=re.escape(said)) as refused:
        call(keyed(load(topic_of(1))))
    assert "\n" not in str(refused.value)
