"""Values in Protobuf through the source's reading tasks: event times, columns, filters, messages, and bad values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.proto_schema import link
from tests.formats.test_proto_values import framed
from tests.source.test_avro_values import SECOND_MS, ms_of, parse, read
from tests.support.fake_registry import FakeRegistry, fake_registry

ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  optional string shop = 2;
  google.protobuf.Timestamp at = 3;
  Price price = 4;
  enum Kind { OPEN = 0; PAID = 1; }
  Kind kind = 5;
}
message Price { double amount = 1; }
message Refund { sint64 id = 9; google.protobuf.Timestamp at = 3; }
"""
COLUMNS = "proto:$.id::bigint, proto:$.shop, proto:$.price.amount::double, proto:$.kind, schema_id, event_time"
MESSAGES = link(RegisteredSchema(1, SchemaKind.PROTOBUF, ORDERS)).message_types_by_name
FIRST, THIRD = b"\x00", b"\x02\x04"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        running.add("orders-value", ORDERS, "PROTOBUF")
        yield running


def message(name: str, ms: int = SECOND_MS, **fields: object) -> bytes:
    content: Message = GetMessageClass(MESSAGES[name])(**fields)
    content.at.FromMilliseconds(ms)
    return content.SerializeToString()


def test_event_time_columns_and_filter_come_out_of_protobuf(registry: FakeRegistry) -> None:
    options = parse(
        registry, value_format="protobuf-confluent", eventTime="proto:$.at", columns=COLUMNS,
        where="proto:$.kind = 'PAID' OR proto:$.price.amount::double IS NULL",
    )  # fmt: skip
    values = [
        framed(1, FIRST, message("Order", id=1, kind=1, price={"amount": 2.5})),
        framed(1, FIRST, message("Order", id=2, shop="Ulm", ms=SECOND_MS + 7)),
        framed(1, FIRST, message("Order", id=3, price={})),
        framed(1, THIRD, message("Refund", id=-4, ms=SECOND_MS + 9)),
        None,
    ]
    rows = read(options, values)
    names = ("id", "shop", "amount", "kind", "schema_id")
    assert [(*(row[name] for name in names), ms_of(row)) for row in rows] == [
        (1, None, 2.5, "PAID", 1, SECOND_MS),
        (2, "Ulm", None, "OPEN", 1, SECOND_MS + 7),
        (-4, None, None, None, 1, SECOND_MS + 9),
        (None, None, None, None, None, None),
    ]
    assert registry.requests == ["GET /schemas/ids/1"]


@pytest.mark.parametrize("is_file", [False, True])
def test_values_without_a_head_are_read_by_the_schema_that_is_given(tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "orders.proto").write_text(ORDERS)
    schema = f"file:{tmp_path / 'orders.proto'}" if is_file else ORDERS
    options = parse(None, value_format="protobuf", value_schema=schema, eventTime="proto:$.at", columns="proto:$.shop")
    assert [row["shop"] for row in read(options, [message("Order", shop="Ulm")])] == ["Ulm"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (framed(1, b"", b""), "the value has no head of confluent"),
        (framed(1, FIRST, b"\x08"), r"the value is cut off, or a length or a number in it is damaged \(schema 1\)"),
        (framed(7, FIRST, b""), "has no schema with the id 7"),
        (framed(1, b"\x02\x0a", b""), r"schema 1 has no message with the indexes that"),
    ],
)
def test_a_bad_value_fails_is_null_or_comes_back_with_its_reason(
    registry: FakeRegistry, bad: bytes, reason: str
) -> None:
    settings = {"value_format": "protobuf-confluent", "eventTime": "proto:$.at", "columns": "proto:$.shop, event_time"}
    values = [framed(1, FIRST, message("Order", shop="Ulm")), bad]
    with pytest.raises(InputError, match=rf"orders-3: the value .* at offset 101 cannot be read: .*{reason}"):
        read(parse(registry, **settings), values)
    rows = read(parse(registry, **settings, onBadValue="null"), values)
    assert [(row["shop"], ms_of(row)) for row in rows] == [("Ulm", SECOND_MS), (None, None)]
    settings["columns"] += ", rejected"
    rejected = read(parse(registry, **settings, onBadValue="reject"), values)[1]["rejected"]
    assert rejected["value"] == bad


def test_a_field_that_cannot_be_read_names_schema_message_and_both_types(registry: FakeRegistry) -> None:
    options = parse(registry, value_format="protobuf-confluent", columns="proto:$.shop::bigint, proto:$.price")
    with pytest.raises(InputError, match=r"schema 1 has \$\.shop of shop\.Order as string, which cannot .* as bigint"):
        read(options, [framed(1, FIRST, message("Order"))])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"value_format": "protobuf-confluent", "columns": "avro:$.a"}, "are Protobuf: write proto:PATH"),
        ({"value_format": "protobuf-confluent", "columns": "json:$.a"}, "are Protobuf: write proto:PATH"),
        ({"value_format": "protobuf-confluent", "eventTime": "avro:$.a"}, "are Protobuf: write proto:PATH"),
        ({"value_format": "avro-confluent", "columns": "proto:$.a"}, "are Avro: write avro:PATH"),
        ({"value_format": "protobuf-confluent", "value_schema": ORDERS}, r"value\.schema has no effect with"),
    ],
)
def test_an_option_that_the_format_has_no_use_for_is_refused(
    registry: FakeRegistry, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse(registry, **options)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("message M {", r"option value\.schema: the text is no \.proto file that can be read: the end is not expected"),
        ('syntax = "proto3";', r"option value\.schema: the schema of Protobuf has no message"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_at_the_start(schema: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse(None, value_format="protobuf", value_schema=schema)
