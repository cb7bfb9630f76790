"""Avro out of columns: the bytes of fastavro, and one sentence for what a schema does not take."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError
from keyedwm.formats.avro_making import avro_schema_of
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.avro_writing import avro_encoder
from keyedwm.formats.writing import ValueFaultError, encode
from tests.formats import avro_writing as laws
from tests.seeds import times


@pytest.mark.parametrize("part", range(3))
def test_bytes_are_those_that_fastavro_writes(seed: int, part: int) -> None:
    for number in range(times(40)):
        laws.check(seed * 1_000 + part * times(40) + number)


def test_many_rows_are_written_in_slices_and_a_fault_names_the_row_of_all() -> None:
    kind = pa.struct([("a", pa.list_(pa.int64()))])
    values = [{"a": [n] * (n % 3)} for n in range(11)]
    encoder = avro_encoder(parse_avro(avro_schema_of(kind, "r")), kind, "s")
    whole = encode(encoder, pa.array(values, kind), b"h", 4).to_pylist()
    assert whole == [encode(encoder, pa.array([one], kind), b"h")[0].as_py() for one in values]
    required = '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"array","items":"long"}}]}'
    values[9] = {"a": [1, None]}
    with pytest.raises(ValueFaultError) as fault:
        encode(avro_encoder(parse_avro(required), kind, "s"), pa.array(values, kind), b"h", 4)
    assert (fault.value.row, fault.value.where) == (9, "a[]")


def record(*fields: tuple) -> dict:
    return {
        "type": "record",
        "name": "r",
        "fields": [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields],
    }


def problem(kind: pa.DataType, *fields: tuple) -> str:
    with pytest.raises(InputError) as error:
        avro_encoder(parse_avro(json.dumps(record(*fields))), kind, "value.schema")
    return error.value.message


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("kind", "type_", "where", "both", "fix"),
    [
        (pa.string(), ["null", DECIMAL], "a", ("string", "decimal(9, 2)"), "cast it to decimal(9,2)"),
        (pa.int64(), "int", "a", ("bigint", "int"), "cast it to int"),
        (pa.decimal128(12, 2), DECIMAL, "a", ("decimal(12,2)", "decimal(9, 2)"), "cast it to decimal(9,2)"),
        (pa.string(), {**DECIMAL, "precision": 40}, "a", ("string", "decimal(40, 2)"), "change the schema, or the"),
        (pa.decimal128(9, 2), ["null", {**DECIMAL, "type": "fixed", "name": "f", "size": 2}], "a",
         ("decimal(9,2)", "decimal(9, 2)"), "change the schema, or the column"),
        (pa.timestamp("us"), MILLIS, "a", ("timestamp_ntz", "long (timestamp-millis)"), "cast it to timestamp"),
        (pa.int64(), MILLIS, "a", ("bigint", "long (timestamp-millis)"), "cast it to timestamp"),
        (pa.string(), ["null", "int", "double"], "a", ("string", "null or int or double"), "change the schema, or the"),
        (pa.list_(pa.string()), {"type": "array", "items": "double"}, "a[]", ("string", "double"), "cast it to double"),
        (pa.map_(pa.int32(), pa.string()), {"type": "map", "values": "string"}, "a", ("map<int,string>", "map"),
         "change the schema, or the column"),
    ],
)  # fmt: skip
def test_a_column_that_does_not_fit_is_named_with_both_types(kind, type_, where, both, fix) -> None:
    sentence = "column {} has type {}, and value.schema has the type {} there: ".format(where, *both)
    assert problem(pa.struct([("a", kind)]), ("a", type_)).startswith(sentence + fix)


def test_a_column_that_is_no_field_is_named_with_the_nearest_field() -> None:
    columns = pa.struct([("a", pa.string())])
    assert problem(columns, ("A", "string")) == "column a is no field of record r in value.schema, did you mean A?"
    other = problem(columns, ("amount", "string"))
    assert other == "column a is no field of record r in value.schema: drop the column, or add the field"


def test_a_field_without_a_column_needs_a_default_of_its_type() -> None:
    columns = pa.struct([("a", pa.string())])
    assert problem(columns, ("a", "string"), ("shop", "int")) == (
        "value.schema has the field shop of type int without a default, and the rows have no such column: add the "
        "column, or give the field a default"
    )
    assert problem(columns, ("a", "string"), ("shop", "int", "x")) == (
        "value.schema has the field shop of type int with the default '\"x\"', which is no value of it"
    )
    schema = parse_avro(json.dumps(record(("a", "string"), ("b", "bytes", "\u00ff\u0000"))))
    values = pa.array([{"a": "x"}], columns)
    assert encode(avro_encoder(schema, columns, "s"), values, b"").to_pylist() == [b"\2x\4\xff\0"]


@pytest.mark.parametrize(
    ("kind", "type_", "values", "row", "reason"),
    [
        (pa.string(), "string", ["x", None], 1, "is null, and its field takes no null"),
        (pa.string(), {"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["A", "C"], 1,
         "is 'C', one of A, B is expected"),
        (pa.binary(), {"type": "fixed", "name": "x", "size": 2}, [b"ab", b"abc"], 1, "has 3 bytes, 2 are expected"),
        (pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-nanos"}, [0, 2**62], 1,
         "does not fit timestamp-nanos"),
    ],
)  # fmt: skip
def test_a_value_that_its_field_does_not_take_is_named_with_its_row(kind, type_, values, row, reason) -> None:
    columns = pa.struct([("a", kind)])
    encoder = avro_encoder(parse_avro(json.dumps(record(("a", type_)))), columns, "s")
    with pytest.raises(ValueFaultError) as fault:
        encode(encoder, pa.array([{"a": one} for one in values], columns), b"")
    assert (fault.value.row, fault.value.where, fault.value.reason) == (row, "a", reason)


def test_what_stands_in_a_null_struct_or_a_null_list_is_not_looked_at() -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    kind = pa.struct([("s", inner), ("l", pa.list_(pa.field("element", inner, nullable=False)))])
    null_structs = pa.StructArray.from_arrays([pa.array([None, 5])], fields=list(inner), mask=pa.array([True, False]))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2]), null_structs, type=kind.field("l").type, mask=pa.array([True, False])
    )
    values = pa.StructArray.from_arrays([null_structs, lists], fields=list(kind))
    encoder = avro_encoder(parse_avro(avro_schema_of(kind, "r")), kind, "s")
    assert encode(encoder, values, b"").to_pylist() == [b"\0\0", b"\2\x0a\2\2\x0a\0"]


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.field("a b", pa.int32()), "column a b has a name that Avro does not have"),
        (
            pa.field("d", pa.duration("us")),
            "column d has type 'duration[us]', which Avro does not have: cast it to string",
        ),
        (pa.field("m", pa.map_(pa.int32(), pa.int32())), "column m has type 'map<int,int>', which Avro does not have"),
    ],
)
def test_a_column_that_avro_does_not_have_is_named(column, sentence) -> None:
    with pytest.raises(InputError) as error:
        avro_schema_of(pa.struct([column]), "r")
    assert error.value.message.startswith(sentence)


def test_a_made_schema_takes_columns_that_are_added_later() -> None:
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.decimal128(9, 2))])
    assert json.loads(avro_schema_of(kind, "shop.Order")) == {
        "type": "record", "name": "Order", "namespace": "shop", "fields": [
            {"name": "id", "type": "long"},
            {"name": "amount", "type": ["null", DECIMAL], "default": None},
        ],
    }  # fmt: skip
    assert json.loads(avro_schema_of(pa.string(), "unused")) == "string"


def test_decimals_have_the_sign_in_every_byte() -> None:
    kind = pa.decimal128(38, 0)
    fixed = {"type": "fixed", "name": "d", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0}
    encoder = avro_encoder(parse_avro(json.dumps(fixed)), kind, "s")
    for number in (-1, 1, -(2**64), 2**64 - 1, 10**38 - 1, -(10**38) + 1):
        (coded,) = encode(encoder, pa.array([Decimal(number)], kind), b"").to_pylist()
        assert int.from_bytes(coded, "big", signed=True) == number
