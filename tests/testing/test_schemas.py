"""Values of schemas that tests of pipelines make up: bytes as serializers write them, heads, and what is rejected."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import uuid
from decimal import Decimal

import fastavro
import pytest

from keyedwm.core.errors import InputError, OptionError
from keyedwm.testing.pipeline import Record, Schema, run
from keyedwm.testing.schemas import Schemas

EVERY_TYPE = {
    "type": "record", "name": "everything", "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "ratio", "type": "float"},
        {"name": "exact", "type": ["null", "double"]},
        {"name": "text", "type": ["string", "null"]},
        {"name": "octets", "type": "bytes"},
        {"name": "colour", "type": {"type": "enum", "name": "colour", "symbols": ["red", "green"]}},
        {"name": "four", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [
            {"name": "n", "type": "long"}, {"name": "note", "type": "string", "default": "none"},
        ]}},
    ],
}  # fmt: skip
VALUE = {
    "flag": True, "small": -7, "large": 2**62, "ratio": 0.5, "exact": 1.25, "text": None, "octets": b"\0\xff",
    "colour": "green", "four": b"abcd", "day": dt.date(2026, 1, 2), "clock": dt.time(3, 4, 5, 6),
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, dt.timezone.utc), "price": Decimal("-12.30"),
    "id": uuid.UUID(int=5), "tags": ["a", "b"], "counts": {"x": -1}, "inner": {"n": 9},
}  # fmt: skip
NUMBER = Schema(json.dumps({"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}))
PROTO = Schema('syntax = "proto3"; message A { int64 n = 1; } message B { string text = 1; }', "PROTOBUF")


def test_a_value_of_every_type_is_read_back_by_fastavro():
    body = Schema(json.dumps(EVERY_TYPE)).of(VALUE).body
    read = fastavro.schemaless_reader(io.BytesIO(body), EVERY_TYPE, None)
    assert read == VALUE | {"inner": {"n": 9, "note": "none"}}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, r"\$: the field 'n' of record n is missing, and has no default"),
        ({"n": 1, "m": 2}, r"\$: record n has no field 'm': it has n"),
        ({"n": "1"}, r"""\$\.n: "?'1'"? does not fit the type long"""),
        ({"n": 2**63}, r"\$\.n: .* does not fit the type long"),
    ],
)
def test_a_value_that_does_not_fit_its_schema_is_one_sentence_with_its_place(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        NUMBER.of(fields)


def test_fields_and_messages_that_protobuf_does_not_have_are_one_sentence():
    with pytest.raises(InputError, match="the fields do not fit the message A"):
        PROTO.of({"m": 1})
    with pytest.raises(InputError, match="the schema has no message 'C': it has A, B"):
        PROTO.of({}, "C")


@pytest.mark.parametrize(
    ("name", "schema", "fields", "head"),
    [
        ("avro", NUMBER, {"n": 1}, b""),
        ("avro-confluent", NUMBER, {"n": 1}, b"\0" + struct.pack(">I", 2)),
        ("avro-apicurio", NUMBER, {"n": 1}, b"\0" + struct.pack(">q", 2)),
        ("json-confluent", Schema("{}", "JSON"), {"n": 1}, b"\0" + struct.pack(">I", 2)),
        ("protobuf-confluent", PROTO, {"n": 1}, b"\0" + struct.pack(">I", 2) + b"\0"),
    ],
)
def test_a_value_has_the_head_of_its_format(name, schema, fields, head):
    value = schema.of(fields)
    schemas = Schemas([Schema('"string"')], {"Value.Format": name})
    assert schemas.bytes_of(value, "value.format") == head + value.body


def test_a_second_message_has_its_index_in_the_head():
    schemas = Schemas([], {"value.format": "protobuf-confluent"})
    assert schemas.bytes_of(PROTO.of({"text": "x"}, "B"), "value.format") == b"\0\0\0\0\1\2\2" + b"\x0a\1x"


@pytest.mark.parametrize("options", [{}, {"value.format": "json-confluent"}, {"value.format": "csv"}])
def test_a_value_of_a_schema_needs_a_format_of_its_kind(options):
    with pytest.raises(OptionError, match=r"a value of a schema of the kind AVRO, and option value\.format is"):
        run(None, lambda rows: rows, [[Record(0, value=NUMBER.of({"n": 1}))]], options=options)
