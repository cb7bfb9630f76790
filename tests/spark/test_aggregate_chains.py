"""Results are rows like the source's: aggregated again, written by our sink, followed by Spark's own windows.

And rows of a topic that our sink wrote are rows like those that it was given: the next query's windows show it.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from keyedwm.spark import aggregate, count, sum, tumbling, with_watermark  # noqa: A004
from tests.sink.test_event_times import sink, write
from tests.spark.started import AHEAD, BASE_MS, event, keyed, panes, steer
from tests.tools import produce

__all__ = ["sink"]
pytestmark = pytest.mark.usefixtures("bucket_conf")


@pytest.fixture
def rows(topic_of, load):
    topic = topic_of(2)
    return topic, keyed(load(topic, idleTimeout="none"))


def test_an_aggregate_of_an_aggregate_gives_the_same_sums(rows, started, seed):
    topic, frame = rows
    seconds = aggregate(frame, "k", tumbling("1 second"), {"v": count()})
    query = started(aggregate(seconds, "k", tumbling("10 seconds"), {"n": sum("v")}))
    chance = random.Random(f"{seed} chain")
    events = [(chance.randrange(40_000), f"key {chance.randrange(4)}") for _ in range(200)]
    query.give(topic, [AHEAD, *(event(ms, key) for ms, key in events)])
    before = query.last_batch
    made = panes(query.give(topic, [steer(40_000)]))
    assert Counter({(start, key): n for start, _, key, n in made}) == Counter(
        (ms // 10_000 * 10_000, key) for ms, key in events
    )
    # Both left with the watermark that closed them, in one and the same batch.
    assert query.batches == {before + 1}


def test_spark_s_own_windows_follow_the_results(rows, started):
    topic, frame = rows
    seconds = aggregate(frame, "k", tumbling("1 second"), {"v": count()})
    followed = with_watermark(seconds)
    native = followed.groupBy(F.window("event_time", "10 seconds"), "k").agg(F.sum("v").alias("n"))
    query = started(native.withColumn("control", F.lit(None)))
    query.give(topic, [AHEAD, *(event(ms, "a") for ms in range(0, 20_000, 500))])
    made = panes(query.give(topic, [steer(20_000)]))
    made += panes(query.give(topic, [steer(30_000)]))
    made += panes(query.give(topic, [steer(31_000)]))
    assert sorted(made) == [(0, 10_000, "a", 20), (10_000, 20_000, "a", 20)]


def test_two_sources_together_close_at_the_slower_one(topic_of, load, started):
    fast, slow = topic_of(1), topic_of(1)
    both = [keyed(load(topic, idleTimeout="none")) for topic in (fast, slow)]
    query = started(aggregate(both[0].unionByName(both[1]), "k", tumbling("10 seconds"), {"n": count()}))
    produce(query.bootstrap, slow, [event(1_000, "a")])
    query.give(fast, [event(2_000, "a")])
    assert panes(query.give(fast, [event(90_000, "a")])) == []
    assert panes(query.give(slow, [event(3_000, "a"), event(10_000, "a")])) == [(0, 10_000, "a", 3)]


def test_two_streams_are_grouped_by_the_union_of_their_rows(topic_of, load, started):
    sold, returned = topic_of(1), topic_of(1)
    sales, refunds = (keyed(load(topic, idleTimeout="none")) for topic in (sold, returned))
    both = sales.unionByName(refunds.withColumnRenamed("v", "refund"), allowMissingColumns=True)
    wanted = {"n": count(), "paid": sum("v"), "refunds": count("refund"), "refunded": sum("refund")}
    query = started(aggregate(both, "k", tumbling("10 seconds"), wanted))
    produce(query.bootstrap, returned, [event(1_000, "a", 3), event(2_000, "b", 4)])
    query.give(sold, [event(2_000, "a", 5), event(3_000, "a", 7), event(10_000, "a")])
    made = [row for row in query.give(returned, [event(10_000, "b")]) if row["control"] is None]
    assert sorted((row["k"], *(row[name] for name in wanted)) for row in made) == [
        ("a", 3, 12, 1, 3), ("b", 1, None, 1, 4),
    ]  # fmt: skip


def test_a_frame_united_with_itself_is_two_streams(rows, started):
    topic, frame = rows
    columns = "k", "event_time", "watermark", "control"
    ones = frame.where("control IS NOT NULL OR v = 1").select(*columns, F.col("v").alias("one"))
    twos = frame.where("control IS NOT NULL OR v = 2").select(*columns, F.col("v").alias("two"))
    both = ones.unionByName(twos, allowMissingColumns=True)
    query = started(aggregate(both, "k", tumbling("10 seconds"), {"ones": count("one"), "n": count("two")}))
    query.give(topic, [AHEAD, event(1_000, "a", 1), event(2_000, "a", 2), event(3_000, "a", 2)])
    made = query.give(topic, [steer(10_000)])
    assert panes(made) == [(0, 10_000, "a", 2)]
    assert [row["ones"] for row in made if row["control"] is None] == [1]


def test_one_topic_read_twice_is_refused_since_its_channels_have_one_name(topic_of, load, started):
    topic = topic_of(1)
    both = [keyed(load(topic, maxOffsetsPerTrigger=limit)) for limit in ("1", "3")]
    query = started(aggregate(both[0].union(both[1]), "k", tumbling("10 seconds"), {"n": count()}))
    with pytest.raises(Exception, match="load it once and unite frames of that"):
        query.give(topic, [event(1_000 * at, "a") for at in range(6)])


@pytest.mark.parametrize("snapshot", ["barrier", "batch"])
def test_the_sink_publishes_results_behind_whole_snapshots(snapshot, rows, tmp_path, kafka):
    topic, frame = rows
    events = [event(ms, f"key {ms % 3}") for ms in range(0, 30_000, 100)]
    produce(kafka.bootstrap, topic, [AHEAD, *events, steer(30_000)])
    result = aggregate(frame, "k", tumbling("10 seconds"), {"n": count()}).drop("pane")
    writer = result.writeStream.format("keyedwm").option("path", str(tmp_path / "table")).option("snapshot", snapshot)
    query = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    table = DeltaTable(tmp_path / "table").to_pyarrow_table(columns=["k", "n", "event_time"]).to_pylist()
    assert len(table) == 9
    assert Counter({row["k"]: 0 for row in table}).keys() == {"key 0", "key 1", "key 2"}
    assert {round(row["event_time"].timestamp() * 1_000) - BASE_MS for row in table} == {9_999, 19_999, 29_999}


def test_windows_of_the_next_query_close_by_the_first_ones_event_times(sink, load, run):
    write(sink, 0, {0: [1_000, 1_500], 1: [1_200, None]}, 900)
    write(sink, 1, {0: [2_000], 1: [950]}, 2_000)
    made = run(aggregate(load(sink.topic, propagate="true"), (), tumbling("1 second"), {"n": count()}))
    # The window of the third second stays open: the watermark of the first query is at its row.
    shown = sorted((start + BASE_MS, end + BASE_MS, n) for start, end, _, n in panes(made.rows))
    assert shown == [(0, 1_000, 1), (1_000, 2_000, 3)]
