"""What is wrong with a call of `aggregate` is told when it is made, in one sentence with the fix."""

from __future__ import annotations

import re
import warnings
from functools import partial
from threading import Lock

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from keyedwm.core.errors import KeyedwmError
from keyedwm.spark import (
    Aggregate,
    Store,
    aggregate,
    count,
    early,
    per_key,
    recommended_conf,
    running,
    session,
    sliding,
    sum,  # noqa: A004
    tumbling,
    tumbling_rows,
)
from keyedwm.spark.setup.conf import PROVIDER
from tests.spark.started import AHEAD, event, keyed

TEN = tumbling("10 seconds")
N = {"n": count()}
DAY = {"behind": "1 day"}
STORE = Store(retention="1 day")
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def held(_lock, total, value):
    return total + value


LOCKED = Aggregate(column="v", result=pa.int64(), create=int, accumulate=partial(held, Lock()), combine=max)


@pytest.fixture(scope="module")
def frame(topic_of, load):
    return keyed(load(topic_of(2)))


CALLS = {
    "it has k, n|did you mean 'k'": lambda df: aggregate(df, "kk", TEN, N),
    "no column 'value2'; did you mean 'value'": lambda df: aggregate(df, "k", TEN, {"n": sum("value2")}),
    "sum(value) needs numbers": lambda df: aggregate(df, "k", TEN, {"n": sum("value")}),
    "aggregate: the aggregate 'n' cannot be sent to Spark's workers": lambda df: aggregate(df, "k", TEN, {"n": LOCKED}),
    "running: the aggregate 'n' cannot be sent to Spark's workers": lambda df: running(df, "k", {"n": LOCKED}),
    "at least one aggregate": lambda df: aggregate(df, "k", TEN, {}),
    "cannot be called 'event_time'": lambda df: aggregate(df, "k", TEN, {"event_time": count()}),
    "cannot be called 'Watermark'": lambda df: aggregate(df, "k", TEN, {"Watermark": count()}),
    "cannot be called 'window'": lambda df: aggregate(df, "k", TEN, {"window": count()}),
    "two columns called 'k'": lambda df: aggregate(df, "k", TEN, {"k": count()}),
    "keep it when columns are chosen": lambda df: aggregate(df.drop("event_time"), "k", TEN, N),
    "the frame has no column 'event_time_made'": lambda df: aggregate(df, "k", TEN, N, axis="made"),
    "option late: 'drip' is wrong": lambda df: aggregate(df, "k", TEN, N, late="drip"),
    "option late_rule: 'frames' is wrong": lambda df: aggregate(df, "k", TEN, N, late_rule="frames"),
    "option lateness: 'soon' is wrong": lambda df: aggregate(df, "k", TEN, N, lateness="soon"),
    "aggregate: the key 'k' has the collation UTF8_LCASE": lambda df: aggregate(
        df.withColumn("k", F.expr("k collate utf8_lcase")), "k", TEN, N
    ),
    "option buckets: '0' is wrong": lambda df: aggregate(df, "k", TEN, N, buckets=0),
    "there is one bucket": lambda df: aggregate(df, (), TEN, N, buckets=2),
    "the slide must divide the size": lambda _: sliding("10 seconds", "3 seconds"),
    "the offset of a window is 10 seconds": lambda _: tumbling("10 seconds", "10 seconds"),
    "the gap of a session is 0 ms": lambda _: session("0 seconds"),
    "option gap: '-5 seconds' is wrong": lambda _: session("-5 seconds"),
    "option touching: 'merged' is wrong": lambda _: session("5 seconds", touching="merged"),
    "a number of rows, an interval, or both": lambda _: early(),
    "option size: 10 is wrong": lambda _: tumbling(10),
    "option rows: 'many' is wrong": lambda _: early(rows="many"),
    "option late: None is wrong": lambda df: aggregate(df, "k", TEN, N, late=None),
    "aggregate: by=None: the names of columns": lambda df: aggregate(df, None, TEN, N),
    "aggregate: by=Column<'k'>: the names": lambda df: aggregate(df, F.col("k"), TEN, N),
    "it must be|a mapping is expected": lambda df: aggregate(df, "k", TEN, [count()]),
    "a mapping is expected, such as": lambda df: aggregate(df, "k", TEN, count()),
    "aggregate: aggs={1: ": lambda df: aggregate(df, "k", TEN, {1: count()}),
    "aggregate: df=None: a frame, or": lambda _: aggregate(None, "k", TEN, N),
    "accumulating='false': True or False": lambda df: aggregate(df, "k", TEN, N, accumulating="false"),
    "aggregate: axis=None: the name of": lambda df: aggregate(df, "k", TEN, N, axis=None),
    "aggregate: name=5: a text": lambda df: aggregate(df, "k", TEN, N, name=5),
    "aggregate: max_rows_per_batch=0: a whole number": lambda df: aggregate(df, "k", TEN, N, max_rows_per_batch=0),
    "aggregate: name='': a text": lambda df: aggregate(df, "k", TEN, N, name=""),
    "'event_time' is of type timestamp_ntz": lambda df: aggregate(
        df.withColumn("event_time", F.col("event_time").cast("timestamp_ntz")), "k", TEN, N
    ),
    "by=Column<'k'>: the names of columns": lambda df: aggregate(df, [F.col("k")], TEN, N),
    "a window of keyedwm.spark is expected, such as tumbling('1 minute')": lambda df: aggregate(
        df, "k", F.window("event_time", "1 second"), N
    ),
    "column 'n' is given Column<'count(": lambda df: aggregate(df, "k", TEN, {"n": F.count("*")}),
    "sum(Column<'n'>): the name of a column": lambda df: aggregate(df, "k", TEN, {"n": sum(F.col("n"))}),
    "early='10 seconds': keyedwm.spark.early": lambda df: aggregate(df, "k", TEN, N, early="10 seconds"),
    "per_key: behind is missing": lambda _: per_key("15 minutes"),
    "behind must be the longer one": lambda _: per_key("2 days", behind="1 day"),
    "option behind of per_key(): '1 dya' is wrong": lambda _: per_key("15 minutes", behind="1 dya"),
    "owned by one of them, or by a list of some; did you mean k?": lambda df: aggregate(
        df, "k", TEN, N, key_watermark=per_key("1 second", **DAY, by="K")
    ),
    "option partitions of per_key(): 'all' is wrong": lambda _: per_key("1 second", behind="1 day", partitions="all"),
    "per_key: by names 'device'": lambda df: aggregate(
        df, "k", TEN, N, key_watermark=per_key("1 second", **DAY, by="device")
    ),
    "key_watermark='1 day': keyedwm.spark.per_key": lambda df: aggregate(df, "k", TEN, N, key_watermark="1 day"),
    "aggregate: key_watermark stands beside a store: it is possible with tumbling, sliding": lambda df: aggregate(
        df, "k", TEN, N, store=STORE, key_watermark=per_key("1 second", **DAY)
    ),
    "beside a window of kind RowWindow: it is possible with tumbling": lambda df: aggregate(
        df, "k", tumbling_rows(9), N, key_watermark=per_key("1 second", **DAY)
    ),
    "lateness of 2 days is beyond behind=1 day": lambda df: aggregate(
        df, "k", TEN, N, lateness="2 days", key_watermark=per_key("1 second", **DAY)
    ),
    "key_watermark separates the partitions of a key, and the frame has not all of topic": lambda df: aggregate(
        df.drop("offset"), "k", TEN, N, key_watermark=per_key("1 second", **DAY)
    ),
    "max_rows_per_batch holds closed windows back": lambda df: aggregate(
        df, "k", TEN, N, max_rows_per_batch=9, key_watermark=per_key("1 second", **DAY)
    ),
    "which cannot be a key": lambda df: aggregate(df.withColumn("k", F.array("k")), "k", TEN, N),
    "cores=0: a whole number of at least 1": lambda _: recommended_conf(cores=0),
    "local_checkpoint='yes': True or False is expected": lambda _: recommended_conf(local_checkpoint="yes"),
}


@pytest.mark.usefixtures("bucket_conf")
@pytest.mark.parametrize("words", CALLS)
def test_a_wrong_call_is_refused(words, frame):
    with pytest.raises(KeyedwmError) as refused:
        CALLS[words](frame)
    assert any(part in str(refused.value) for part in words.split("|"))


@pytest.mark.usefixtures("bucket_conf")
def test_a_source_without_control_rows_is_refused(topic_of, load):
    rows = load(topic_of(1), emitControl="false")
    with pytest.raises(KeyedwmError, match=re.escape("has no control rows")) as refused:
        aggregate(rows, "key", TEN, N)
    assert "emitControl=true" in str(refused.value)


@pytest.mark.usefixtures("bucket_conf")
def test_a_batch_read_is_refused(topic_of, spark, kafka):
    rows = spark.read.format("keyedwm").options(
        **{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic_of(1)}
    )
    with pytest.raises(KeyedwmError, match="the frame is a batch read, which has no watermarks to close windows"):
        aggregate(rows.load(), "key", TEN, N)


@pytest.mark.usefixtures("bucket_conf")
def test_another_state_store_is_refused_with_the_setting(frame, spark):
    spark.conf.set(PROVIDER, HDFS)
    with pytest.raises(KeyedwmError, match=r"HDFSBackedStateStoreProvider, Spark's transformWithState needs RocksDB"):
        aggregate(frame, "k", TEN, N)
    assert spark.conf.get(PROVIDER) == HDFS


@pytest.mark.usefixtures("bucket_conf")
@pytest.mark.parametrize("how", ["barriers", "filter"])
def test_missing_barriers_end_the_query_with_the_fix(how, topic_of, load, started):
    topic = topic_of(2)
    rows = keyed(load(topic, barriers="false") if how == "barriers" else load(topic))
    if how == "filter":
        rows = rows.where("control IS NULL OR control.kind <> 'barrier'")
    query = started(aggregate(rows, "k", TEN, N))
    with pytest.raises(Exception, match="a batch came without barrier rows"):
        query.give(topic, [AHEAD, event(1_000, "a")])


@pytest.mark.usefixtures("bucket_conf")
def test_recommended_settings_are_told_and_not_set(spark):
    told = recommended_conf(cores=7)
    assert told["spark.sql.shuffle.partitions"] == "7"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.usefixtures("bucket_conf")
def test_warnings_are_errors_here_and_none_comes(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert aggregate(frame, ["k"], TEN, N).where(F.col("n") > 1).columns == [
            "k", "window", "n", "pane", "event_time", "watermark", "control",
        ]  # fmt: skip
