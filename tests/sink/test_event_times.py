"""Two jobs in a row keep their event time: the sink writes it beside the row, the next source takes it from there."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType, TimestampType

from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.core.control_row import channel_row
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.kafka.headers import event_time_columns, with_event_times
from pyspark_wm_sink.kafka.stage import stage
from pyspark_wm_sink.options.sink_options import SnapshotMode
from pyspark_wm_source.task import unreadable
from tests.sink.kafka_sink import Sink
from tests.tools import Record, at, controls, events, produce

UTC_US = pa.timestamp("us", "UTC")
HEADER = "keyedwm.event_time"


def times(*ms: float | None) -> pa.Array:
    return pa.array([None if one is None else int(one * 1_000) for one in ms], pa.int64()).cast(UTC_US)


def headers_of(table: pa.Table) -> list:
    return [[(h["key"], h["value"]) for h in row] for row in table.column("headers").to_pylist()]


def test_each_row_gets_its_own_time_behind_the_headers_it_has():
    own = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []], HEADERS_TYPE)
    rows = pa.table({"event_time": times(5, None, -0.5), "headers": own})
    assert headers_of(with_event_times(rows, ["event_time"])) == [
        [("a", b"1"), ("b", None), (HEADER, b"5")],
        [(HEADER, None)],
        [(HEADER, b"-1")],  # finer than a millisecond is floored
    ]


@pytest.mark.parametrize("border", range(4))
def test_several_axes_are_told_apart_however_the_rows_are_cut(border):
    rows = pa.table({"event_time_a": times(1, 2, 3), "event_time_b": times(4, None, 6)})
    cut_rows = pa.concat_tables([rows.slice(0, border), rows.slice(border)])
    assert headers_of(with_event_times(cut_rows, ["event_time_a", "event_time_b"])) == [
        [(f"{HEADER}_a", b"1"), (f"{HEADER}_b", b"4")],
        [(f"{HEADER}_a", b"2"), (f"{HEADER}_b", None)],
        [(f"{HEADER}_a", b"3"), (f"{HEADER}_b", b"6")],
    ]


def test_a_column_of_the_name_and_another_type_is_the_users_own():
    schema = (
        StructType().add("event_time", StringType()).add("event_time_a", TimestampType()).add("at", TimestampType())
    )
    assert event_time_columns(schema) == ("event_time_a",)


@pytest.fixture
def sink(kafka, topic_of, tmp_path):
    kafka_sink = Sink(kafka.bootstrap, topic_of(2), tmp_path / "ledger", f"q-{uuid.uuid4().hex}")
    kafka_sink.inline, kafka_sink.mode = True, SnapshotMode.BARRIER
    return kafka_sink


def write(
    sink: Sink, batch: int, rows: dict[int, list[int | None]], watermark_ms: int, *, headers: bool = True
) -> None:
    """Publish one batch: event times by output partition, and the watermark that stands behind them.

    headers: whether the event times are written, which versions before 0.3.0 did not.
    """
    sink.number += 1
    who = Task(query=sink.query, run=sink.run, batch=batch, partition=0, attempt=0, number=sink.number)
    placed = [(partition, ms) for partition, of_partition in rows.items() for ms in of_partition]
    table = pa.record_batch({
        "value": [f"{ms}" for _, ms in placed],
        "partition": pa.array([partition for partition, _ in placed], pa.int32()),
        "event_time": times(*[ms for _, ms in placed]),
    })  # fmt: skip
    plan = replace(sink.how.plan, columns=("value", "partition"), event_times=("event_time",) if headers else ())
    watermark_row = channel_row(ControlKind.WATERMARK, ("in", 0), batch, "s", key=0, watermark_ms=watermark_ms)
    barrier = channel_row(ControlKind.BARRIER, ("in", 0), batch, "s", snapshot=batch, channels=1)
    sink.publish_and_settle(batch, replace(stage(plan, who, [table]), control=(watermark_row, barrier)))


def test_the_next_job_sees_the_first_ones_event_times_and_no_row_late(sink, open_stream):
    write(sink, 0, {0: [1_000, 1_500], 1: [1_200, None]}, 900)
    write(sink, 1, {0: [2_000], 1: [950]}, 1_900)
    stream = open_stream(sink.topic, propagate="true")
    batches = list(stream.drain())
    rows = [event for batch in batches for event in events(batch)]
    times_by_value = {event["value"].decode(): event["event_time"] for event in rows}
    assert times_by_value == {"None": None, **{str(ms): at(ms) for ms in (1_000, 1_500, 1_200, 2_000, 950)}}
    assert all(event["timestamp"] > at(10**12) for event in rows)  # the record's own is the time of writing
    watermarks = [row["watermark"] for batch in batches for row in controls(batch) if row["kind"] == "watermark"]
    assert max(watermarks) == at(1_900)
    facts = stream.reader.reportLatestOffset()
    assert (facts["late_events"], facts["bad_event_times"]) == ({}, {sink.topic: {"1": 1}})


def test_event_time_says_otherwise_and_a_record_without_the_header_has_its_timestamp(sink, open_stream):
    write(sink, 0, {0: [1_000]}, 900)
    produce(sink.bootstrap, sink.topic, [Record(0, 77_000, b"foreign")])
    write(sink, 1, {0: [2_000]}, 1_900)
    times_by_name = {}
    for name, options in (("header", {}), ("timestamp", {"eventTime": "timestamp"})):
        batches = open_stream(sink.topic, propagate="true", **options).drain()
        times_by_name[name] = {e["value"].decode(): e["event_time"] for batch in batches for e in events(batch)}
    assert times_by_name["header"] == {"1000": at(1_000), "foreign": at(77_000), "2000": at(2_000)}
    assert times_by_name["timestamp"]["1000"] > at(10**12)


def test_a_reader_without_propagate_can_take_them_too(sink, open_stream):
    write(sink, 0, {0: [1_000]}, 900)
    (batch, *_) = open_stream(sink.topic, eventTime=f"header:{HEADER}").drain()
    assert [event["event_time"] for event in events(batch)] == [at(1_000)]


DAMAGED = (b"", b"soon", b"1 2", b"\xff\xfe", b"9" * 30, b"-", None)


def test_rows_of_earlier_writers_and_damaged_headers_stand_among_the_others_and_none_is_late_or_lost(
    sink, open_stream, caplog, monkeypatch
):
    monkeypatch.setattr(unreadable, "_unwritten", set())
    streams = [open_stream(sink.topic, propagate="true"), open_stream(sink.topic, propagate="true")]
    rows_by_stream = [[], []]

    def drain() -> None:
        """Both read all there is; the second begins anew at every step."""
        streams[1].restart()
        for stream, rows in zip(streams, rows_by_stream, strict=True):
            rows += [(e["value"], e["event_time"], e["watermark"]) for batch in stream.drain() for e in events(batch)]

    write(sink, 0, {0: [100], 1: [200]}, 50, headers=False)  # by an earlier version
    drain()
    sink.restart()
    write(sink, 1, {0: [1_000], 1: [1_200]}, 900)
    produce(sink.bootstrap, sink.topic, [Record(0, 77, b"damaged", headers=((HEADER, one),)) for one in DAMAGED])
    drain()
    write(sink, 2, {0: [2_000], 1: [1_100]}, 1_000, headers=False)  # the earlier version once more
    write(sink, 3, {0: [3_000], 1: [2_500]}, 2_400)
    drain()
    assert sorted(map(str, rows_by_stream[0])) == sorted(map(str, rows_by_stream[1]))
    times_of_values = [(value.decode(), time) for value, time, _ in rows_by_stream[0]]
    assert [time for value, time in times_of_values if value == "damaged"] == [None] * len(DAMAGED)
    for ms in (1_000, 1_200, 3_000, 2_500):
        assert [time for value, time in times_of_values if value == str(ms)] == [at(ms)]
    for ms in (100, 200, 2_000, 1_100):  # the record's own, which is the time of writing
        assert [time > at(10**12) for value, time in times_of_values if value == str(ms)] == [True]
    assert len(times_of_values) == 8 + len(DAMAGED)
    for stream in streams:
        facts = stream.reader.reportLatestOffset()
        assert (facts["late_events"], facts["bad_event_times"]) == ({}, {sink.topic: {"0": len(DAMAGED)}})
        assert stream.watermark_ms() == 2_400
    (warning,) = [record.getMessage() for record in caplog.records if "without the header" in record.getMessage()]
    assert f": records without the header {HEADER} were read, 1 so far; their event time is their timestamp" in warning
    assert "keep the column event_time in the frame" in warning


def test_a_third_job_sees_what_the_second_one_did_whoever_wrote_the_record(sink, open_stream, topic_of, tmp_path):
    write(sink, 0, {0: [1_000, None]}, 900)
    foreign = [Record(1, 77_000, b"foreign"), Record(1, 78_000, b"damaged", headers=((HEADER, b"soon"),))]
    produce(sink.bootstrap, sink.topic, foreign)
    write(sink, 1, {1: [2_000, 950]}, 1_900)
    second = replace(sink, topic=topic_of(2), ledger=tmp_path / "second", query=f"q-{uuid.uuid4().hex}")
    batches = open_stream(sink.topic, propagate="true").drain()
    for number, batch in enumerate(batches):
        second.publish_and_settle(number, second.staged(number, batch, event_times=("event_time",)))
    third = open_stream(second.topic, propagate="true")
    seen_times, then = (
        sorted((e["value"], str(e["event_time"])) for batch in read for e in events(batch))
        for read in (batches, third.drain())
    )
    assert seen_times == then
    assert len(seen_times) == 6
    assert third.watermark_ms() == 1_900
    assert third.reader.reportLatestOffset()["late_events"] == {}
