"""JSON and Protobuf out of columns: what others read is what was written, and one sentence for what cannot be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from keyedwm.formats.json_writing import check_json_schema, json_encoder, json_schema_of
from keyedwm.formats.proto_writing import proto_encoder, proto_schema_of
from keyedwm.formats.writing import Encoder, ValueFaultError, encode
from tests.formats import other_writing as laws


@pytest.mark.parametrize("check", [laws.check_json, laws.check_protobuf])
def test_what_others_read_is_what_was_written(seed: int, check) -> None:
    for number in range(150):
        check(seed * 1_000 + number)


@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_a_number_that_json_does_not_have_is_named_with_its_row(number: float) -> None:
    kind = pa.struct([("a", pa.float64())])
    with pytest.raises(ValueFaultError) as fault:
        encode(json_encoder(kind), pa.array([{"a": None}, {"a": number}], kind), b"")
    assert (fault.value.row, fault.value.where, fault.value.reason) == (
        1,
        "a",
        f"is {number}, which JSON does not have",
    )


def test_every_character_of_a_text_is_one_of_json() -> None:
    text = "".join(map(chr, [*range(130), 0x20AC, 0x1F600]))
    (coded,) = encode(json_encoder(pa.string()), pa.array([text]), b"").to_pylist()
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
    expected = "".join(short.get(ord(c), c if ord(c) > 31 else f"\\u{ord(c):04x}") for c in text)
    assert coded.decode() == f'"{expected}"'


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "s is no JSON, so it is no JSON Schema"),
        ('{"properties":{},"required":["b"]}', "s requires the property b, which the rows do not have: add the column"),
        ('{"properties":{"A":{}},"additionalProperties":false}', "column a is no property of s, did you mean A?"),
        (
            '{"properties":{"a":{"type":"string"}}}',
            "column a has type int, which is integer in JSON, and s has the type",
        ),
        ('{"properties":{"a":{"type":["null","number"]}}}', None),
        ('{"properties":{}}', None),
        ("true", None),
    ],
)
def test_a_json_schema_that_is_given_is_compared_with_the_columns(schema: str, sentence: str | None) -> None:
    kind = pa.struct([("a", pa.int32())])
    if sentence is None:
        check_json_schema(schema, kind, "s")
        return
    with pytest.raises(InputError) as error:
        check_json_schema(schema, kind, "s")
    assert error.value.message.startswith(sentence)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (pa.decimal128(9, 2), "column a has type decimal(9,2), which Protobuf does not have: cast it to string"),
        (pa.date32(), "column a has type date, which Protobuf does not have: cast it to string"),
        (pa.timestamp("us"), "column a has type timestamp_ntz, which Protobuf does not have: cast it to timestamp"),
        (
            pa.list_(pa.list_(pa.int32())),
            "column a has type array<int>, which Protobuf does not have: cast it to a struct",
        ),
        (pa.map_(pa.float64(), pa.int32()), "column a has type map<double,int>, which Protobuf does not have"),
    ],
)
def test_a_column_that_protobuf_does_not_have_is_named_with_a_cast(kind: pa.DataType, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        proto_schema_of(pa.struct([("a", kind)]), "Order")
    assert error.value.message.startswith(sentence)


def test_a_column_that_json_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match=r"column a has type duration\[us\], which JSON does not have: cast it to str"):
        json_schema_of(pa.struct([("a", pa.duration("us"))]), "Order")


def test_messages_of_one_name_with_a_field_are_told_apart() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    kind = pa.struct([("order", inner), ("Order", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    lines = [
        'syntax = "proto3";', "package com.shop;", 'import "google/protobuf/timestamp.proto";', "message Orders {",
        "  message Order_ {", "    int64 x = 1;", "  }", "  Order_ order = 1;", "  optional string Order = 2;",
        "  google.protobuf.Timestamp at = 3;", "}",
    ]  # fmt: skip
    assert proto_schema_of(kind, "com.shop.Orders").splitlines() == lines


@pytest.mark.parametrize(("encoder", "what"), [(proto_encoder, "Protobuf"), (json_encoder, "JSON")])
def test_a_null_where_none_may_be_names_the_item(encoder, what: str) -> None:
    kind = pa.struct([("a", pa.list_(pa.field("element", pa.int64(), nullable=what == "Protobuf")))])
    made: Encoder = encoder(kind)
    with pytest.raises(ValueFaultError) as fault:
        encode(made, pa.array([{"a": [1]}, {"a": [2, None]}], kind), b"")
    assert (fault.value.row, fault.value.where) == (1, "a[]")
