"""`events` gives the records alone, as Spark's own source does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from keyedwm.arrow.schema import REJECTED_TYPE
from keyedwm.core.errors import OptionError
from keyedwm.core.rows import CONTROL_FIELDS
from keyedwm.spark import events, sql_view, with_watermark
from keyedwm.spark.hosting.staged_rows import control_columns, rejected_type
from tests.tools import Record, produce


def test_events_are_one_row_a_record_without_control_rows_and_their_column(kafka, topic_of, load, run):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(n % 2, 10 + n, b"%d" % n) for n in range(5)])
    assert len(run(load(topic)).rows) > 5
    rows = run(events(load(topic))).rows
    assert sorted(row["value"] for row in rows) == [b"%d" % n for n in range(5)]
    assert "control" not in rows[0].asDict()


def test_a_frame_without_control_rows_stays_as_it_is(load, topic):
    frame = load(topic, emitControl="false")
    assert events(frame) is frame


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [("CONTROL", CONTROL_FIELDS, ["CONTROL"]), ("control", CONTROL_FIELDS, ["control"]), ("control", ["n"], [])],
)
def test_the_control_column_is_known_by_its_type_however_sql_spells_its_name(name, fields, expected):
    """A column of the same name and another type is the user's own."""
    kind = StructType([StructField(field, StringType()) for field in fields])
    assert control_columns(SimpleNamespace(schema=StructType().add("n", StringType()).add(name, kind))) == expected


@pytest.mark.parametrize("name", ["REJECTED", "rejected"])
def test_unreadable_records_are_known_however_sql_spells_their_column(name):
    schema = StructType().add(name, from_arrow_type(REJECTED_TYPE))
    assert rejected_type(SimpleNamespace(columns=[name], schema=schema)) == REJECTED_TYPE
    text = StructType().add(name, StringType())
    assert rejected_type(SimpleNamespace(columns=[name], schema=text)) is None


def test_sql_over_a_view_reads_one_row_a_record_and_windows_follow_the_coalesced_watermark(
    spark, kafka, topic_of, described, run
):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(n % 2, 1_000 * n, b"%d" % n) for n in range(10)])
    read = described(topic, idleTimeout="1 minute", watermarkLag="1 second")
    assert "control" not in sql_view(spark, "all_orders", read).columns
    rows = run(spark.sql("SELECT INT(STRING(value)) AS n FROM all_orders WHERE offset > 0")).rows
    assert sorted(row["n"] for row in rows) == list(range(2, 10))
    sql_view(spark, "followed_orders", with_watermark(read.load()))
    counts = "SELECT window.start AS start, count(*) AS n FROM followed_orders GROUP BY window(event_time, '2 seconds')"
    # The partitions end at 8 s and 9 s: at the lower watermark of 7 s three windows are closed.
    assert [row["n"] for row in run(spark.sql(counts)).rows] == [2, 2, 2]


def test_a_view_of_another_session_is_rejected_and_replaces_none_of_this_session(spark, described, topic):
    other = spark.newSession()
    sql_view(spark, "of_a_session", described(topic))
    sql_view(other, "of_a_session", other.range(1))
    with pytest.raises(OptionError, match="the view 'of_a_session' are of another session: give the session that made"):
        sql_view(spark, "of_a_session", other.range(2))
    assert "value" in spark.table("of_a_session").columns
    assert other.table("of_a_session").count() == 1
    assert [row.viewName for row in other.sql("SHOW VIEWS").collect()] == ["of_a_session"]


@pytest.mark.parametrize("name", ["", "a.b", "1", 1])
def test_a_view_needs_a_plain_name(spark, described, topic, name):
    with pytest.raises(OptionError, match=f"sql_view: name={name!r}: letters, digits and _ are expected"):
        sql_view(spark, name, described(topic))
