"""What a frame was made of decides what may follow: totals are not added up, no watermark is lost in silence."""

from __future__ import annotations

import re
import warnings
from functools import partial

import pytest
from pyspark.sql import functions as F

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import (
    Processor,
    Store,
    aggregate,
    async_map,
    count,
    deduplicate,
    early,
    join,
    join_latest,
    on_demand,
    process,
    running,
    session,
    sum,  # noqa: A004
    tumbling,
    tumbling_rows,
    window_join,
    with_watermark,
)

HOUR, DAY = tumbling("1 hour"), tumbling("1 day")
KEPT = Store(retention="1 day")
N = {"n": count()}
COLUMNS = ("cast(key as string) k", "topic", "partition", "offset", "event_time", "watermark", "control")
DISCARD = "accumulating=False, so that each pane holds new rows only, or leave its early"
BY_PROCESS = "take the last row of each window and key in a process"


class Passing(Processor):
    """Emits what it is given."""

    def on_rows(self, _number, rows):
        yield rows


async def same(rows):
    return rows


@pytest.fixture(scope="module")
def loaded(load):
    return load("any").selectExpr(*COLUMNS)


@pytest.fixture
def rows(bucket_conf, loaded):
    return loaded


def hours(rows, **how):
    return aggregate(rows, "k", how.pop("window", HOUR), N, name="first", **how)


EARLY, LATE = {"early": early(rows=2)}, {"lateness": "10 hours"}
# By what the rows are: what makes them, and what the refusal of adding them up says, None if they can be.
MADE = {
    "rows": (lambda rows: rows, None),
    "one pane": (hours, None),
    "early panes": (partial(hours, **EARLY), DISCARD),
    "late panes": (partial(hours, **LATE), DISCARD),
    "late panes of sessions": (partial(hours, **LATE, window=session("1 hour")), DISCARD),
    "what is new": (partial(hours, **EARLY, **LATE, accumulating=False), None),
    "a store": (
        partial(hours, store=KEPT),
        "accumulating=False, so that each pane holds new rows only, or take the last",
    ),
    "what is new in a store": (partial(hours, store=KEPT, accumulating=False), None),
    "sessions of a store": (partial(hours, store=KEPT, window=session("1 hour")), BY_PROCESS),
    "windows on demand": (partial(hours, store=KEPT, window=on_demand("1 hour", "k = 'a'")), BY_PROCESS),
    "windows of rows": (partial(hours, store=Store(max_windows=9), window=tumbling_rows(2)), None),
    "pairs": (lambda rows: window_join(rows, rows, "k", HOUR, store=KEPT), None),
    "one pair": (lambda rows: window_join(rows, rows, "k", HOUR, store=KEPT, keep="last"), BY_PROCESS),
    "a session's pairs": (
        lambda rows: window_join(rows, rows, "k", session("1 hour"), store=KEPT, emit="running"),
        BY_PROCESS,
    ),
    "processed panes": (lambda rows: process(hours(rows, **EARLY), "k", Passing, "k string, n bigint"), None),
    "panes of async_map": (lambda rows: async_map(hours(rows, **EARLY), same, "k string, n bigint"), DISCARD),
    "panes with the latest change": (
        lambda rows: _one_axis(join_latest(hours(rows, **EARLY), rows, "k"), "stream"),
        DISCARD,
    ),
    "rows with the latest pane": (lambda rows: _one_axis(join_latest(rows, hours(rows, **EARLY), "k"), "stream"), None),
    "without the pane": (lambda rows: hours(rows, **LATE).drop("pane"), DISCARD),
    "renamed": (
        lambda rows: hours(rows, **LATE).select(
            "k", "n", "event_time", "watermark", F.expr("if(isnull(control), null, control)").alias("control")
        ),
        DISCARD,
    ),
    "a union": (lambda rows: rows.unionByName(hours(rows, **LATE), allowMissingColumns=True), DISCARD),
    "a union of results": (lambda rows: hours(rows).unionByName(_other(rows)), DISCARD),
    "a view": (lambda rows: _view(hours(rows, **LATE)), DISCARD),
}


def _other(rows):
    return aggregate(rows, "k", HOUR, N, name="other", **LATE)


def _one_axis(joined, axis):
    return joined.withColumnsRenamed({f"event_time_{axis}": "event_time", f"watermark_{axis}": "watermark"})


def _view(frame):
    frame.createOrReplaceTempView("panes_of_hours")
    return frame.sparkSession.sql("SELECT k, n, event_time, watermark, control FROM panes_of_hours WHERE n > 1")


@pytest.mark.parametrize("made", MADE)
def test_whole_totals_are_not_added_up(made, rows):
    make, words = MADE[made]
    frame = make(rows)
    if words is None:
        assert "n" in aggregate(frame, "k", DAY, {"n": count()}, name="second").columns
        return
    with pytest.raises(KeyedwmError, match=re.escape(words)):
        aggregate(frame, "k", DAY, {"n": count()}, name="second")


ADDING = {
    "aggregate": lambda panes, _: aggregate(panes, "k", DAY, {"x": sum("n")}),
    "aggregate: ": lambda panes, _: aggregate(panes, "k", DAY, {"x": sum("n")}, store=KEPT),
    "running": lambda panes, _: running(panes, "k", {"x": sum("n")}),
    "join: the left side": lambda panes, rows: join(panes, rows, "k", within=("0 seconds", "1 hour")),
    "join: the right side": lambda panes, rows: join(rows, panes, "k", within=("0 seconds", "1 hour")),
    "window_join, left side": lambda panes, rows: window_join(panes, rows, "k", DAY, store=KEPT),
    "window_join, right side": lambda panes, rows: window_join(rows, panes, "k", DAY, store=KEPT),
}


@pytest.mark.parametrize("who", ADDING)
def test_no_operator_that_adds_up_takes_panes(who, rows):
    panes = hours(rows, **EARLY)
    with pytest.raises(KeyedwmError, match=f"^{who}.*each with the whole total of its window"):
        ADDING[who](panes, rows)


def test_deduplicated_panes_are_panes(rows):
    with pytest.raises(KeyedwmError, match=DISCARD):
        aggregate(deduplicate(hours(rows.drop("s"), **EARLY), "n", within="1 day"), "k", DAY, N)


def test_before_spark_s_own_operators_panes_are_warned_of(rows):
    with pytest.warns(RuntimeWarning, match="filter by the column pane") as told:
        with_watermark(hours(rows, **LATE))
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_watermark(hours(rows))


def test_a_watermark_of_spark_s_own_is_refused_where_it_has_no_effect(rows):
    asked = rows.withWatermark("event_time", "10 minutes")
    no_effect = r"withWatermark\('event_time', '10 minutes'\) of Spark has no effect here.*option watermarkLag"
    with pytest.raises(KeyedwmError, match=f"^aggregate: {no_effect}"):
        aggregate(asked.where("k <> 'x' OR k IS NULL"), "k", HOUR, N)
    with pytest.raises(KeyedwmError, match=f"^join: the right side: {no_effect}"):
        join(rows, asked, "k", within=("0 seconds", "1 hour"))
    with pytest.raises(KeyedwmError, match=r"went through with_watermark, which leaves .* give the frame before it"):
        aggregate(with_watermark(rows), "k", HOUR, N)
    with pytest.raises(KeyedwmError, match=r"^join: the left side: the frame went through with_watermark"):
        join(with_watermark(rows), rows, "k", within=("0 seconds", "1 hour"))


MOVED = {
    "an expression": (lambda rows: rows.withColumn("event_time", F.expr("event_time + INTERVAL 1 HOUR")), True),
    "another column": (lambda rows: rows.withColumn("event_time", F.current_timestamp()), True),
    "another one's name": (lambda rows: rows.drop("event_time").withColumnRenamed("at", "event_time"), True),
    "itself": (lambda rows: rows.withColumn("event_time", F.col("event_time")), False),
    "a name that it had": (
        lambda rows: rows.withColumnRenamed("event_time", "x").withColumnRenamed("x", "event_time"),
        False,
    ),
    "the axis of a join": (
        lambda rows: _one_axis(join(rows.drop("at"), rows.drop("at"), "k", within=("0 s", "1 hour")), "left"),
        False,
    ),
}


@pytest.mark.parametrize("made", MOVED)
def test_event_times_that_were_computed_anew_are_warned_of(made, load, bucket_conf):
    make, is_moved = MOVED[made]
    frame = make(load("any").selectExpr(*COLUMNS, "timestamp AS at"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        first = aggregate(frame, "k", HOUR, N, name="first")
        aggregate(first, "k", DAY, {"n": sum("n")}, name="second")
    assert [one.filename for one in told] == [__file__] * is_moved
    assert all("the column 'event_time' was computed again" in str(one.message) for one in told)


@pytest.mark.parametrize("made", ["an expression", "itself"])
def test_sparks_windows_over_event_times_that_were_computed_anew_are_warned_of(made, load):
    make, is_moved = MOVED[made]
    frame = make(load("any").selectExpr(*COLUMNS, "timestamp AS at"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with_watermark(frame)
    assert [one.filename for one in caught] == [__file__] * is_moved


def test_several_rows_of_a_record_are_refused_before_a_store(rows):
    twice = rows.withColumn("item", F.explode(F.array(F.lit("x"), F.lit("x")))).where("item = 'x' OR item IS NULL")
    words = "the frame has explode, which makes several rows of one record, and here a record is one message"
    for refused in (
        lambda: aggregate(twice, "k", HOUR, N, store=KEPT),
        lambda: window_join(twice, rows, "k", HOUR, store=KEPT),
        lambda: window_join(rows, twice, "k", session("1 hour"), store=KEPT),
    ):
        with pytest.raises(KeyedwmError, match=words):
            refused()
    assert "n" in aggregate(twice, "k", HOUR, N).columns


def test_a_static_frame_that_was_exploded_makes_no_several_rows_of_a_record(spark, rows):
    groups = spark.createDataFrame([("x", ["a", "b"])], "g string, ks array<string>")
    look = groups.select("g", F.explode("ks").alias("k"))
    assert "n" in aggregate(rows.join(F.broadcast(look), "k", "left"), "k", HOUR, N, store=KEPT).columns
