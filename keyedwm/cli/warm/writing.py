"""A round of `keyedwm warm`: values with a schema are written once in each format, with columns of every kind."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.formats.avro_making import avro_schema_of
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_writing import avro_encoder
from keyedwm.formats.json_writing import json_encoder
from keyedwm.formats.proto_writing import proto_encoder
from keyedwm.formats.writing import encode

_HEAD = b"\0\0\0\0\1"
_SHARED = pa.struct([
    pa.field("whole", pa.int64()), pa.field("number", pa.float64()), pa.field("flag", pa.bool_()),
    pa.field("text", pa.string()), pa.field("octets", pa.binary()), pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("list", pa.list_(pa.field("element", pa.string(), nullable=False))),
])  # fmt: skip
_VALUE = {"whole": 1, "number": 0.5, "flag": True, "text": "a", "octets": b"b", "at": 0, "list": ["c", "d"]}


def write_values_once() -> None:
    """Write a row and a null in Avro, JSON and Protobuf."""
    kind = pa.struct([*_SHARED, pa.field("amount", pa.decimal128(9, 2))])
    rows = pa.array([{**_VALUE, "amount": 1}, None], kind)
    encode(avro_encoder(parse_avro(avro_schema_of(kind, "warm")), kind, "the schema"), rows, _HEAD)
    encode(json_encoder(kind), rows, _HEAD)
    encode(proto_encoder(_SHARED), pa.array([_VALUE, None], _SHARED), _HEAD)
