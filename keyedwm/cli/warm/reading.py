"""Records to bytes and back: what the tasks of the source and of the Kafka sink compile."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator, Mapping
from uuid import UUID

import numpy as np
import pyarrow as pa

from keyedwm.arrow.hashing import content_sum
from keyedwm.arrow.places import EventTimes
from keyedwm.arrow.rows import Events, RowBuilder, pack
from keyedwm.arrow.schema import HEADERS_TYPE, row_schema
from keyedwm.core.axis import Counts
from keyedwm.core.places import FieldType
from keyedwm.core.schemas import SchemaKind
from keyedwm.formats import writing
from keyedwm.formats.avro_fingerprint import fingerprint
from keyedwm.formats.avro_making import avro_schema_of
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_writing import avro_encoder
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Head
from keyedwm.formats.json_writing import json_encoder
from keyedwm.formats.proto_decoder import ProtoDecoder
from keyedwm.formats.proto_writing import proto_encoder
from keyedwm.kafka.client.values import LIMITS, Codec, TopicPartition
from keyedwm.kafka.records.batches import find_batches, verify
from keyedwm.kafka.records.encode import encode
from keyedwm.kafka.records.partitioner import partition_of
from keyedwm.kafka.records.read import ColumnSelection, Records, read_records
from keyedwm.kafka.records.record_columns import RecordColumns
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.options.stage import StageSpec
from pyspark_wm_source.task.items import EventRun, lay_out, run_stage
from pyspark_wm_source.task.lookups import OneSchema
from pyspark_wm_source.task.scan import needed_columns, policy_run
from pyspark_wm_source.values.ranges import ChannelRange

_ROWS = 8
_CHANNEL = TopicPartition("warm", 0)
_OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "warm", "includeHeaders": "true"}
# Every unit and place that a compiled loop reads.
_EVENT_TIMES: tuple[dict[str, str], ...] = (
    {},
    {"watermarkThrottle": "frame", "frameSize": "1 second", "watermarkLag": "1 second"},
    {"watermarkThrottle": "none", "watermarkPolicy": "lagAndLull", "watermarkLull": "1 second"},
    {"eventTime": "json:$.at"},
    {"eventTime": "json:$.list[0]", "eventTimeUnit": "s"},
    {"eventTime": "json:$.iso", "eventTimeUnit": "iso"},
    {"eventTime": "key:$.at"},
    {"eventTime": "header:at"},
)
_BY = {"name": "json:$.name", "id": "key::string", "number": "json:$.at::bigint"}
_READ = ("topic", "partition", "offset", "json:$.size::double", "json:$.at::bigint")
_STAGE = StageSpec(
    fields=_BY | dict(zip(_READ, _READ, strict=True)), times={"__time": ""}, number=0, buckets=2,
    exchange={
        "kind": "frames", "time": "__time", "order": _READ[:3], "by": list(_BY), "late_rule": "window",
        "window": {"kind": "sliding", "size_ms": 1_000, "slide_ms": 1_000}, "key_watermark": None,
        "aggregates": [["n", "count()"], ["sum", "sum(json:$.size::double)"], ["most", "max(json:$.at::bigint)"],
                       ["last", "last(offset)"]],
    },
)  # fmt: skip
_SAMPLE_HEAD = b"\0\0\0\0\1"
_SHARED = pa.struct([
    pa.field("whole", pa.int64()), pa.field("number", pa.float64()), pa.field("flag", pa.bool_()),
    pa.field("text", pa.string()), pa.field("octets", pa.binary()), pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("list", pa.list_(pa.field("element", pa.string(), nullable=False))),
])  # fmt: skip
_SAMPLE = {"whole": 1, "number": 0.5, "flag": True, "text": "a", "octets": b"b", "at": 0, "list": ["c", "d"]}


_SCHEMA = json.dumps({
    "type": "record", "name": "warm", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "name", "type": "string"},
        {"name": "list", "type": {"type": "array", "items": "double"}},
    ],
})  # fmt: skip
_VERSION = "00000000-0000-0000-0000-000000000001"
_VALUE = b"\0\2n\2" + bytes(9)
_PROTO = 'syntax = "proto3"; message Warm { int64 at = 1; string name = 2; }'
# Values with a schema, and with a head.
_FORMATS: tuple[tuple[dict[str, str], bytes], ...] = (
    (
        {
            "value.format": "avro",
            "value.schema": _SCHEMA,
            "eventTime": "avro:$.at",
            "columns": "avro:$.name, avro:$.list",
        },
        _VALUE,
    ),
    (
        {"value.format": "protobuf", "value.schema": _PROTO, "eventTime": "proto:$.at", "columns": "proto:$.name"},
        b"\x08\1\x12\1n",
    ),
    (
        {"value.format": "avro-single-object", "value.schema": _SCHEMA, "columns": "schema_id"},
        b"\xc3\1" + fingerprint(_SCHEMA).to_bytes(8, "little", signed=True) + _VALUE,
    ),
    (
        {"value.format": "avro-glue", "value.schema": json.dumps({_VERSION: _SCHEMA}), "columns": "schema_guid"},
        b"\3\0" + UUID(_VERSION).bytes + _VALUE,
    ),
    ({"value.format": "json-confluent", "eventTime": "json:$.at", "columns": "json:$.name"}, b'\0\0\0\0\1{"at":1}'),
)


def read_values_once() -> None:
    """Read event times and columns of values that have a schema."""
    for value_options, value in _FORMATS:
        options = SourceOptions.parse(_OPTIONS | value_options)
        task = ChannelRange(channel=_CHANNEL, start=0, end=_ROWS, counts=Counts(), axes={})
        run = policy_run(task, options, {"": 0}, 1_767_225_600_000, {}, columns=options.selection.fields)
        raw = b"".join(
            one.data for one in encode(RecordColumns(np.zeros(_ROWS, np.int64), pa.array([value] * _ROWS, pa.binary())))
        )
        for records in read_records(find_batches(_CHANNEL, raw, 0), (0, _ROWS), ColumnSelection()):
            run.observe(records)
    # The indexes of a message follow the id of its schema; usually a registry has the schema.
    requests = [Request(("name",), FieldType.STRING)]
    framed = pa.array([b"\0\0\0\0\1\0\x08\1\x12\1n"] * _ROWS, pa.binary())
    ProtoDecoder(Head.CONFLUENT, requests, OneSchema(SchemaKind.PROTOBUF, _PROTO)).decode(framed)


def read_records_once() -> None:
    """Decode, find event times, run the policies, build rows or partials."""
    for event_times in _EVENT_TIMES:
        options = SourceOptions.parse(_OPTIONS | event_times)
        schema = row_schema(list(options.axes), headers=True, control=True)
        for _ in pack(lay_out(_items(options, schema), RowBuilder(schema, {"": 0}))):
            pass
    stage_options = SourceOptions.parse({**_OPTIONS, **_STAGE.as_options(), "includeHeaders": "false"})
    if stage_options.stage is not None:
        builder = RowBuilder(stage_options.stage.columns, {"": 0})
        for _ in run_stage(_items(stage_options, stage_options.stage.columns), stage_options.stage, builder, 0):
            pass
    old = struct.pack(">qiIBBqii", 0, 22, 0, 1, 0, 0, -1, -1)  # a message of format 1
    packed = gzip.compress(old)
    wrapped = struct.pack(">qiIBBqii", 0, 22 + len(packed), 0, 1, 1, 0, -1, len(packed)) + packed
    for messages in (old, wrapped):
        for _ in read_records(find_batches(_CHANNEL, messages, 0), (0, 1), ColumnSelection()):
            pass
    long = RecordColumns(
        np.zeros(2, np.int64), pa.array([bytes(LIMITS.first_bytes)] * 2)
    )  # a batch that comes in pieces
    raw = b"".join(batch.data for batch in encode(long, codec=Codec.LZ4, batch_bytes=4 * LIMITS.first_bytes))
    for _ in read_records(find_batches(_CHANNEL, raw, 0), (0, 2), ColumnSelection()):
        pass


def write_records_once() -> None:
    """Choose partitions, encode, and hash rows as the sinks do."""
    columns = _columns()
    partition_of(columns.key, _ROWS, 3, 0)
    for batch in encode(columns, codec=Codec.LZ4):
        find_batches(_CHANNEL, batch.data, 0)
    content_sum(
        pa.table({
            "key": columns.key, "value": columns.value, "headers": columns.headers,
            "at": pa.array(columns.timestamp_ms).cast(pa.timestamp("ms")),
        })
    )  # fmt: skip


def _columns() -> RecordColumns:
    times = 1_767_225_600_000 + 700 * np.arange(_ROWS, dtype=np.int64)
    values = [
        json.dumps({
            "at": int(ms), "list": [ms / 1000], "iso": "2026-01-01T00:00:00Z", "name": f"n\n\u00e9{row}",
            "size": row / 3, "deep": {"of": [1, "x"]},
        }).replace("T00:", "T00\\u003a").encode()
        for row, ms in enumerate(times)
    ]  # fmt: skip
    keys = [json.dumps({"at": int(ms)}).encode() for ms in times]
    # The last one has no event time there.
    headers = [[("at" if row < _ROWS - 1 else "other", str(ms).encode())] for row, ms in enumerate(times)]
    return RecordColumns(
        times, pa.array(values, pa.binary()), pa.array(keys, pa.binary()), pa.array(headers, HEADERS_TYPE)
    )


def _items(options: SourceOptions, schema: pa.Schema) -> Iterator[EventRun]:
    """The items that a task yields for one range."""
    for codec in (Codec.NONE, Codec.LZ4):
        task = ChannelRange(channel=_CHANNEL, start=0, end=_ROWS, counts=Counts(), axes={})
        run = policy_run(task, options, {"": 0}, 1_767_225_600_000, {})
        raw = b"".join(batch.data for batch in encode(_columns(), codec=codec))
        batches = verify(find_batches(_CHANNEL, raw, 0), 0)
        for records in read_records(batches, (0, _ROWS), needed_columns(set(schema.names), options)):
            yield EventRun(events=_events(records, run.observe(records).event_ms))
        run.end()


def _events(records: Records, event_ms: Mapping[str, EventTimes]) -> Events:
    return Events(
        topic=_CHANNEL.topic, partition=_CHANNEL.partition, count=records.count, key=records.key, value=records.value,
        headers=records.headers, offset=records.offset, timestamp_ms=records.timestamp_ms,
        timestamp_type=records.timestamp_type, event_ms=event_ms,
    )  # fmt: skip


def write_values_once() -> None:
    """Write a row and a null in Avro, JSON and Protobuf, with columns of every kind."""
    kind = pa.struct([*_SHARED, pa.field("amount", pa.decimal128(9, 2))])
    rows = pa.array([{**_SAMPLE, "amount": 1}, None], kind)
    writing.encode(avro_encoder(parse_avro(avro_schema_of(kind, "warm")), kind, "the schema"), rows, _SAMPLE_HEAD)
    writing.encode(json_encoder(kind), rows, _SAMPLE_HEAD)
    writing.encode(proto_encoder(_SHARED), pa.array([_SAMPLE, None], _SHARED), _SAMPLE_HEAD)
