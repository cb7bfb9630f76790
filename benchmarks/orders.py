"""Orders of twelve fields, the same in Avro, Protobuf and JSON: what the comparisons of formats read."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.proto_schema import link

NOW_MS = 1_767_225_600_000
SCHEMA = {"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "string"}, {"name": "shop", "type": "string"}, {"name": "kind", "type": "string"},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "customer", "type": "long"},
    {"name": "amount", "type": "double"}, {"name": "net", "type": "double"}, {"name": "currency", "type": "string"},
    {"name": "items", "type": "int"}, {"name": "note", "type": ["null", "string"]},
    {"name": "paid", "type": "boolean"}, {"name": "tags", "type": {"type": "array", "items": "string"}},
]}  # fmt: skip
PROTO_TEXT = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message order {
  string id = 1; string shop = 2; string kind = 3; google.protobuf.Timestamp ts = 4; int64 customer = 5;
  double amount = 6; double net = 7; string currency = 8; int32 items = 9; optional string note = 10;
  bool paid = 11; repeated string tags = 12;
}
"""
FIELDS = ("shop", "kind", "customer::bigint", "amount::double")


def orders(count: int) -> Iterator[dict[str, Any]]:
    """Orders one ms apart; amounts are quarters, whose sums are exact."""
    chance = random.Random(7)
    for row in range(count):
        yield {
            "id": f"{chance.getrandbits(64):016x}", "shop": f"shop-{row % 40}", "kind": ("paid", "open")[row % 3 == 0],
            "ts": NOW_MS + row, "customer": chance.randrange(10**6), "amount": chance.randrange(40_000) / 4,
            "net": 1.5, "currency": "EUR", "items": row % 7, "note": "n" * (row % 30) or None, "paid": row % 2 == 0,
            "tags": ["a", "bc"][: row % 3],
        }  # fmt: skip


def framed(schema_id: int) -> dict[str, bytes]:
    """The heads of Confluent's serializers: of Protobuf with the index of the first message."""
    head = b"\0" + schema_id.to_bytes(4, "big")
    return {"avro": head, "proto": head + b"\0", "json": b""}


def values(count: int, heads: Mapping[str, bytes] = MappingProxyType({})) -> dict[str, pa.Array]:
    """The same orders in each format. heads: what stands before the values of a format."""
    by_format: dict[str, list[bytes]] = {"avro": [], "proto": [], "json": []}
    parsed = fastavro.parse_schema(SCHEMA)
    message = GetMessageClass(link(RegisteredSchema(0, SchemaKind.PROTOBUF, PROTO_TEXT)).message_types_by_name["order"])
    head = {name: heads.get(name, b"") for name in by_format}
    for order in orders(count):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, order)
        by_format["avro"].append(head["avro"] + buffer.getvalue())
        seconds, ms = divmod(order["ts"], 1_000)
        of_proto = order | {"ts": {"seconds": seconds, "nanos": ms * 1_000_000}}
        by_format["proto"].append(head["proto"] + message(**of_proto).SerializeToString())
        by_format["json"].append(head["json"] + json.dumps(order).encode())
    return {name: pa.array(some, pa.binary()) for name, some in by_format.items()}
