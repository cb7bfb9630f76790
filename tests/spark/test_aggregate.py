"""Windows of our own through a real Kafka and a real Spark: when they leave, what is late, what a restart keeps."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from conformance.driver import DrivenOperator
from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.spark import (
    Aggregate,
    aggregate,
    approx_count_distinct,
    approx_quantile,
    avg,
    collect,
    count,
    count_if,
    early,
    first,
    last,
    linear_trend,
    map_agg,
    max,  # noqa: A004
    median,
    min,  # noqa: A004
    quantile,
    session,
    sliding,
    stddev,
    sum,  # noqa: A004
    top_n,
    tumbling,
    variance,
    with_watermark,
)
from tests.operators.streams import events, plan_of, play_batches
from tests.spark.started import AHEAD, event, keyed, panes, steer
from tests.tools import Record, produce, wait_until

pytestmark = pytest.mark.usefixtures("bucket_conf")
TEN = tumbling("10 seconds")
N = {"n": count()}


@pytest.fixture
def rows(topic_of, load):
    """A new topic and its rows, keyed; the steering partition alone moves the watermark."""
    topic = topic_of(2)
    return topic, keyed(load(topic, idleTimeout="none"))


def test_a_window_leaves_with_its_state_in_the_batch_that_carried_its_watermark_and_late_rows_are_counted(
    rows, started
):
    topic, frame = rows
    query = started(aggregate(frame, "k", TEN, {"n": count()}))
    query.give(topic, [AHEAD, event(1_000, "a"), event(2_000, "b"), event(3_000, "a"), event(11_000, "a")])
    full = query.metrics()
    assert full["frames"] == 3
    assert full["largest_bucket_bytes"] >= full["median_bucket_bytes"] > 100
    assert full["largest_bucket"] in range(2)
    before = query.last_batch
    made = query.give(topic, [steer(10_000)])
    assert sorted(panes(made)) == [(0, 10_000, "a", 2), (0, 10_000, "b", 1)]
    assert query.batches == {before + 1}
    assert panes(query.give(topic, [event(2_000, "a"), event(3_000, "b"), event(12_000, "a")])) == []
    assert query.metrics()["late_rows"] == 2
    assert panes(query.give(topic, [steer(1_000_000)])) == [(10_000, 20_000, "a", 2)]
    empty = query.metrics()
    assert empty["frames"] == 0
    assert empty["state_bytes"] < full["state_bytes"]


def test_native_windows_need_one_batch_more(rows, started):
    topic, frame = rows
    native = with_watermark(frame).groupBy(F.window("event_time", "10 seconds"), "k").agg(F.count("*").alias("n"))
    query = started(native.withColumn("control", F.lit(None)))
    query.give(topic, [AHEAD, event(1_000, "a")])
    before = query.last_batch
    made = query.give(topic, [steer(10_001)])
    assert panes(made) == [(0, 10_000, "a", 1)]
    assert before + 1 not in query.batches


def test_rows_without_an_event_time_are_counted(topic_of, load, started, kafka):
    topic = topic_of(1)
    rows = load(topic, eventTime="json:$.t", idleTimeout="none").selectExpr("*", "cast(key as string) k")
    query = started(aggregate(rows, "k", TEN, {"n": count()}))
    query.give(topic, [Record(0, 1, b'{"t": 5000}', b"a"), Record(0, 2, b"what", b"a"), Record(0, 3, b"{}", b"a")])
    made = query.give(topic, [Record(0, 4, b'{"t": 20000}', b"a")])
    assert [row["n"] for row in made if row["control"] is None] == [1]
    assert query.metrics()["timeless_rows"] == 2


def test_late_rows_end_the_query_when_asked_for(rows, started):
    topic, frame = rows
    query = started(aggregate(frame, "k", TEN, {"n": count()}, late="fail"))
    query.give(topic, [AHEAD, event(1_000, "a"), steer(10_000)])
    with pytest.raises(Exception, match="late"):
        query.give(topic, [event(2_000, "a")])


def test_early_late_and_expired_panes_say_what_they_are(rows, started):
    topic, frame = rows
    query = started(aggregate(frame, "k", TEN, {"n": count()}, early=early(rows=2), lateness="5 seconds", late="emit"))
    told = [
        query.give(topic, [AHEAD, event(1_000, "a"), event(2_000, "a")]),
        query.give(topic, [event(3_000, "a"), steer(10_000)]),
        query.give(topic, [event(4_000, "a")]),
        query.give(topic, [steer(15_000)]),
        query.give(topic, [event(5_000, "a")]),
    ]
    seen = [[(*row["pane"][:2], row["n"]) for row in made if row["control"] is None] for made in told]
    assert seen == [[("early", 0, 2)], [("on_time", 1, 3)], [("late", 2, 4)], [], [("expired", 0, 1)]]
    assert query.metrics()["late_rows"] == 1


def test_early_panes_by_the_clock_leave_without_new_rows(rows, started):
    topic, frame = rows
    query = started(aggregate(frame, "k", TEN, {"n": count()}, early=early(every="100 ms")))
    produce(query.bootstrap, topic, [AHEAD, event(1_000, "a")])
    made = wait_until(
        lambda: [row for rows in query.rows.values() for row in rows if row["control"] is None], "an early pane"
    )
    assert (made[0]["pane"]["timing"], made[0]["n"]) == ("early", 1)


AGGREGATES = {
    "n": count(),
    "total": sum("v"),
    "mean": avg("v"),
    "low": min("v"),
    "high": max("v"),
    "opening": first("v"),
    "closing": last("v"),
    "all": collect("v"),
    "kinds": approx_count_distinct("v"),
    "spread": variance("v"),
    "deviation": stddev("v"),
    "rise": linear_trend("v"),
    "middle": median("v"),
    "share": quantile("v", 0.25),
    "about": approx_quantile("v", 0.25),
    "best": top_n(2, "v"),
    "by_key": map_agg("k", "v"),
    "some": count_if("v > 2"),
    "some_total": sum("v", where="v > 2"),
}


PRODUCT = Aggregate(
    column="v",
    result=pa.int64(),
    create=lambda: 1,
    accumulate=lambda one, v: one * v,
    combine=lambda one, other: one * other,
)


def test_every_aggregate_comes_through_also_one_of_the_users_own_and_one_of_any_name(rows, started):
    topic, frame = rows
    named = frame.withColumns({"shop.id": F.col("k"), "a`mount": F.col("v")})
    wanted = {**AGGREGATES, "product": PRODUCT, "su.m": sum("a`mount")}
    query = started(aggregate(named, "shop.id", TEN, wanted))
    query.give(topic, [AHEAD, *(event(ms, "a", v) for ms, v in ((3_000, 7), (1_000, 2)))])
    # Rows of one time are ordered by their offsets.
    query.give(topic, [event(1_000, "b", 5), event(1_000, "b", 9)])
    made = query.give(topic, [event(2_000, "a", 9), event(1_000, "b", 7), steer(10_000)])
    row, same = sorted((r for r in made if r["control"] is None), key=lambda r: r["shop.id"])
    exact = [row[name] for name in AGGREGATES if name != "deviation"]
    more = [13.0, 2.5, 7.0, 4.5, 2.0, [9, 7], {"a": 7}, 2, 16]
    assert exact == [3, 18, 6.0, 2, 9, 2, 7, [2, 9, 7], 3, *more]
    assert row["deviation"] == pytest.approx(13.0**0.5)
    assert (row["shop.id"], row["product"], row["su.m"]) == ("a", 126, 18)
    assert (same["opening"], same["closing"]) == (5, 7)


def test_exact_aggregates_are_those_of_spark(spark):
    rows = events(11, 300)
    plan = plan_of(
        SlidingWindow(10**6, 10**6, 10**5),
        (
            ("var_n", variance("n")), ("dev_x", stddev("x")), ("trend", linear_trend("x")), ("middle", median("x")),
            ("share", quantile("n", 0.9)), ("some", count_if("n > 0 AND s IS NOT NULL")),
            ("part", avg("x", where="n > 0")), ("best", max("n", where="s = 'p'")),
        ),
    )  # fmt: skip
    ours = {row["k"]: row for row in play_batches(plan, DrivenOperator(plan), [([rows], None)])}
    values = [(row.k, row.time_ms, row.n, row.x, row.s) for row in rows]
    frame = spark.createDataFrame(values, "k string, t long, n long, x double, s string")
    chosen = F.expr("n > 0")
    theirs = frame.groupBy("k").agg(
        F.variance("n").alias("var_n"), F.stddev("x").alias("dev_x"),
        F.regr_slope("x", F.col("t") / 1_000).alias("trend"), F.median("x").alias("middle"),
        F.percentile("n", 0.9).alias("share"), F.count_if(F.expr("n > 0 AND s IS NOT NULL")).alias("some"),
        F.avg(F.when(chosen, F.col("x"))).alias("part"), F.max(F.when(F.expr("s = 'p'"), F.col("n"))).alias("best"),
    )  # fmt: skip
    found = [row.asDict() for row in theirs.collect()]
    assert len(found) == len(ours) == 3
    for row in found:
        mine = ours[row["k"]]
        assert {name: mine[name] for name in row} == {
            name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for name, value in row.items()
        }


def test_each_time_axis_has_windows_of_its_own(topic_of, load, started):
    topic = topic_of(1)
    axes = '{"made": {"key": 3, "eventTime": "json:$.made"}, "sent": {"key": 5, "eventTime": "json:$.sent"}}'
    rows = load(topic, watermarks=axes, idleTimeout="none").selectExpr("*", "cast(key as string) k")
    query = started(aggregate(rows, "k", TEN, {"n": count()}, axis="sent"))
    query.give(topic, [Record(0, 1, b'{"made": 1000, "sent": 2000}', b"a")])
    assert [
        r for r in query.give(topic, [Record(0, 2, b'{"made": 99000, "sent": 9999}', b"a")]) if not r["control"]
    ] == []
    (row,) = [r for r in query.give(topic, [Record(0, 3, b'{"made": 99000, "sent": 10000}', b"a")]) if not r["control"]]
    assert row["n"] == 2


def random_events(seed, count_of, *, slots=60_000, slot_ms=1):
    chance = random.Random(seed)
    return [
        event(slot_ms * chance.randrange(slots), f"key {chance.randrange(7)}", chance.randrange(100))
        for _ in range(count_of)
    ]


@pytest.mark.parametrize("window", ["sliding", "session"])
def test_nothing_late_equals_sparks_own_window(window, rows, started, seed, run):
    topic, frame = rows
    ours, native = {
        "sliding": (sliding("10 seconds", "2 seconds"), F.window("event_time", "10 seconds", "2 seconds")),
        "session": (session("3 seconds"), F.session_window("event_time", "3 seconds")),
    }[window]
    # Sessions: many rows of a key are exactly the gap apart, and merge.
    slots = {"slots": 400, "slot_ms": 3_000} if window == "session" else {}
    events = random_events(f"{seed} {window}", 300, **slots)
    query = started(aggregate(frame, "k", ours, {"n": sum("v")}))
    made = [pane for cut in (0, 150) for pane in panes(query.give(topic, events[cut : cut + 150]))]
    made += panes(query.give(topic, [AHEAD, steer(10_000_000)]))
    by_spark = run(with_watermark(frame).groupBy(native.alias("window"), "k").agg(F.sum("v").alias("n")))
    wanted = panes(by_spark.rows)
    assert Counter(made) == Counter(wanted)
    assert len(made) > 20


def test_a_restart_after_each_batch_is_invisible(rows, started, seed):
    topic, frame = rows
    steps = []
    for at in range(3):
        chance = random.Random(f"{seed} restart {at}")
        of_step = [
            event(at * 5_000 - 10_000 + chance.randrange(22_000), f"key {chance.randrange(5)}") for _ in range(40)
        ]
        steps.append([*of_step, steer(at * 5_000)])
    steps.append([steer(1_000_000)])
    wanted = aggregate(frame, "k", sliding("6 seconds", "2 seconds"), {"n": count()})
    straight, stopped = started(wanted), started(wanted)
    straight.give(topic, [AHEAD])
    for step in steps:
        stopped.give(topic, [])
        through = straight.give(topic, step)
        stopped.restart()
        assert sorted(panes(stopped.give(topic, []))) == sorted(panes(through))
    assert straight.metrics()["late_rows"] > 0


def test_another_plan_on_the_same_checkpoint_is_refused(rows, started):
    topic, frame = rows
    plans = iter([count(), sum("v")])
    query = started(lambda: aggregate(frame, "k", TEN, {"n": next(plans)}, name="hours"))
    query.give(topic, [AHEAD, event(1_000, "a")])
    query.restart()
    with pytest.raises(Exception, match="the checkpoint holds the state of another plan"):
        query.give(topic, [event(2_000, "a")])
