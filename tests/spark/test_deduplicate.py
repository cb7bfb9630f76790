"""Duplicates left out through real Kafka and Spark: restarted, into an aggregate, beside Spark's own; wrong calls."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import aggregate, count, deduplicate, reason, tumbling, with_watermark
from tests.spark.started import AHEAD, FAR_MS, event, keyed, panes, steer
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
WITHIN = {"within": "1 second", "buckets": 2}


def passed(rows) -> list[tuple]:
    return sorted((row["k"], row["v"]) for row in rows if row["control"] is None)


def test_each_key_passes_once_also_after_a_restart_and_late_rows_are_counted(topic_of, load, started):
    topic = topic_of(2)
    frame = keyed(load(topic, idleTimeout="none"))
    query = started(deduplicate(frame, "k", name="once", **WITHIN))
    made = query.give(topic, [AHEAD, event(0, "a", 1), event(900, "a", 2), event(5, "b", 3), steer(100)])
    query.restart()
    made += query.give(topic, [event(1_000, "a", 4), event(1_001, "a", 5), event(99, "c", 6), steer(2_000)])
    query.restart()
    made += query.give(topic, [event(2_001, "a", 7), event(2_002, "a", 8), event(2_000, "b", 9)])
    assert passed(made) == [("a", 1), ("a", 5), ("a", 8), ("b", 3), ("b", 9)]
    assert query.metrics()["late_rows"] == 1


def test_a_described_source_is_deduplicated_and_its_rows_are_aggregated(topic_of, described, started):
    topic = topic_of(2)
    once = deduplicate(described(topic), ["key", "value"], **WITHIN)
    query = started(aggregate(keyed(once), "k", tumbling("10 seconds"), {"n": count()}, buckets=2))
    made = query.give(topic, [AHEAD, event(1, "a"), event(2, "a"), event(3, "a", 2), event(4, "b"), steer(5_000)])
    query.restart()
    made += query.give(topic, [event(5_001, "a"), event(5_500, "b"), event(5_600, "a"), steer(20_000)])
    assert sorted(panes(made)) == [(0, 10_000, "a", 3), (0, 10_000, "b", 2)]


def test_it_equals_drop_duplicates_within_watermark_where_nothing_is_late(topic_of, load, run, kafka):
    topic = topic_of(2)
    sent = [Record(n % 2, FAR_MS + 400 * n, b"%d" % n, b"key %d" % (n // 7)) for n in range(200)]
    again = [Record(one.partition, one.timestamp_ms + 700, one.value, one.key) for one in sent[::3]]
    produce(kafka.bootstrap, topic, sorted([*sent, *again], key=lambda one: one.timestamp_ms))
    frame = load(topic, maxOffsetsPerTrigger="50", watermarkLag="10 seconds", idleTimeout="none")
    columns = ("cast(value as string) v", "unix_millis(event_time) ms", "control IS NULL AS is_event")
    ours = run(deduplicate(frame, ["value"], within="10 seconds", buckets=2).selectExpr(*columns))
    theirs = run(with_watermark(frame).dropDuplicatesWithinWatermark(["value"]).selectExpr(*columns))
    told = [sorted((row["v"], row["ms"]) for row in one.rows if row["is_event"]) for one in (ours, theirs)]
    assert told[0] == told[1]
    assert len(told[0]) == 200


def test_drop_duplicates_before_an_aggregate_is_refused_and_told_of_deduplicate(topic_of, load, run, kafka):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [event(1, "a"), steer(20_000)])
    frame = keyed(load(topic)).dropDuplicates(["k"])
    with pytest.raises(Exception, match="barrier rows") as refused:
        run(aggregate(frame, "k", tumbling("10 seconds"), {"n": count()}, buckets=2).drop("control"))
    assert "in the place of dropDuplicates take keyedwm.spark.deduplicate" in reason(refused.value)


@pytest.mark.parametrize(
    ("said", "call"),
    {
        "deduplicate: df=5: a frame, or keyedwm.spark.kafka(...), is expected": lambda _: deduplicate(5, "k"),
        "deduplicate: on=5: the names of columns are expected": lambda df: deduplicate(df, 5),
        "deduplicate: on=[]: name at least one column": lambda df: deduplicate(df, []),
        "deduplicate: the frame has no column 'kk'; did you mean 'k'": lambda df: deduplicate(df, "kk"),
        "deduplicate: the frame has no control rows": lambda df: deduplicate(df.drop("control"), "k"),
        "option within: 'soon' is wrong": lambda df: deduplicate(df, "k", within="soon"),
        "deduplicate: within=0 ms, it must be 1 ms or more": lambda df: deduplicate(df, "k", within="0 s"),
        "deduplicate: axis=5: the name of a time axis": lambda df: deduplicate(df, "k", axis=5),
        "deduplicate: name='': a text is expected": lambda df: deduplicate(df, "k", name=""),
        "the key column 's' is of type struct": lambda df: deduplicate(df.withColumn("s", F.struct("k")), "s"),
    }.items(),
)
def test_a_wrong_call_is_one_sentence(said, call, topic_of, load):
    with pytest.raises(KeyedwmError, match=re.escape(said)) as refused:
        call(keyed(load(topic_of(1))))
    assert "\n" not in str(refused.value)
