"""`events` gives the records alone, as Spark's own source does."""

from __future__ import annotations

from keyedwm.spark import events
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
