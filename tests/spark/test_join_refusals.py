"""What is wrong with a call of `join` is told when it is made, in one sentence with the fix."""

from __future__ import annotations

import re

import pytest

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import join, join_latest, source
from keyedwm.spark.setup.conf import PROVIDER
from tests.spark.started import keyed

pytestmark = pytest.mark.usefixtures("bucket_conf")
HOUR = ("0 seconds", "1 hour")
AXES = '{"ordered": {"key": 1, "eventTime": "json:$.o"}, "shipped": {"key": 2, "eventTime": "json:$.s"}}'
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def described(spark, **options):
    """A described read; nobody is asked before a query starts."""
    return source(spark).options(**{"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, **options)


@pytest.fixture(scope="module")
def one(spark):
    return keyed(described(spark).load())


@pytest.fixture(scope="module")
def two(spark):
    return keyed(described(spark, watermarks=AXES).load())


ONE_AXIS = {
    "give either within=(least, most)": lambda df: join(df, df, "k"),
    "the bound of ('left', 'right') is '1 hour', two durations": lambda df: join(df, df, "k", within="1 hour"),
    "option bound: 'soon' is wrong": lambda df: join(df, df, "k", within=("soon", "1 hour")),
    "from 5000 ms to -5000 ms is empty": lambda df: join(df, df, "k", within=("5 seconds", "-5 seconds")),
    "may be behind left": lambda df: join(df, df, "k", within=(None, "1 hour")),
    "may be ahead of left": lambda df: join(df, df, "k", within=("0 seconds", None)),
    "a mapping is expected, such as {('ordered', 'shipped')": lambda df: join(df, df, "k", bounds=HOUR),
    "the left side has no time axis 'lefts'; did you mean 'left'": lambda df: join(
        df, df, "k", bounds={("lefts", "right"): HOUR}
    ),
    "the left side has no column 'kk' to join on; did you mean 'k'": lambda df: join(df, df, "kk", within=HOUR),
    "the right side has no column 'w' to join on": lambda df: join(df, df, {"k": "w"}, within=HOUR),
    "on=None: the names of columns": lambda df: join(df, df, None, within=HOUR),
    "'event_time' of the left side is a time or control": lambda df: join(df, df, "event_time", within=HOUR),
    "'k' of the left side is of type string and 'v' of the right side of type int64": lambda df: join(
        df, df, {"k": "v"}, within=HOUR
    ),
    "of type map<string, string": lambda df: join(df.selectExpr("*", "map(k, k) m"), df, {"m": "k"}, within=HOUR),
    "option how: 'outer' is wrong": lambda df: join(df, df, "k", within=HOUR, how="outer"),
    "option late: 'drip' is wrong": lambda df: join(df, df, "k", within=HOUR, late="drip"),
    "names=('a', 'A'): two different texts": lambda df: join(df, df, "k", within=HOUR, names=("a", "A")),
    "name=5: a text is expected": lambda df: join(df, df, "k", within=HOUR, name=5),
    "join: continue_from=5: the place of a savepoint": lambda df: join(df, df, "k", within=HOUR, continue_from=5),
    "option buckets: 1000000000 is wrong; 100000 is the most": lambda df: join(df, df, "k", within=HOUR, buckets=10**9),
    "columns are called by them, so they cannot hold a backtick": lambda df: join(
        df, df, "k", within=HOUR, names=("a`b", "c")
    ),
    "so they cannot hold a backtick or a dot": lambda df: join(df, df, "k", within=HOUR, names=("a b", "c.d")),
    "within and bounds are both given": lambda df: join(df, df, "k", within=HOUR, bounds={("left", "right"): HOUR}),
    "join: on={} names no column": lambda df: join(df, df, {}, within=HOUR),
    "join_latest: on={} names no column": lambda df: join_latest(df, df, {}),
    "on=['k', 'k'] names the column 'k' twice": lambda df: join(df, df, ["k", "k"], within=HOUR),
    "cannot be evaluated: = does not take string and int32; cast the column before": lambda df: join(
        df, df, "v", within=HOUR, condition="left.k = 5"
    ),
    "join: 'k' of the left side has the collation UTF8_LCASE, but keys are compared byte by byte": lambda df: join(
        df.selectExpr("v", "k collate utf8_lcase k", "event_time", "watermark", "control"), df, "k", within=HOUR
    ),
    "has a type that Spark cannot hand to Python, so leave it out or cast it": lambda df: join(
        df.selectExpr("*", "interval 1 year i"), df, "k", within=HOUR
    ),
    "join: 5 of the stream side: the name of a time axis is expected": lambda df: join_latest(df, df, "k", axis=5),
    "option buckets: '0' is wrong": lambda df: join(df, df, "k", within=HOUR, buckets=0),
    "names a column 'nope' that is not there": lambda df: join(df, df, "k", within=HOUR, condition="nope = 1"),
    "both sides have a column 'v', write left.v or right.v": lambda df: join(
        df, df, "k", within=HOUR, condition="v = 1"
    ),
    "the right side has no control rows": lambda df: join(df, df.drop("control"), "k", within=HOUR),
    "the left side has no time axis, that is no columns": lambda df: join(df.drop("watermark"), df, "k", within=HOUR),
    "left=None: a frame, or keyedwm.spark.kafka(...), is expected": lambda df: join(None, df, "k", within=HOUR),
    "the right side is a batch read": lambda df: join(df, df.sparkSession.range(1), "k", within=HOUR),
}
TWO_AXES = {
    "the left side has several time axes (ordered, shipped), so within= does not say": lambda df: join(
        df, df, "k", within=HOUR
    ),
    "both sides have a time axis called 'ordered'": lambda df: join(
        df, df, "k", bounds={("ordered", "shipped"): HOUR, ("shipped", "ordered"): HOUR}
    ),
    "the left side has no time axis 'order'; did you mean 'ordered'": lambda df: join(
        df, df, "k", bounds={("order", "shipped"): HOUR}
    ),
    "does not know its watermark key": lambda df: join(
        df.selectExpr("k", "control", "event_time_ordered", "watermark_ordered + interval 1 second watermark_ordered"),
        df,
        "k",
        bounds={("ordered", "shipped"): HOUR},
    ),
}


@pytest.mark.parametrize("sentence", ONE_AXIS)
def test_a_wrong_call_is_refused_in_one_sentence(sentence, one):
    with pytest.raises(KeyedwmError, match=re.escape(sentence)) as refused:
        ONE_AXIS[sentence](one)
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("sentence", TWO_AXES)
def test_a_wrong_call_over_several_axes_is_refused_in_one_sentence(sentence, two):
    with pytest.raises(KeyedwmError, match=re.escape(sentence)):
        TWO_AXES[sentence](two)


def test_a_store_that_cannot_hold_the_state_is_refused(one, spark):
    spark.conf.set(PROVIDER, HDFS)
    with pytest.raises(KeyedwmError, match="join: the session's state store provider is HDFSBacked"):
        join(one, one, "k", within=HOUR)


def test_an_axis_without_a_name_is_called_so_or_by_its_side(one):
    by_side = join(one, one, "k", bounds={("left", "right"): HOUR})
    assert join(one, one, "k", bounds={("", ""): HOUR}).columns == by_side.columns


def test_the_result_has_the_axes_of_both_sides_and_can_be_joined_again(one, two):
    first = join(one, two, "k", bounds={("left", "shipped"): HOUR}, names=("left", "parcels"))
    assert [name for name in first.columns if name.startswith(("event_time", "watermark"))] == [
        "event_time_ordered", "event_time_left", "event_time_shipped", "watermark_left", "watermark_shipped",
    ]  # fmt: skip
    assert [first.schema[f"watermark_{axis}"].metadata for axis in ("left", "shipped")] == [
        {"keyedwm.key": 0}, {"keyedwm.key": 1},
    ]  # fmt: skip
    both = {("shipped", "bills"): HOUR, ("left", "bills"): ("0 seconds", None)}
    again = join(first, one, "k", bounds=both, names=("orders", "bills"), how="left_anti")
    # No bound says how far left is behind, so its watermark cannot be passed on.
    assert [name for name in again.columns if name.startswith("watermark")] == ["watermark_shipped"]


LATEST = {
    "how='full': left or inner is expected": lambda df, _: join_latest(df, df, "k", how="full"),
    "join_latest: stream=None: a frame": lambda df, _: join_latest(None, df, "k"),
    "join_latest: on=5: the names": lambda df, _: join_latest(df, df, 5),
    "changes has several time axes (ordered, shipped): say which by changes_axis=": lambda df, two: join_latest(
        df, two, "k"
    ),
}


@pytest.mark.parametrize("sentence", LATEST)
def test_a_wrong_call_of_join_latest_is_refused_in_one_sentence(sentence, one, two):
    with pytest.raises(KeyedwmError, match=re.escape(sentence)):
        LATEST[sentence](one, two)
