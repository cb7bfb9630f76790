"""Joins of windows through real Kafka and Spark, restarted on the way; wrong calls are refused."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from keyedwm.core.errors import KeyedwmError, OptionError
from keyedwm.core.rows import AXIS_KEY
from keyedwm.spark import (
    Store,
    aggregate,
    count,
    early,
    held_messages,
    held_windows,
    hopping,
    oldest_offsets,
    rejected,
    session,
    tumbling,
    tumbling_key_rows,
    tumbling_rows,
    window_join,
)
from tests.spark.started import AHEAD, BASE_MS, event, keyed, steer
from tests.tools import Record, produce

pytestmark = pytest.mark.usefixtures("bucket_conf")
TEN = tumbling("10 seconds")
NAMES = ("orders", "shipments")


def told(rows, *, rejects=True) -> list[tuple]:
    """Results as key, value of the left, value of the right, start of the window, timing."""
    return sorted(
        (
            (row["k"], row["v_orders"], row["v_shipments"], _second(row["window"]["start"]), row["timing"])
            for row in rows
            if row["control"] is None and not (rejects and row["rejected"] is not None)
        ),
        key=str,
    )


def _second(moment) -> int:
    return (round(moment.timestamp() * 1_000) - BASE_MS) // 1_000


def watermarks(rows) -> list[int]:
    """What control rows tell of the result's watermark."""
    marks = [row["control"]["watermark"] for row in rows if row["control"] is not None]
    return [_second(one) for one in marks if one is not None]


def test_pairs_come_once_and_what_met_none_alone_through_a_restart_and_late_messages(spark, topic_of, load, started):
    topics = topic_of(2), topic_of(2)

    def frame(how="left"):
        orders, shipments = (keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")) for topic in topics)
        shipments = shipments.withColumn("never_null", F.lit(3))
        return window_join(
            orders, shipments, "k", TEN, store=Store(retention="20 seconds"), how=how, late="emit", names=NAMES,
            buckets=1, name="joined",
        )  # fmt: skip

    plan = {"how": "left"}
    query = started(lambda: frame(**plan))
    produce(query.bootstrap, topics[0], [AHEAD, steer(0), event(1_000, "a", 1), event(2_000, "b", 2)])
    made = query.give(topics[1], [AHEAD, steer(0), event(4_000, "a", 7), event(11_000, "b", 8)])
    assert told(made) == [("a", 1, 7, 0, "early")]
    query.restart()
    assert told(query.give(topics[0], [steer(45_000)])) == []  # the shipments have not come so far
    made = query.give(topics[1], [steer(12_000)])
    assert told(made) == [("b", 2, None, 0, "on_time")]
    assert {row["never_null"] for row in made if row["control"] is None} == {None}
    made = query.give(topics[1], [event(5_000, "b", 9), steer(31_000)])  # late, and inside the retention
    assert told(made) == [("b", 2, 9, 0, "late")]
    assert max(watermarks(made)) == 10
    made = query.give(topics[1], [event(6_000, "a", 5)])  # outside
    (back,) = rejected(spark.createDataFrame(made, query._frame().schema)).collect()
    assert (back["k"], back["v"], back["side"], back["reason"]) == ("a", 5, "shipments", "outside the retention")
    assert (back["topic"], back["partition"], back["offset"]) == (topics[1], 0, 4)
    plan["how"] = "inner"
    query.restart()
    with pytest.raises(
        StreamingQueryException,
        match=r"another plan \(windows, on, .*has 'how=left' where this plan has 'how=inner'",
    ):
        query.give(topics[0], [steer(46_000)])


def test_sessions_of_both_sides_are_joined_when_complete_and_a_late_message_after_a_restart(
    spark, topic_of, load, started
):
    topics = topic_of(2), topic_of(2)

    def frame():
        orders, shipments = (keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")) for topic in topics)
        shipments = shipments.withColumn("never_null", F.lit(3))
        return window_join(
            orders, shipments, "k", session("5 seconds"), store=Store(retention="20 seconds"), how="left", late="emit",
            names=NAMES, buckets=2, name="visits",
        )  # fmt: skip

    query = started(frame)
    produce(query.bootstrap, topics[0], [AHEAD, steer(0), event(1_000, "a", 1), event(2_000, "b", 2)])
    made = query.give(topics[1], [AHEAD, steer(0), event(4_000, "a", 7), event(12_000, "a", 8)])
    query.restart()
    made += query.give(topics[0], [steer(30_000)])
    assert told(made) == []  # the shipments have not come so far
    made = query.give(topics[1], [steer(20_000)])
    assert told(made) == [("a", 1, 7, 1, "on_time"), ("b", 2, None, 2, "on_time")]
    assert held(query, "orders") == [(1, 9, "a", 0, 1, 1, 1, True), (2, 7, "b", 0, 2, 2, 1, True)]
    assert held(query, "shipments") == [(1, 9, "a", 0, 1, 1, 1, True), (12, 17, "a", 0, 2, 2, 1, True)]
    (kept, _) = held_messages(spark, query._checkpoint, side="shipments").orderBy("offset").collect()
    assert (kept["k"], kept["v"], kept["topic"], kept["never_null"]) == ("a", 7, topics[1], 3)
    query.restart()
    made = query.give(topics[1], [event(8_000, "a", 9), event(3_000, "b", 5), steer(31_000)])
    assert told(made) == [("a", 1, 8, 1, "late"), ("a", 1, 9, 1, "late"), ("b", 2, 5, 2, "late")]
    made = query.give(topics[0], [steer(60_000)])
    made = query.give(topics[1], [steer(60_000), event(6_000, "a", 5)])
    made += query.give(topics[1], [event(7_000, "a", 6)])
    back = rejected(spark.createDataFrame(made, query._frame().schema)).collect()
    assert ("a", 6, "shipments", "outside the retention") in {
        (one["k"], one["v"], one["side"], one["reason"]) for one in back
    }
    assert held(query, "orders") == []
    with pytest.raises(OptionError, match=r"visits: side='left': it is a window_join: .* 'orders' or 'shipments'"):
        held_messages(spark, query._checkpoint, side="left")


def test_a_session_gives_its_rows_with_each_message_and_goes_on_after_a_restart(topic_of, load, started):
    topics = topic_of(2), topic_of(2)

    def frame():
        orders, shipments = (keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds")) for topic in topics)
        return window_join(
            orders, shipments, "k", session("5 seconds"), store=Store(retention="20 seconds"), how="left",
            keep="last", emit="running", late="emit", names=NAMES, buckets=2, name="visits",
        )  # fmt: skip

    query = started(frame)
    made = query.give(topics[0], [AHEAD, steer(0), event(1_000, "a", 1)])
    assert told(made) == [("a", 1, None, 1, "early")]
    query.restart()
    made = query.give(topics[1], [AHEAD, steer(0), event(4_000, "a", 7), event(2_000, "a", 8)])
    assert told(made) == [("a", 1, 7, 1, "early"), ("a", 1, 8, 1, "early")]
    query.give(topics[0], [steer(20_000)])
    query.restart()
    assert told(query.give(topics[1], [steer(20_000)])) == []
    made = query.give(topics[1], [event(6_000, "a", 9)])
    assert told(made) == [("a", 1, 9, 1, "late")]


def held(query, side) -> list[tuple]:
    """Windows that are held: start, end, key if they are listed by it, partition, offsets, messages, is_complete."""
    rows = held_windows(query._frame().sparkSession, query._checkpoint, side=side).collect()
    return sorted(
        (
            _second(row["window"]["start"]), _second(row["window"]["end"]), *([row["k"]] if "k" in row else []),
            *(row[name] for name in ("partition", "first_offset", "last_offset", "messages", "is_complete")),
        )
        for row in rows
    )  # fmt: skip


def test_a_new_checkpoint_from_the_oldest_offsets_of_both_sides_holds_the_same_windows(spark, topic_of, load, started):
    topics = topic_of(2), topic_of(2)

    def joined(name, buckets, begin=None):
        def side(topic):
            at = {} if begin is None else {"startingOffsets": json.dumps({topic: begin[topic]})}
            return keyed(load(topic, idleTimeout="none", watermarkLag="0 seconds", **at))

        orders, shipments = map(side, topics)
        return window_join(
            orders, shipments, "k", TEN, store=Store(retention="20 seconds"), names=NAMES, buckets=buckets, name=name
        )

    before = started(joined("before", 1))
    produce(before.bootstrap, topics[0], [AHEAD, steer(0), event(1_000, "a", 1), event(12_000, "a", 2), steer(35_000)])
    before.give(topics[1], [AHEAD, steer(0), event(4_000, "b", 7), event(13_000, "b", 8), steer(35_000)])
    before.stop()
    assert held(before, "orders") == [(10, 20, 0, 2, 2, 1, True)]
    begin = json.loads(oldest_offsets(spark, before._checkpoint))
    assert begin == {topic: {"0": 2, "1": 2} for topic in topics}
    after = started(joined("after", 2, begin))
    produce(after.bootstrap, topics[0], [AHEAD, steer(36_000)])
    made = after.give(topics[1], [AHEAD, event(14_000, "a", 9), steer(36_000)])
    assert [one[:4] for one in told(made, rejects=False)] == [("a", 2, 9, 10)]
    assert held(after, "orders") == held(before, "orders")
    assert held(after, "shipments") == [(10, 20, 0, 2, 4, 2, True)]
    by_key = held_windows(spark, after._checkpoint, "after", side="shipments", by_key=True).orderBy("k").collect()
    assert [(row["k"], row["first_offset"], row["messages"]) for row in by_key] == [("a", 4, 1), ("b", 2, 1)]


def test_windows_of_rows_meet_by_number_in_partitions_of_equal_number(spark, topic_of, load, started):
    topics = topic_of(2), topic_of(2)
    orders, shipments = (load(topic, idleTimeout="none") for topic in topics)
    orders, shipments = (
        frame.selectExpr("cast(key as string) id", "topic", "partition", "offset", "event_time", "watermark", "control")
        for frame in (orders, shipments)
    )
    joined = window_join(orders, shipments, "id", tumbling_rows(2), store=Store(max_windows=9), buckets=2, names=NAMES)
    query = started(joined)
    produce(query.bootstrap, topics[0], [Record(at % 2, at, b"", b"%d" % (at // 4)) for at in range(8)])
    made = query.give(topics[1], [Record(at % 2, at, b"", b"0") for at in range(8)])
    pairs = [row for row in made if row["control"] is None]
    told = [(row["id"], row["partition_orders"], *row["window"], row["offset_shipments"]) for row in pairs]
    assert sorted(told) == [("0", partition, 0, 1, offset) for partition in (0, 1) for offset in (0, 0, 1, 1)]
    assert {row["event_time"] for row in pairs} == {None}
    listed = held_windows(spark, query._checkpoint, side="orders").orderBy("partition", "first_offset").collect()
    assert [(row["partition"], *row["window"], row["messages"]) for row in listed] == [
        (partition, first, first + 1, 2) for partition in (0, 1) for first in (0, 2)
    ]
    assert held_messages(spark, query._checkpoint, side="shipments").count() == 8
    assert json.loads(oldest_offsets(spark, query._checkpoint)) == {topic: {"0": 0, "1": 0} for topic in topics}


CALLS = {
    "the retention of 5 seconds is shorter than the window of 10 seconds": lambda df: call(
        df, store=Store(retention="5 seconds")
    ),
    "the column 'k' of orders is of type string and 'v' of shipments of int64: cast one": lambda df: call(
        df, on={"k": "v"}
    ),
    "shipments side: the frame has no control rows": lambda df: call(df, right=df.drop("control")),
    "orders side: the frame has no column 'watermark'": lambda df: call(df, left=df.drop("watermark")),
    "orders side: the frame has no column 'offset': a store knows a message by": lambda df: call(
        df, left=df.drop("offset")
    ),
    "orders side: the frame has no column 'kk'; did you mean 'k'": lambda df: call(df, on="kk"),
    "'watermark' is a watermark or control column, which cannot be a key": lambda df: call(df, on="watermark"),
    "on=(): the columns to join on are expected": lambda df: call(df, on=[]),
    "on=1: the names of columns are expected": lambda df: call(df, on=1),
    "joined when the watermark has completed them, and late messages at once: leave": lambda df: call(
        df, window=session("5 seconds"), early=early(every="1 second")
    ),
    "the retention of 2 seconds is shorter than the gap of 5 seconds": lambda df: call(
        df, window=session("5 seconds"), store=Store(retention="2 seconds")
    ),
    "window='1 day': keyedwm.spark's tumbling": lambda df: call(df, window="1 day"),
    "store=None: keyedwm.spark.Store": lambda df: call(df, store=None),
    "late pairs come at once, or late_every of the clock": lambda df: call(
        df, store=Store(retention="1 day", late_rows=2)
    ),
    "CLOCK: 'clock'>): keyedwm.spark.early(every=...) is expected": lambda df: call(df, early=early(rows=3)),
    "how='left' gives rows when a window of time is full on both sides": lambda df: call(
        df, how="left", early=early(every="1 second")
    ),
    "keep='last' gives rows when a window of time is full": lambda df: call(df, keep="last", unbounded="orders"),
    "option how: 'left_anti' is wrong; one of inner, left, right, full is": lambda df: call(df, how="left_anti"),
    "one of inner, left, right, full is expected; did you mean full?": lambda df: call(df, how="full_outer"),
    "the frame has 2 columns called 'v': rename all but one": lambda df: call(df, left=df.select("*", "v")),
    "option keep: 'newest' is wrong": lambda df: call(df, keep="newest"),
    "option emit: 'complete' is wrong; one of final, paired, running": lambda df: call(df, emit="complete"),
    "emit='running' is for sessions": lambda df: call(df, emit="running"),
    "unbounded='left': the name of a side is expected": lambda df: call(df, unbounded="left"),
    "names=('a', 'A'): two different texts": lambda df: call(df, names=("a", "A")),
    "axis=1: the name of a time axis": lambda df: call(df, axis=1),
    "buckets=2 of windows of rows with an unbounded side": lambda df: call(
        df, window=tumbling_rows(2), store=Store(max_windows=2), unbounded="orders", buckets=2
    ),
    "windows of rows are kept by number, not by time": lambda df: call(df, window=tumbling_rows(3)),
    "shipments side: windows of rows count the offsets of one source, and the frame is made of 2": lambda df: call(
        df, right=df.union(df), window=tumbling_rows(2), store=Store(max_windows=2)
    ),
    "windows of a key's messages are not joined": lambda df: call(
        df, window=tumbling_key_rows(2), store=Store(max_windows=2)
    ),
    "cannot be called 'side': rejected messages have a column of that name": lambda df: call(
        df, left=df.withColumn("side", F.lit(1)), late="emit"
    ),
    "of orders cannot be called 'event_time': results have one": lambda df: call(
        df, right=df.withColumnsRenamed({"event_time": "event_time_s", "watermark": "watermark_s"}).withMetadata(
            "watermark_s", {AXIS_KEY: 1}), axis=("", "s")
    ),
}  # fmt: skip


def call(frame, **change):
    given = {"left": frame, "right": frame, "on": "k", "window": TEN, "store": Store(retention="1 day"), "names": NAMES}
    return window_join(**(given | change))


def test_a_wrong_call_is_one_sentence(topic_of, load):
    frame = keyed(load(topic_of(1)))
    for words, wrong in CALLS.items():
        with pytest.raises(KeyedwmError) as refused:
            wrong(frame)
        assert words in str(refused.value)
    made = call(frame, window=hopping("4 seconds", "10 seconds"), late="emit", keep="first", how="full")
    added = ["window", "timing", "rejected", "event_time", "watermark", "control"]
    assert (made.columns[0], made.columns[-6:]) == ("k", added)
    assert {"v_orders", "v_shipments", "event_time_orders"} <= set(made.columns)
    with pytest.raises(KeyedwmError, match="take the last row of each window and key in a process"):
        aggregate(made, "k", TEN, {"n": count()})  # a window tells its one row again when it changes
    pairs = call(frame, window=hopping("4 seconds", "10 seconds"), late="emit", how="full")
    assert aggregate(pairs, "k", TEN, {"n": count()}).columns[0] == "k"
