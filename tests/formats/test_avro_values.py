"""Fields out of Avro values: against fastavro, over schemas that change, and over damaged bytes."""

from __future__ import annotations

import copy
import io
import json
import random
from decimal import Decimal

import fastavro.schema
import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.places import DecimalType, FieldType, Unit
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.avro_fingerprint import canonical, fingerprint
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.decoder import Decoded, Decoder
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Head
from tests.formats import avro_laws
from tests.formats.avro_laws import Texts, framed
from tests.formats.cage import Cage
from tests.formats.generated_avro import Generator, encoded, leaves, number, text
from tests.seeds import times

LONG = {"type": "long", "logicalType": "timestamp-millis"}


def record(*fields: tuple, name: str = "r") -> dict:
    """A record of (name, type) or (name, type, default) each."""
    keys = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(keys, one, strict=False)) for one in fields]}


def read(schema: dict, body: bytes, types_by_path: dict, reader: dict | None = None) -> tuple[list, Decoded]:
    """What is read of one value. asked: path → type."""
    requests = [Request(path if isinstance(path, tuple) else (path,), kind) for path, kind in types_by_path.items()]
    types = None if reader is None else parse_avro(json.dumps(reader))
    decoder = Decoder(Head.CONFLUENT, requests, Texts({1: json.dumps(schema)}), types)
    decoded = decoder.decode(pa.array([framed(1, body)], pa.binary()))
    return [rows(column)[0] for column in decoded.columns], decoded


def rows(column: pa.Array | tuple) -> list:
    if isinstance(column, tuple):
        return [int(ms) if valid else None for ms, valid in zip(*column, strict=True)]
    return column.to_pylist()


@pytest.mark.parametrize("part", range(3))
def test_fields_are_what_fastavro_reads(seed: int, part: int) -> None:
    for number_ in range(times(40)):
        avro_laws.check(seed * 1_000 + part * times(40) + number_)


@pytest.mark.parametrize("days", [-(2**63), -(2**31) - 1, 2**31, 2**63 - 1])
def test_days_that_no_date_holds_are_null(days: int) -> None:
    schema = record(("day", {"type": "int", "logicalType": "date"}))
    assert read(schema, number(days), {"day": FieldType.DATE})[0] == [None]


def test_a_fingerprint_is_the_one_that_fastavro_computes(seed: int) -> None:
    schemas = [json.dumps(Generator(random.Random(f"{seed} {n} print")).schema()) for n in range(100)]
    spaced = record(("a", {"type": "enum", "name": "k", "symbols": ["A"], "doc": "d"}), ("b", "k"), ("c", "long", 1))
    for schema in (
        *schemas,
        json.dumps({**spaced, "namespace": "x.y"}),
        json.dumps({**spaced, "name": "p.q.r"}),
        '"int"',
    ):
        form = fastavro.schema.to_parsing_canonical_form(json.loads(schema))
        assert canonical(json.loads(schema)) == form
        expected_fingerprint = fastavro.schema.fingerprint(form, "CRC-64-AVRO")
        assert fingerprint(schema).to_bytes(8, "little", signed=True).hex() == expected_fingerprint


def test_a_missing_field_is_the_readers_default_else_null() -> None:
    writer = record(("id", "long"), ("inner", record(("x", "int"), name="inner")))
    reader = record(
        ("id", "long"),
        ("shop", "string", "Oslo"),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000"),
        ("kind", {"type": "enum", "name": "k", "symbols": ["A", "B"]}, "B"),
        ("at", LONG, 5),
        ("paid", ["null", "boolean"], None),
        ("flag", ["boolean", "null"], True),
        ("inner", record(("x", "int"), ("y", "double", 1.5), name="inner")),
        ("whole", record(("z", "long", 3), ("w", "string"), name="whole"), {"w": "deep"}),
    )
    types_by_path = {
        "id": FieldType.BIGINT, "shop": FieldType.STRING, "price": DecimalType(6, 3), "kind": FieldType.STRING,
        "at": Unit.ISO, "paid": FieldType.BOOLEAN, "flag": FieldType.BOOLEAN, ("inner", "y"): FieldType.DOUBLE,
        ("whole", "z"): FieldType.BIGINT, ("whole", "w"): FieldType.STRING, "none": FieldType.STRING,
    }  # fmt: skip
    body = number(7) + number(1)
    assert read(writer, body, types_by_path, reader)[0] == [
        7, "Oslo", Decimal("2.560"), "B", 5, None, True, 1.5, 3, "deep", None
    ]  # fmt: skip
    assert read(writer, body, types_by_path)[0] == [7, *[None] * 10]


def test_names_before_and_a_readers_default_symbol_are_read_as_fastavro_resolves_them() -> None:
    """Writers of each name, and of none; a nested record and a branch that had other names."""
    reader = {
        "type": "record", "name": "n.new", "aliases": ["old"], "fields": [
            {"name": "total", "aliases": ["sum", "amount"], "type": "long", "default": -1},
            {"name": "kind", "default": "B", "type": {
                "type": "enum", "name": "k", "aliases": ["m.kinds"], "symbols": ["A", "B"], "default": "A"}},
            {"name": "to", "aliases": ["at"], "default": None, "type": ["null", {
                "type": "record", "name": "place", "aliases": ["where"], "fields": [
                    {"name": "city", "aliases": ["town"], "type": "string", "default": "Oslo"}]}]},
        ],
    }  # fmt: skip
    types_by_path = {
        ("total",): FieldType.BIGINT, ("kind",): FieldType.STRING, ("to", "city"): FieldType.STRING,
        ("to", "[place]", "city"): FieldType.STRING,
    }  # fmt: skip
    where = {"type": "record", "name": "where", "fields": [{"name": "town", "type": "string"}]}
    writers = [
        ([("sum", "int")], {"sum": 3}),
        ([("total", "int")], {"total": 5}),
        ([("other", "long"), ("amount", "long")], {"other": 3, "amount": 6}),
        ([("kind", {"type": "enum", "name": "k", "symbols": ["C", "B"]})], {"kind": "C"}),
        ([("kind", {"type": "enum", "name": "m.kinds", "symbols": ["C", "B"]})], {"kind": "B"}),
        ([("at", ["null", where])], {"at": {"town": "Bergen"}}),
        ([("at", ["null", {**where, "name": "n.where", "fields": []}])], {"at": {}}),
    ]  # fmt: skip
    for fields, value in writers:
        writer = {**record(*fields, name="old"), "namespace": "n"}
        body = io.BytesIO()
        fastavro.schemaless_writer(body, copy.deepcopy(writer), value)
        body.seek(0)
        whole = fastavro.schemaless_reader(body, copy.deepcopy(writer), copy.deepcopy(reader))
        city = None if whole["to"] is None else whole["to"]["city"]
        assert read(writer, body.getvalue(), types_by_path, reader)[0] == [whole["total"], whole["kind"], city, city], (
            fields
        )


def test_a_newer_writer_needs_no_restart_and_ids_are_asked_for_once() -> None:
    old, new = record(("id", "int")), record(("extra", "string"), ("id", "long"), ("shop", ["null", "string"]))
    texts = Texts({1: json.dumps(old), 9: json.dumps(new)})
    decoder = Decoder(Head.CONFLUENT, [Request(("id",), FieldType.BIGINT), Request(("shop",), FieldType.STRING)], texts)
    older = [framed(1, number(n)) for n in range(3)]
    assert rows(decoder.decode(pa.array(older)).columns[0]) == [0, 1, 2]
    both = [older[1], framed(9, text(b"x") + number(5) + number(1) + text(b"Oslo")), older[2]]
    decoded = decoder.decode(pa.array(both))
    assert [rows(column) for column in decoded.columns] == [[1, 5, 2], [None, "Oslo", None]]
    assert decoded.ids().to_pylist() == [1, 9, 1]
    assert texts.asked_ids == [1, 9]


def test_of_a_union_the_branch_of_the_asked_type_is_read_and_a_step_names_one() -> None:
    two = record(("x", "int"), name="two")
    schema = record(("u", ["int", "null", "string", two, {"type": "array", "items": "int"}]))
    types_by_path = {
        "u": FieldType.BIGINT, ("u", "[string]"): FieldType.STRING, ("u", "[two]", "x"): FieldType.BIGINT,
        ("u", "x"): FieldType.BIGINT, ("u", "[long]"): FieldType.BIGINT,
    }  # fmt: skip
    bodies = {
        number(0) + number(4): [4, None, None, None, None],
        number(1): [None] * 5,
        number(2) + text(b"s"): [None, "s", None, None, None],
        number(3) + number(6): [None, None, 6, 6, None],
        number(4) + number(0): [None] * 5,
    }
    for body, expected_values in bodies.items():
        values, decoded = read(schema, body, types_by_path)
        assert (values, decoded.bad) == (expected_values, None)


@pytest.mark.parametrize(
    ("type_", "as_type", "sentence"),
    [
        ("string", FieldType.BIGINT, "schema 1 has $.a as string, which cannot be read as bigint"),
        ("long", FieldType.TIMESTAMP, "schema 1 has $.a as long, which cannot be read as timestamp"),
        (["null", "double"], FieldType.STRING, "schema 1 has $.a as double, which cannot be read as string"),
        (["int", "boolean"], FieldType.STRING, "schema 1 has $.a as int or boolean, which cannot be read as string"),
        ({"type": "array", "items": "int"}, FieldType.BINARY, "schema 1 has $.a as array, which cannot be read as"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, DecimalType(9, 2),
         r"schema 1 has $.a as decimal(9, 3), which cannot be read as decimal(9,2)"),
        (record(name="inner"), FieldType.BIGINT, "schema 1 has $.a as record inner, which cannot be read as bigint"),
        ("boolean", Unit.MILLISECONDS, "which cannot be read as an event time (unit ms)"),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_named_with_both_types(type_: object, as_type: object, sentence: str) -> None:
    body = b"\0" * 9
    values, decoded = read(record(("id", "int"), ("a", type_)), body, {"id": FieldType.BIGINT, "a": as_type})
    assert values == [0, None]
    assert decoded.faults.tolist() == [Fault.OTHER_TYPE]
    assert sentence in decoded.reason(0)


def test_values_without_a_head_of_another_schema_or_of_none_say_so() -> None:
    texts = Texts({1: json.dumps(record(("id", "int"))), 2: "{", 3: json.dumps("no.such")})
    decoder = Decoder(Head.CONFLUENT, [Request(("id",), FieldType.BIGINT)], texts)
    values = [b"", b"\0\0\0\0", b"\1\0\0\0\1\0", None, framed(1, b"\2"), framed(7, b""), framed(2, b""), framed(3, b"")]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert rows(decoded.columns[0]) == [None] * 4 + [1] + [None] * 3
    assert decoded.faults.tolist() == [2, 2, 2, 1, 0, 3, 5, 5]
    assert decoded.ids().to_pylist() == [None] * 4 + [1, 7, 2, 3]
    reasons = [decoded.reason(row) for row in (0, 5, 6, 7)]
    assert reasons == [
        "the value has no head of confluent: a zero byte and four bytes of a schema's id are expected",
        "no schema has the id 7",
        "schema 2: '{' is no JSON, so it is no Avro schema",
        "schema 3: the Avro schema names the type 'no.such', which it does not define before",
    ]


def test_a_schema_of_another_kind_is_a_fault_and_a_registry_that_is_away_an_error() -> None:
    class Protobuf(Texts):
        def schema(self, schema_id: int) -> RegisteredSchema:
            if schema_id == 2:
                raise UnavailableError("the registry does not answer")
            return RegisteredSchema(schema_id, SchemaKind.PROTOBUF, "")

    decoder = Decoder(Head.CONFLUENT, [Request(("id",), FieldType.BIGINT)], Protobuf({}))
    decoded = decoder.decode(pa.array([framed(1, b"")]))
    assert decoded.reason(0) == "schema 1 is of the kind PROTOBUF, Avro is expected"
    with pytest.raises(UnavailableError):
        decoder.decode(pa.array([framed(2, b"")]))


def test_the_id_of_apicurio_has_eight_bytes_or_four() -> None:
    texts = Texts({1: json.dumps(record(("id", "int"))), 2**33: json.dumps(record(("x", "string"), ("id", "int")))})
    decoder = Decoder(Head.APICURIO, [Request(("id",), FieldType.BIGINT)], texts)
    body, wide = number(5), text(b"x") + number(6)
    values = [framed(1, body), b"\0" + (1).to_bytes(8, "big") + body, b"\0" + (2**33).to_bytes(8, "big") + wide]
    decoded = decoder.decode(pa.array([*values[:2], b"\0" * 8]))
    assert (rows(decoded.columns[0]), decoded.ids().to_pylist()) == ([5, 5, None], [1, 1, None])


def test_a_slice_of_values_is_read_as_itself() -> None:
    decoder = Decoder(Head.NONE, [Request(("id",), FieldType.BIGINT)], Texts({0: json.dumps(record(("id", "int")))}))
    values = pa.array([number(1), None, number(3), number(4)], pa.binary())
    assert rows(decoder.decode(values.slice(1, 2)).columns[0]) == [None, 3]
    assert rows(decoder.decode(values.slice(0, 0)).columns[0]) == []


def test_a_decimal_of_many_bytes_is_read_if_its_number_fits() -> None:
    schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}))
    for size, value in ((20, -12), (20, 12), (16, -(10**37)), (1, -1), (0, 0)):
        body = text(value.to_bytes(size, "big", signed=True))
        assert read(schema, body, {"d": DecimalType(38, 2)})[0] == [Decimal(value).scaleb(-2)]
    for value in (10**38, -(10**38), 2**127):
        body = text(value.to_bytes(20, "big", signed=True))
        values, decoded = read(schema, body, {"d": DecimalType(38, 2)})
        assert (values, decoded.bad) == ([None], None)


def test_a_time_that_fits_no_timestamp_is_null() -> None:
    values, decoded = read(record(("t", LONG)), number(2**62), {"t": FieldType.TIMESTAMP})
    assert (values, decoded.bad) == ([None], None)
    assert read(record(("t", LONG)), number(2**62), {"t": Unit.ISO})[0] == [None]


def test_items_without_bytes_cost_nothing_however_many_they_are() -> None:
    empty = {"type": "array", "items": ["null"]}
    nulls = {"type": "array", "items": record(("n", "null"), name="e")}
    schema = record(("n", nulls), ("id", "int"))
    assert read(schema, number(2**62) + number(0) + number(3), {"id": FieldType.BIGINT})[0] == [3]
    values, decoded = read(record(("n", empty), ("id", "int")), number(2**62) + number(0), {"id": FieldType.BIGINT})
    assert (values, decoded.faults.tolist()) == ([None], [Fault.CUT])


def test_records_without_bytes_that_hold_each_other_twice_cost_nothing() -> None:
    """Sixty levels are 2**60 records in a value of no byte."""
    empty: str | dict = "null"
    for level in range(60):
        name = "null" if level == 0 else f"r{level - 1}"
        empty = record(("a", empty), ("b", name), name=f"r{level}")
    schema = record(("x", empty), ("y", {"type": "array", "items": "r59"}), ("z", "long"))
    assert read(schema, number(2**40) + number(0) + number(5), {"z": FieldType.BIGINT})[0] == [5]


@pytest.mark.parametrize(
    "field",
    [("\ud800", "int"), ("a", {"type": "enum", "name": "e", "symbols": ["\ud800"]}), ("a", "string", "\ud800")],
)
def test_half_a_surrogate_pair_in_a_schema_is_a_fault_of_the_schema(field: tuple) -> None:
    decoded = read(record(field), number(0), {"a": FieldType.STRING})[1]
    assert decoded.faults.tolist() == [Fault.WRONG_SCHEMA]
    assert "a text that is no Unicode" in decoded.reason(0)


def test_versions_of_values_that_cannot_be_decompressed_fill_no_memory() -> None:
    decoder = Decoder(Head.GLUE, [], Texts('"int"'))
    values = [b"\3\5" + bytes([*range(number, number + 16)]) for number in range(20)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.guid_texts()[0].as_py() == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert decoded.ids().null_count == len(values)
    assert decoder._guids.texts == {}


def test_records_within_each_other_beyond_all_measure_are_a_fault() -> None:
    chain = record(("next", ["null", "r"]))
    schema = record(("c", chain), ("id", "int"), name="outer")
    for depth, expected_fault in ((900, Fault.NONE), (5_000, Fault.TOO_DEEP)):
        body = number(1) * depth + number(0) + number(4)
        values, decoded = read(schema, body, {"id": FieldType.BIGINT})
        assert decoded.faults.tolist() == [expected_fault]
        assert values == [4 if expected_fault is Fault.NONE else None]


def test_every_cut_and_every_flipped_byte_gives_a_value_a_null_or_a_reason(seed: int, cage: Cage) -> None:
    chance = random.Random(f"{seed} damage")
    fields_read = 0
    for _ in range(times(4)):
        writer = Generator(chance)
        schema = writer.schema()
        requests = [Request(path, kind) for path in leaves(schema, writer.types_by_name)[-3:] if path for kind in (
            FieldType.STRING, FieldType.BIGINT, DecimalType(9, 3), Unit.MILLISECONDS)]  # fmt: skip
        whole = framed(1, encoded(schema, writer.value(schema), writer.types_by_name, chance))[:600]
        decoder = Decoder(Head.CONFLUENT, requests, Texts({1: json.dumps(schema)}))
        damaged = [whole[:size] for size in range(len(whole))]
        for at in range(5, len(whole)):
            damaged += (whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for flip in (1, 0x80, 0xFF))
        for value in (whole, *damaged):
            decoded = decoder.decode(cage.array(value))
            among = decoder.decode(pa.array([b"\0" * 40, value, b"\xff" * 40]))
            values = [rows(column)[0] for column in decoded.columns]
            assert values == [rows(column)[1] for column in among.columns]
            assert decoded.faults[0] == among.faults[1]
            assert decoded.bad is None or decoded.reason(0)
            fields_read += sum(one is not None for one in values)
    assert fields_read


def test_symbols_of_more_than_two_gigabytes_are_an_error_and_no_memory_behind_the_column_is_written():
    """A symbol is as long as its schema says, and a value with it has one byte."""
    schema = record(("e", {"type": "enum", "name": "e", "symbols": ["s" * 43_000]}))
    decoder = Decoder(Head.CONFLUENT, [Request(("e",), FieldType.STRING)], Texts({1: json.dumps(schema)}))
    values = pa.array([framed(1, b"\0")] * 100_000, pa.binary())
    with pytest.raises(InputError, match="a field of 100000 values has 4300000000 bytes of text, at most 2147483647"):
        decoder.decode(values)
