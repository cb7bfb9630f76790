"""Sessions whose rows have a gap of their own, in Spark: those of Spark's `session_window` over the same rows."""

from __future__ import annotations

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.spark import Store, aggregate, count, session
from tests.tools import Record, produce

BASE_MS = 1_500_000_000_000
# Key, minutes after the base, and the gap in minutes, which may be none at all.
ROWS = [
    ("a", 0, "5"), ("a", 4, "1"), ("a", 6, "30"), ("a", 20, "1"), ("a", 40, "2"), ("b", 0, "0"), ("b", 1, "x"),
    ("b", 2, "-3"), ("b", 3, "10"), ("b", 12, "1"), ("b", 14, "1"),
]  # fmt: skip
GAP = "make_dt_interval(0, 0, try_cast(cast(value as string) as int)) gap"


@pytest.mark.usefixtures("bucket_conf")
def test_sessions_of_a_gap_column_are_those_of_spark(spark, kafka, topic_of, load, run):
    from pyspark.sql import functions as F

    topic = topic_of(1)
    records = [Record(0, BASE_MS + at * 60_000, gap.encode(), key.encode()) for key, at, gap in ROWS]
    produce(kafka.bootstrap, topic, [*records, Record(0, BASE_MS + 86_400_000, b"1", b"end")])
    rows = load(topic, idleTimeout="none", watermarkLag="1 hour").selectExpr("*", "cast(key as string) k", GAP)
    ran = run(aggregate(rows, "k", session(gap_column="gap", touching="separate"), {"n": count()}, buckets=2))
    made = ran.rows
    of_rows = [(key, BASE_MS + at * 60_000, gap.encode()) for key, at, gap in ROWS]
    given = spark.createDataFrame(of_rows, "k string, ms long, value binary").selectExpr(
        "k", "timestamp_millis(ms) at", GAP.replace("make_dt_interval(0, 0,", "make_interval(0, 0, 0, 0, 0,")
    )
    native = given.groupBy("k", F.session_window("at", F.col("gap")).alias("window")).agg(F.count("*").alias("n"))
    expected = shown(native.collect())
    assert shown(row for row in made if row["control"] is None and row["k"] != "end") == expected
    assert len(expected) == 5
    told = [metrics for batch in ran.progress for metrics in batch["observedMetrics"].values()]
    assert sum(metrics["no_gap_rows"] for metrics in told) == len([one for one in ROWS if one[2] in ("0", "x", "-3")])


def shown(rows):
    return sorted((row["k"], row["window"]["start"], row["window"]["end"], row["n"]) for row in rows)


@pytest.mark.usefixtures("bucket_conf")
def test_a_gap_column_takes_no_store_and_no_unloaded_source(load, described):
    window = session(gap_column="gap")
    rows = load("a").selectExpr("*", "cast(key as string) k", GAP)
    with pytest.raises(OptionError, match="sessions that keep their messages have one gap"):
        aggregate(rows, "k", window, {"n": count()}, store=Store(retention="1 hour"))
    with pytest.raises(OptionError, match="needs a column of rows"):
        aggregate(described("a"), {"k": "key::string"}, window, {"n": count()})


@pytest.mark.usefixtures("bucket_conf")
def test_a_calendar_interval_is_no_gap_and_the_sentence_names_the_column_and_the_function(load):
    rows = load("a").selectExpr("*", "cast(key as string) k", "make_interval(0, 0, 0, 0, 0, 5) pause")
    with pytest.raises(OptionError, match=r"column 'pause' .* calendar interval, .* as of make_dt_interval\(0, 0, min"):
        aggregate(rows, "k", session(gap_column="pause"), {"n": count()})
