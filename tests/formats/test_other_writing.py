"""JSON and Protobuf out of columns: what others read is what was written, and one sentence for what cannot be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from keyedwm.formats.json_writing import check_json_schema, json_encoder, json_schema_of
from keyedwm.formats.proto_writing import proto_encoder, proto_schema_of
from keyedwm.formats.writing import Encoder, ValueFaultError, encode
from tests.formats import other_writing as laws
from tests.seeds import times


@pytest.mark.parametrize("check", [laws.check_json, laws.check_protobuf])
def test_what_others_read_is_what_was_written(seed: int, check) -> None:
    for number in range(times(60)):
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


@pytest.mark.parametrize(
    ("kind", "first", "after"),
    [
        (pa.date32(), -719_528, 2_932_897),
        (pa.timestamp("us"), -62_167_219_200_000_000, 253_402_300_800_000_000),
        (pa.timestamp("us", "UTC"), -62_167_219_200_000_000, 253_402_300_800_000_000),
    ],
)
def test_a_year_that_iso_8601_does_not_have_is_named(kind: pa.DataType, first: int, after: int) -> None:
    """Arrow's text of the last timestamp is one of the year 32103."""

    def coded(number: int) -> bytes:
        stored = pa.array([None, number], pa.int32() if kind == pa.date32() else pa.int64())
        return encode(json_encoder(kind), stored.cast(kind), b"")[1].as_py()

    assert (coded(first)[:6], coded(after - 1)[:6]) == (b'"0000-', b'"9999-')
    for number in (first - 1, after, -(2**31), 2**31 - 1) if kind == pa.date32() else (first - 1, after, 2**63 - 1):
        with pytest.raises(ValueFaultError) as fault:
            coded(number)
        assert (fault.value.row, fault.value.reason[:34]) == (1, "has a year outside 0000 to 9999, w")


def test_a_year_that_googles_timestamp_does_not_have_is_named() -> None:
    kind = pa.struct([("a", pa.timestamp("us", "UTC"))])
    for number in (-62_135_596_800_000_001, 253_402_300_800_000_000):
        values = pa.StructArray.from_arrays([pa.array([0, number]).cast(kind[0].type)], fields=[*kind])
        with pytest.raises(ValueFaultError) as fault:
            encode(proto_encoder(kind), values, b"")
        assert (fault.value.row, fault.value.where) == (1, "a")


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
        ('{"properties":{},"required":true}', "s has required as 'true': strings are expected"),
        ('{"properties":{"a":{"type":[{"x":1}]}}}', """s has type as '[{"x": 1}]': strings are expected"""),
        ('{"properties":{"a":{"type":5}}}', "s has type as '5': strings are expected"),
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


@pytest.mark.parametrize(("encoder", "format_name"), [(proto_encoder, "Protobuf"), (json_encoder, "JSON")])
def test_a_null_where_none_may_be_names_the_item(encoder, format_name: str) -> None:
    kind = pa.struct([("a", pa.list_(pa.field("element", pa.int64(), nullable=format_name == "Protobuf")))])
    item_encoder: Encoder = encoder(kind)
    with pytest.raises(ValueFaultError) as fault:
        encode(item_encoder, pa.array([{"a": [1]}, {"a": [2, None]}], kind), b"")
    assert (fault.value.row, fault.value.where) == (1, "a[]")
