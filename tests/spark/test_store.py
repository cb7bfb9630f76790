"""Windows that keep their messages through real Kafka and Spark, restarted on the way; wrong calls are refused."""

from __future__ import annotations

import json
from functools import partial
from threading import Lock

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import (
    Store,
    aggregate,
    collect,
    count,
    early,
    held_messages,
    held_windows,
    hopping,
    hopping_key_rows,
    hopping_rows,
    median,
    oldest_offsets,
    on_demand,
    rejected,
    session,
    session_rows,
    tumbling,
    tumbling_key_rows,
    tumbling_rows,
    window_function,
)
from tests.spark.started import AHEAD, BASE_MS, event, keyed, panes, steer

pytestmark = pytest.mark.usefixtures("bucket_conf")
NEVER_NULL = "struct('eu' AS region, array(1) AS ns, map('a', 1) AS by_name)"
TEN = tumbling("10 seconds")
DAY = Store(retention="1 day")
N = {"n": count()}


def held(_lock, window):
    return window.num_rows


def test_a_late_message_updates_the_median_of_its_window_after_a_restart_and_a_later_one_comes_back(
    spark, topic_of, load, started
):
    def spread(rows):  # here, so that Spark's workers get it by value
        values = rows["v"].to_pylist()
        return float(values[-1] - values[0])

    topic = topic_of(2)
    frame = aggregate(
        keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")).withColumn("never_null", F.expr(NEVER_NULL)),
        "k",
        TEN,
        {"n": median("v"), "spread": window_function(spread, "double"), "rows": count()},
        store=Store(retention="20 seconds"),
        late="emit",
        buckets=1,
        name="medians",
    )
    query = started(frame)
    first = [event(1_000, "a", 5), event(2_000, "a", 1), event(3_000, "a", 9), event(4_000, "b", 7)]
    made = query.give(topic, [AHEAD, steer(0), *first])
    made += query.give(topic, [steer(10_000)])
    query.restart()
    made += query.give(topic, [event(4_000, "a", 2)])  # late, and inside the retention
    made += query.give(topic, [steer(30_000)])
    made += query.give(topic, [event(5_000, "a", 3), event(31_000, "c", 8)])  # outside; held
    (window,) = held_windows(spark, query._checkpoint, "medians").collect()
    assert (window["messages"], window["first_offset"], window["last_offset"], window["is_complete"]) == (
        1,
        7,
        7,
        False,
    )
    (kept,) = held_messages(spark, query._checkpoint).collect()
    assert (kept["k"], kept["v"], kept["offset"]) == ("c", 8, 7)
    with pytest.raises(KeyedwmError, match=r"the operators with a store are called medians \(aggregate\): give one"):
        held_windows(spark, query._checkpoint, "median")
    everything = spark.createDataFrame(made, frame.schema)
    assert [row["reason"] for row in rejected(everything).collect()] == ["outside the retention"]
    with pytest.raises(KeyedwmError, match="rejected: the frame has no column 'rejected'"):
        rejected(everything.drop("rejected"))
    rows = [row for row in made if row["control"] is None]
    told = [
        ((round(row["window"]["start"].timestamp() * 1_000) - BASE_MS) // 1_000, row["k"], row["n"], row["spread"],
         row["pane"]["timing"])
        for row in rows if row["rejected"] is None
    ]  # fmt: skip
    assert told == [
        (0, "a", 5.0, 4.0, "on_time"), (0, "b", 7.0, 0.0, "on_time"), (0, "a", 3.5, -3.0, "late"),
    ]  # fmt: skip
    (back,) = [row["rejected"] for row in rows if row["rejected"] is not None]
    assert (back["k"], back["v"], back["reason"]) == ("a", 3, "outside the retention")
    assert (back["topic"], back["partition"], back["offset"]) == (topic, 0, 6)
    assert back["never_null"].asDict() == {"region": "eu", "ns": [1], "by_name": {"a": 1}}


def test_a_new_checkpoint_from_the_oldest_offsets_holds_the_same_windows(spark, topic_of, load, started):
    topic, store = topic_of(2), Store(retention="20 seconds")
    settings = {"idleTimeout": "none", "watermarkLag": "0 seconds"}
    before = started(aggregate(keyed(load(topic, **settings)), "k", TEN, N, store=store, buckets=1, name="before"))
    before.give(topic, [AHEAD, steer(0), event(1_000, "a"), event(11_000, "a", 7), event(12_000, "b", 9)])
    before.give(topic, [steer(35_000)])  # the first window is gone, the second one is complete
    before.stop()
    begin = oldest_offsets(spark, before._checkpoint)
    assert json.loads(begin) == {topic: {"0": 2, "1": 2}}
    aggregates = {"n": count(), "median": median("v")}
    rows = keyed(load(topic, startingOffsets=begin, **settings))
    after = started(aggregate(rows, "k", TEN, aggregates, store=store, buckets=2, name="after"))
    made = after.give(topic, [AHEAD, steer(36_000)])
    assert sorted(panes(made)) == [(10_000, 20_000, "a", 1), (10_000, 20_000, "b", 1)]
    made = after.give(topic, [event(13_000, "a", 1)])
    assert [(row["n"], row["median"], row["pane"]["timing"]) for row in made if row["control"] is None] == [
        (2, 4.0, "late")
    ]
    by_key = held_windows(spark, after._checkpoint, by_key=True).orderBy("k").collect()
    told = [(row["k"], row["partition"], row["first_offset"], row["last_offset"], row["messages"]) for row in by_key]
    assert told == [("a", 0, 2, 5, 2), ("b", 0, 3, 3, 1)]
    counted = [
        [row[name] for row in held_messages(spark, query._checkpoint).orderBy("offset").collect()]
        for query, name in ((before, "offset"), (after, "offset"))
    ]
    assert counted == [[2, 3], [2, 3, 5]]


def test_windows_of_rows_follow_the_offsets_of_a_partition_through_a_restart(spark, topic_of, load, started):
    topic = topic_of(2)
    frame = aggregate(
        keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")), "k", tumbling_rows(3),
        {"n": median("v"), "offsets": collect("offset")}, store=Store(max_windows=2), buckets=2, name="threes",
    )  # fmt: skip
    query = started(frame)
    made = query.give(topic, [AHEAD, steer(0), event(9_000, "a", 5), event(1_000, "b", 1)])  # AHEAD is filtered out
    assert [row for row in made if row["control"] is None] == []
    query.restart()
    made = query.give(topic, [event(500, "a", 8), event(600, "a", 3)])
    (window,) = held_windows(spark, query._checkpoint).where("NOT is_complete").collect()
    assert (tuple(window["window"]), window["partition"], window["messages"]) == ((4, 6), 0, 1)
    rows = [row for row in made if row["control"] is None]
    told = [(row["k"], row["topic"], row["partition"], *row["window"], row["n"], row["offsets"]) for row in rows]
    assert sorted(told) == [
        ("a", topic, 0, 1, 3, 6.5, [1, 3]), ("b", topic, 0, 1, 3, 1.0, [2]),
    ]  # fmt: skip
    assert {(row["pane"]["timing"], row["event_time"]) for row in rows} == {("on_time", None)}


def test_windows_of_a_keys_messages_go_on_through_a_restart_and_only_what_is_needed_is_held(
    spark, topic_of, load, started
):
    topic = topic_of(2)
    frame = aggregate(
        keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")), "k", tumbling_key_rows(2),
        {"n": median("v"), "offsets": collect("offset")}, store=Store(max_messages=1_000), buckets=2, name="pairs",
    )  # fmt: skip
    query = started(frame)
    made = query.give(topic, [AHEAD, steer(0), event(9_000, "a", 5), event(1_000, "b", 1)])
    assert [row for row in made if row["control"] is None] == []
    query.restart()
    made = query.give(topic, [event(500, "a", 8), event(600, "a", 3)])
    (row,) = [row for row in made if row["control"] is None]
    told = (row["k"], row["topic"], row["partition"], tuple(row["window"]), row["n"], row["offsets"], row["event_time"])
    assert told == ("a", topic, 0, (1, 3), 6.5, [1, 3], None)
    windows = held_windows(spark, query._checkpoint).collect()
    assert sorted((*one["window"], one["messages"], one["is_complete"]) for one in windows) == [
        (2, 2, 1, False), (4, 4, 1, False),
    ]  # fmt: skip
    kept = held_messages(spark, query._checkpoint).collect()
    assert sorted((one["k"], one["v"], one["offset"]) for one in kept) == [("a", 3, 4), ("b", 1, 2)]


def test_sessions_keep_their_messages_and_a_late_one_joins_two_of_them_after_a_restart(spark, topic_of, load, started):
    topic = topic_of(2)
    frame = aggregate(
        keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")), "k", session("5 seconds"),
        {"n": median("v"), "offsets": collect("offset")}, store=Store(retention="20 seconds"), late="emit", buckets=2,
        name="visits",
    )  # fmt: skip
    query = started(frame)
    first = [event(1_000, "a", 5), event(4_000, "a", 1), event(12_000, "a", 9), event(13_000, "b", 7)]
    made = query.give(topic, [AHEAD, steer(0), *first])
    made += query.give(topic, [steer(20_000)])
    query.restart()
    made += query.give(topic, [event(8_000, "a", 3)])  # late, between the two sessions
    made += query.give(topic, [steer(39_000), event(30_000, "b", 2)])
    windows = held_windows(spark, query._checkpoint, "visits").collect()
    told = [(one["k"], round(one["window"]["start"].timestamp() * 1_000) - BASE_MS, one["messages"]) for one in windows]
    assert told == [("b", 30_000, 1)]
    assert [(one["k"], one["v"]) for one in held_messages(spark, query._checkpoint).collect()] == [("b", 2)]
    made += query.give(topic, [event(2_000, "a", 4)])
    rows = [row for row in made if row["control"] is None]
    (back,) = [row["rejected"] for row in rows if row["rejected"] is not None]
    assert (back["k"], back["v"], back["reason"]) == ("a", 4, "outside the retention")
    told = [
        (*(round(edge.timestamp() * 1_000) - BASE_MS for edge in row["window"]), row["k"], row["n"], row["offsets"],
         row["pane"]["timing"], row["pane"]["index"])
        for row in rows if row["rejected"] is None
    ]  # fmt: skip
    assert sorted(told[:3]) == [
        (1_000, 9_000, "a", 3.0, [1, 2], "on_time", 0), (12_000, 17_000, "a", 9.0, [3], "on_time", 0),
        (13_000, 18_000, "b", 7.0, [4], "on_time", 0),
    ]  # fmt: skip
    assert told[3:] == [
        (1_000, 17_000, "a", 4.0, [1, 2, 5, 3], "late", 1), (30_000, 35_000, "b", 2.0, [6], "on_time", 0),
    ]  # fmt: skip


def test_sessions_by_rows_count_the_offsets_of_all_keys_through_a_restart(spark, topic_of, load, started):
    topic = topic_of(2)
    frame = aggregate(
        keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")), "k", session_rows(1),
        {"n": median("v"), "offsets": collect("offset")}, store=Store(max_messages=1_000), buckets=2, name="runs",
    )  # fmt: skip
    query = started(frame)
    made = query.give(topic, [AHEAD, steer(0), event(9_000, "a", 5), event(1_000, "b", 1), event(500, "a", 8)])
    assert [row for row in made if row["control"] is None] == []
    query.restart()
    made = query.give(topic, [event(600, "c", 3)])
    (row,) = [row for row in made if row["control"] is None]
    told = (row["k"], row["topic"], row["partition"], tuple(row["window"]), row["n"], row["offsets"], row["event_time"])
    assert told == ("b", topic, 0, (2, 2), 1.0, [2], None)
    windows = held_windows(spark, query._checkpoint).collect()
    assert sorted((*one["window"], one["messages"]) for one in windows) == [(1, 3, 2), (4, 4, 1)]
    kept = held_messages(spark, query._checkpoint).collect()
    assert sorted((one["k"], one["v"]) for one in kept) == [("a", 5), ("a", 8), ("c", 3)]


def test_a_message_opens_a_window_also_late_and_after_a_restart_and_one_that_none_holds_comes_back(
    spark, topic_of, load, started
):
    topic = topic_of(2)
    frame = aggregate(
        keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")), "k", on_demand("10 seconds", "v >= 100"),
        {"values": collect("v")}, store=Store(retention="20 seconds"), late="emit", buckets=2, name="alarms",
    )  # fmt: skip
    query = started(frame)
    first = [event(1_000, "b", 3), event(2_000, "a", 5), event(3_000, "a", 100), event(12_000, "a", 7)]
    made = query.give(topic, [AHEAD, steer(0), *first])
    made += query.give(topic, [steer(13_000)])
    query.restart()
    made += query.give(topic, [event(1_000, "a", 200)])  # late; the first of its key
    listed = held_windows(spark, query._checkpoint).orderBy("window.start").collect()
    assert [
        (row["k"], round(row["window"]["start"].timestamp() * 1_000) - BASE_MS, row["first_offset"], row["last_offset"],
         row["messages"], row["is_complete"])
        for row in listed
    ] == [("a", 1_000, 2, 5, 3, True), ("a", 3_000, 3, 4, 2, True)]  # fmt: skip
    with pytest.raises(
        KeyedwmError, match="windows on demand, and sessions are listed key by key anyway: leave by_key"
    ):
        held_windows(spark, query._checkpoint, by_key=True)
    assert held_messages(spark, query._checkpoint).count() == 5
    made += query.give(topic, [steer(60_000)])
    rows = [row for row in made if row["control"] is None]
    told = [
        (round(row["window"]["start"].timestamp() * 1_000) - BASE_MS, row["k"], row["values"], row["pane"]["timing"])
        for row in rows if row["rejected"] is None
    ]  # fmt: skip
    assert told == [(3_000, "a", [100, 7], "on_time"), (1_000, "a", [200, 5, 100], "late")]
    back = [row["rejected"] for row in rows if row["rejected"] is not None]
    assert [(row["k"], row["v"], row["reason"]) for row in back] == [("b", 3, "between windows")]
    assert held_messages(spark, query._checkpoint).count() == held_windows(spark, query._checkpoint).count() == 0


CALLS = {
    "session_rows(3) counts offsets, so its messages must be kept": lambda df: call(
        df, window=session_rows(3), store=None
    ),
    "option between: '-1' is wrong": lambda _: session_rows(-1),
    "on_demand('10 seconds', 'v > 3') holds messages that wait for their window, so they must be kept": lambda df: call(
        df, window=on_demand("10 seconds", "v > 3"), store=None
    ),
    "the condition 'w > 3' names a column 'w' that is not there": lambda df: call(
        df, window=on_demand("10 seconds", "w > 3")
    ),
    "windows on demand hold every message as long as one that opens a window for it may come": lambda df: call(
        df, window=on_demand("10 seconds", "v > 3"), store=Store(retention="1 day", max_bytes=9)
    ),
    "windows on demand show panes when the watermark completes them": lambda df: call(
        df, window=on_demand("10 seconds", "v > 3"), early=early(rows=2)
    ),
    "the frame has 2 columns called 'v': rename all but one": lambda df: call(df.select("*", "v")),
    "the frame has 2 columns called 'control': rename all but one": lambda df: call(df.select("*", "control")),
    "the size of a window of rows is 1000000000000000000000000000000, it must be from 1 to": lambda _: tumbling_rows(
        10**30
    ),
    "the column 'topic' is of type binary: a topic is a text": lambda df: call(
        df.withColumn("topic", F.col("topic").cast("binary"))
    ),
    "cannot be called 'Rejected'": lambda df: call(df, aggs={"Rejected": count()}, late="emit"),
    "rejected: the column 'rejected' is of type int": lambda df: rejected(df.withColumn("rejected", F.lit(1))),
    "/not/there is no checkpoint with state": lambda df: held_messages(df.sparkSession, "/not/there"),
    "hopping_key_rows(3, 3) counts messages, so they must be kept": lambda df: call(
        df, window=tumbling_key_rows(3), store=None
    ),
    "windows of rows count the offsets of one source, and the frame is made of 2 streams": lambda df: call(
        df.unionByName(df), window=tumbling_rows(3), store=Store(max_windows=9)
    ),
    "the frame is made of 2 streams: read all topics with one source (subscribe='a,b')": lambda df: call(
        df.where("v > 3").union(df), window=hopping_key_rows(4, 2), store=Store(max_messages=9)
    ),
    "windows of a key's messages show one pane": lambda df: call(
        df, window=hopping_key_rows(4, 2), store=Store(max_messages=9), early=early(rows=2)
    ),
    "hopping_rows(3, 3) counts offsets, so its messages must be kept": lambda df: call(
        df, window=tumbling_rows(3), store=None
    ),
    "windows of rows are kept by number, not by time": lambda df: call(df, window=tumbling_rows(3)),
    "late_every and late_rows have no effect on windows of rows": lambda df: call(
        df, window=hopping_rows(4, 2), store=Store(max_windows=9, late_rows=2)
    ),
    "option rows: '0' is wrong": lambda _: tumbling_rows(0),
    "option step: 'two' is wrong": lambda _: hopping_rows(4, "two"),
    "the retention of 5 seconds is shorter than the window of 10 seconds": lambda df: call(
        df, store=Store(retention="5 seconds")
    ),
    "'n' is computed over all messages of a window, which a store keeps: give": lambda df: call(
        df, aggs={"n": window_function(len, "long")}, store=None
    ),
    "hopping('10 seconds', '3 seconds') need not be a whole number of frames": lambda df: call(
        df, window=hopping("10 seconds", "3 seconds"), store=None
    ),
    "a store without a limit would keep every message for ever": lambda _: Store(),
    "option max_messages: '0' is wrong": lambda _: Store(max_messages=0),
    "option late_rows: '0' is wrong": lambda _: Store(retention="1 day", late_rows=0),
    "late panes after 2 messages and every so often": lambda df: call(
        df, store=Store(retention="1 day", late_rows=2, late_every="1 second")
    ),
    "late panes by event time need an interval": lambda df: call(df, store=Store(retention="1 day", late_by="event")),
    "option late_by: 'events' is wrong": lambda _: Store(retention="1 day", late_by="events"),
    "option full: 'massage' is wrong": lambda _: Store(retention="1 day", full="massage"),
    "full='message' has no meaning for sessions": lambda df: call(
        df, window=session("5 seconds"), store=Store(retention="1 day", full="message")
    ),
    "new messages since its last pane have no meaning of their own": lambda df: call(
        df, window=session("5 seconds"), accumulating=False
    ),
    "the retention of 2 seconds is shorter than the gap of 5 seconds": lambda df: call(
        df, window=session("5 seconds"), store=Store(retention="2 seconds")
    ),
    "lateness has no effect on a store: its retention": lambda df: call(df, lateness="5 seconds"),
    "late_rule has no effect on a store": lambda df: call(df, late_rule="frame"),
    "leave early and late panes out, and accumulating": lambda df: call(
        df, window=tumbling_key_rows(2), store=Store(max_messages=9), accumulating=False
    ),
    "store='1 day': keyedwm.spark.Store": lambda df: call(df, store="1 day"),
    "result='doubel' (": lambda _: window_function(len, "doubel"),
    "result='long, b int' (several values)": lambda _: window_function(len, "long, b int"),
    "result=DataType(uint64) (Spark has no such type)": lambda _: window_function(len, pa.uint64()),
    "cannot be sent to Spark's workers (cannot pickle": lambda _: window_function(partial(held, Lock()), "long"),
    "function='len': a function of a window's Arrow table": lambda _: window_function("len", "long"),
    "median(key) needs": lambda df: call(df, aggs={"n": median("key")}),
    "the frame has no column 'kk'; did you mean 'k'": lambda df: call(df, by="kk"),
    "cannot be called 'rejected'": lambda df: call(df, aggs={"rejected": count()}, late="emit"),
}


def call(frame, **change):
    return aggregate(frame, **({"by": "k", "window": TEN, "aggs": N, "store": DAY} | change))


@pytest.fixture(scope="module")
def frame(topic_of, load):
    return keyed(load(topic_of(1)))


@pytest.mark.parametrize("words", CALLS)
def test_a_wrong_call_is_one_sentence(words, frame):
    with pytest.raises(KeyedwmError) as refused:
        CALLS[words](frame)
    assert words in str(refused.value)


def test_a_store_needs_rows_with_their_offsets(frame):
    with pytest.raises(KeyedwmError, match="the frame has no column 'offset': a store knows a message by its topic"):
        aggregate(frame.drop("offset"), "k", TEN, N, store=DAY)
    with pytest.raises(KeyedwmError, match="'reason': rejected messages have a column of that name"):
        aggregate(frame.withColumn("reason", F.lit("none")), "k", TEN, N, store=DAY)
    made = aggregate(frame, "k", hopping("4 seconds", "10 seconds"), N, store=DAY, early=early(rows=3), late="emit")
    assert made.columns == ["k", "window", "n", "pane", "rejected", "event_time", "watermark", "control"]
    assert {"k", "v", "topic", "offset", "value", "reason"} <= set(made.schema["rejected"].dataType.names)
    made = aggregate(frame, "k", TEN, N, store=DAY, early=early(rows=3), accumulating=False)
    assert made.columns == ["k", "window", "n", "pane", "event_time", "watermark", "control"]
    assert window_function(len, pa.int64()) == window_function(len, "long") == window_function(len, LongType())
    assert window_function(len, pa.dictionary(pa.int8(), pa.string())) == window_function(len, "string")
