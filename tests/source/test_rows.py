"""What stands in a batch: the records as they lie in Kafka, and the control rows around them, in order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.values import Codec
from pyspark_wm_source.driver import planner
from tests.tools import EPOCH, NO_TIMESTAMP, Record, at, controls, events, produce

OWN_COLUMNS = ("event_time", "watermark", "control")


def some_records(rng: random.Random, partitions: int, count: int) -> list[Record]:
    """Records of every shape: null and empty keys and values, no headers, doubled ones, null ones, no timestamp."""
    blobs = [None, b"", b"\x00", b"\xff" * 300, "žluťoučký".encode()]
    names = ["", "h", "h", "ключ"]
    return [
        Record(
            partition=rng.randrange(partitions),
            timestamp_ms=rng.choice([NO_TIMESTAMP, 0, rng.randrange(17 * 10**11)]),
            key=rng.choice([*blobs, rng.randbytes(8)]),
            value=rng.choice([*blobs, rng.randbytes(rng.randrange(2_000))]),
            headers=tuple((rng.choice(names), rng.choice(blobs)) for _ in range(rng.choice([0, 0, 1, 3]))),
        )
        for _ in range(count)
    ]


def as_row(topic: str, record: Record, offset: int) -> dict:
    """What Spark's own source gives for a record, with headers."""
    return {
        "key": record.key, "value": record.value, "topic": topic, "partition": record.partition, "offset": offset,
        "timestamp": at(record.timestamp_ms), "timestampType": 0,
        "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
    }  # fmt: skip


@pytest.mark.parametrize("codec", list(Codec))
def test_event_rows_are_the_records_byte_for_byte(kafka, topic_of, open_stream, seed, codec):
    rng = random.Random(f"{seed} rows {codec}")
    topic = topic_of(3)
    sent_records: list[Record] = []
    for _ in range(3):
        produced = some_records(rng, 3, 60)
        produce(kafka.bootstrap, topic, produced, codec)
        sent_records += produced
    stream = open_stream(topic, includeHeaders="true", maxOffsetsPerTrigger="50")
    batches = stream.drain()
    event_rows = [row for batch in batches for row in events(batch)]
    kafka_columns = [
        [{k: v for k, v in row.items() if k not in OWN_COLUMNS} for row in event_rows if row["partition"] == p]
        for p in range(3)
    ]
    assert kafka_columns == [
        [as_row(topic, r, offset) for offset, r in enumerate(r for r in sent_records if r.partition == p)]
        for p in range(3)
    ]
    assert all(r["event_time"] == (None if r["timestamp"] < EPOCH else r["timestamp"]) for r in event_rows)
    assert len(batches) > 3


def test_log_append_time_is_the_timestamp_and_says_so(kafka, topic_of, open_stream):
    topic = topic_of(message_timestamp_type="LogAppendTime")
    produce(kafka.bootstrap, topic, [Record(0, 5, b"v")])
    (row,) = events(open_stream(topic).batch())
    assert row["timestampType"] == 1
    assert row["timestamp"] > at(10**12)
    assert row["event_time"] == row["timestamp"]


def test_the_schema_is_sparks_kafka_schema_and_then_ours(topic_of, open_stream):
    stream = open_stream(topic_of(), includeHeaders="true")
    assert from_arrow_schema(stream.schema).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>,event_time:timestamp,watermark:timestamp,"
        "control:struct<kind:string,key:tinyint,watermark:timestamp,channel:string,snapshot:bigint,channels:int,"
        "source:string>>"
    )


@pytest.mark.parametrize(
    "options", [{}, {"includeHeaders": "true"}, {"emitControl": "false"}, {"columns": "value,control"}]
)
def test_every_batch_has_exactly_the_schema_that_spark_expects(kafka, topic_of, open_stream, options):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 5, b"v", headers=(("h", b"1"),)), Record(1, 6)])
    stream = open_stream(topic, options)
    expected = to_arrow_schema(from_arrow_schema(stream.schema), timezone="UTC")
    while stream.plan():
        for split in stream.reader.partitions(stream.log[-2], stream.log[-1]):
            assert all(batch.schema.equals(expected) for batch in stream.reader.read(split))


def test_a_channels_rows_stand_in_order_and_the_barrier_is_last(kafka, topic_of, open_stream):
    #   t-0: events at 10, 30, 20, then watermark 25, then barrier · t-1: event at 15, watermark 10, barrier
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 10), Record(0, 30), Record(0, 20), Record(1, 15)])
    stream = open_stream(topic, watermarkLag="5 milliseconds")
    first = stream.batch()
    assert shape(first) == [
        ("event", f"{topic}-0", 0), ("event", f"{topic}-0", 1), ("event", f"{topic}-0", 2),
        ("watermark", f"{topic}-0", 3), ("barrier", f"{topic}-0", 3),
        ("event", f"{topic}-1", 0), ("watermark", f"{topic}-1", 1), ("barrier", f"{topic}-1", 1),
    ]  # fmt: skip
    nothing = dict.fromkeys(("key", "watermark", "channel", "snapshot", "channels"))
    assert controls(first) == [
        nothing | {"kind": "watermark", "key": 0, "watermark": at(25), "channel": f"{topic}-0", "offset": 3},
        nothing | {"kind": "barrier", "channel": f"{topic}-0", "snapshot": 0, "channels": 2, "offset": 3},
        nothing | {"kind": "watermark", "key": 0, "watermark": at(10), "channel": f"{topic}-1", "offset": 1},
        nothing | {"kind": "barrier", "channel": f"{topic}-1", "snapshot": 0, "channels": 2, "offset": 1},
    ]
    # Nothing was left to read, but the watermark moved: one control-only batch says so.
    second = stream.batch()
    assert shape(second) == [
        ("watermark", None, None), ("barrier", f"{topic}-0", 3), ("barrier", f"{topic}-1", 1)
    ]  # fmt: skip
    assert controls(second)[0]["watermark"] == at(10)
    assert [row["watermark"] for row in second.to_pylist()] == [at(10)] * 3
    assert stream.batch() is None


def test_every_control_row_carries_the_id_of_its_source_also_after_a_restart(kafka, topic_of, open_stream):
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 10), Record(0, 30)])
    streams = [open_stream(topic, watermarkThrottle="none"), open_stream(topic)]
    source_ids = []
    for stream in streams:
        rows = stream.batch().to_pylist()
        stream.restart()
        rows += stream.batch().to_pylist()
        (source,) = {row["control"]["source"] for row in rows if row["control"]}
        assert {row["control"]["kind"] for row in rows if row["control"]} >= {"watermark", "barrier"}
        source_ids.append(source)
    assert None not in source_ids
    assert source_ids[0] != source_ids[1]


def shape(batch: pa.Table) -> list[tuple]:
    """(what, channel, offset) of every row."""
    rows = []
    for row in batch.to_pylist():
        control = row["control"]
        channel = control["channel"] if control else f"{row['topic']}-{row['partition']}"
        rows.append((control["kind"] if control else "event", channel, row["offset"]))
    return rows


def test_control_rows_carry_topic_partition_and_nothing_of_a_record(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 10, b"v", b"k")])
    control_rows = [row for batch in open_stream(topic).drain() for row in batch.to_pylist() if row["control"]]
    for row in control_rows:
        own = row["control"]["channel"] is not None
        assert (row["topic"], row["partition"]) == ((topic, 0) if own else (None, None))
        assert [row[c] for c in ("key", "value", "timestamp", "timestampType", "event_time")] == [None] * 5
    assert {row["control"]["channel"] for row in control_rows} == {None, f"{topic}-0"}


def test_snapshots_count_every_batch_by_one(kafka, topic_of, open_stream):
    topic = topic_of(3)
    stream = open_stream(topic, maxOffsetsPerTrigger="4")
    batches = []
    for round_ in range(3):
        produce(kafka.bootstrap, topic, [Record(p, 10 * round_ + p) for p in range(3) for _ in range(3)])
        batches += stream.drain()
        stream.restart()
    for number, batch in enumerate(batches):
        barriers = [control for control in controls(batch) if control["kind"] == "barrier"]
        assert [(b["snapshot"], b["channels"]) for b in barriers] == [(number, 3)] * 3
        assert sorted(b["channel"] for b in barriers) == [f"{topic}-{p}" for p in range(3)]
    assert len(batches) > 6


def test_an_idle_channel_says_so_and_says_when_it_wakes(kafka, topic_of, open_stream, monkeypatch):
    clock_ms = [1_700_000_000_000]
    monkeypatch.setattr(planner.Planner, "_now_ms", lambda _planner: clock_ms[0])
    topic = topic_of(2)
    produce(kafka.bootstrap, topic, [Record(0, 100), Record(1, 10)])
    stream = open_stream(topic, idleTimeout="1500 milliseconds")
    control_rows = [row for batch in stream.drain() for row in controls(batch)]
    assert stream.watermark_ms() == 10
    clock_ms[0] += 1_500
    control_rows += [row for batch in stream.drain() for row in controls(batch)]
    assert next(t for t in control_rows if (t["kind"], t["channel"]) == ("idle", f"{topic}-1"))["offset"] == 1
    assert stream.watermark_ms() == 100
    assert [t["kind"] for t in control_rows if t["channel"] is None] == ["watermark", "watermark", "idle"]
    produce(kafka.bootstrap, topic, [Record(1, 40), Record(1, 50)])
    woken = stream.batch()
    assert shape(woken) == [
        ("barrier", f"{topic}-0", 1),
        ("active", f"{topic}-1", 1), ("event", f"{topic}-1", 1), ("event", f"{topic}-1", 2),
        ("watermark", f"{topic}-1", 3), ("barrier", f"{topic}-1", 3),
    ]  # fmt: skip
    assert stream.watermark_ms() == 100


def test_without_control_rows_the_watermark_column_stays(kafka, topic_of, open_stream):
    topic = topic_of()
    stream = open_stream(topic, emitControl="false")
    produce(kafka.bootstrap, topic, [Record(0, 100)])
    stream.drain()
    produce(kafka.bootstrap, topic, [Record(0, 200)])
    (row,) = stream.batch().to_pylist()
    assert "control" not in row
    assert (row["event_time"], row["watermark"]) == (at(200), at(100))


def test_only_the_wanted_columns_come_in_the_fixed_order(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 100, b"v", b"k")])
    stream = open_stream(topic, columns="event_time, VALUE, offset")
    batch = stream.batch()
    assert batch.to_pylist() == [{"value": b"v", "offset": 0, "event_time": at(100)}]
    assert batch.column_names == ["value", "offset", "event_time"]


def test_a_record_without_a_timestamp_is_kept_with_a_null_event_time_and_counted(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, NO_TIMESTAMP, b"1"), Record(0, 50, b"2"), Record(0, NO_TIMESTAMP, b"3")])
    stream = open_stream(topic)
    rows = [row for batch in stream.drain() for row in events(batch)]
    assert [(row["value"], row["event_time"]) for row in rows] == [(b"1", None), (b"2", at(50)), (b"3", None)]
    assert stream.offset["channels"][topic]["0"][3] == 2
    assert stream.watermark_ms() == 50


def test_a_record_without_a_timestamp_can_fail_the_batch_and_is_named(kafka, topic_of, open_stream):
    topic = topic_of()
    produce(kafka.bootstrap, topic, [Record(0, 50), Record(0, NO_TIMESTAMP)])
    with pytest.raises(InputError, match=rf"{topic}-0: the record at offset 1 has no usable event time"):
        open_stream(topic, onBadEventTime="fail").batch()


def test_a_topic_without_records_still_delivers_its_barriers(topic_of, open_stream):
    topic = topic_of(2)
    stream = open_stream(topic)
    assert shape(stream.batch()) == [("barrier", f"{topic}-0", 0), ("barrier", f"{topic}-1", 0)]
    assert stream.batch() is None
