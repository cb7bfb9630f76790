"""Fields of Protobuf values: as Google's runtime reads them, whatever the schema, the message and the damage."""

from __future__ import annotations

import base64
import importlib
import warnings
from pathlib import Path
from typing import Any

import google.api
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.errors import InputError
from keyedwm.core.places import FieldType
from keyedwm.core.schemas import NamedSchema, RegisteredSchema, SchemaKind, UnknownSchemaError
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Head
from keyedwm.formats.proto_decoder import ProtoDecoder
from keyedwm.formats.proto_schema import link
from keyedwm.formats.proto_text import parse_proto
from tests.formats.proto_laws import check

ORDERS = """
// Two record types of one topic, and one within another.
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "not/there.proto";  /* only options need it */
message Order { string shop = 1; google.protobuf.Timestamp at = 2; message Line { int64 amount = 7; } }
message Refund { option deprecated = true; string shop = 3; }
"""
SHOP = Request(("shop",), FieldType.STRING)
AMOUNT = Request(("amount",), FieldType.BIGINT)
PROTOS = sorted(Path(next(iter(google.api.__path__))).parent.rglob("*.proto"))


class Texts:
    """Schemas by their ids."""

    def __init__(self, *texts: str, kind: SchemaKind = SchemaKind.PROTOBUF) -> None:
        self._texts, self._kind = texts, kind

    def schema(self, schema_id: int) -> RegisteredSchema:
        if not 0 < schema_id <= len(self._texts):
            raise UnknownSchemaError(f"no schema has the id {schema_id}")
        return RegisteredSchema(schema_id, self._kind, self._texts[schema_id - 1])


def framed(schema_id: int, indexes: bytes, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + body


def decoded(texts: Texts, values: list[bytes | None], *requests: Request, head: Head = Head.CONFLUENT) -> Any:
    return ProtoDecoder(head, requests, texts).decode(pa.array(values, pa.binary()))


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_what_is_read_is_what_googles_runtime_reads(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.stem)
def test_the_files_of_googles_services_are_read_as_protoc_reads_them(path: Path) -> None:
    name = str(path.relative_to(path.parents[len(path.parts) - 1 - path.parts.index("google")]))
    right = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR
    pool = DescriptorPool()
    known: set[str] = set()
    for needed in right.dependencies:
        add_all(pool, known, needed)
    pool.Add(parse_proto(name, path.read_text()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert described(pool.FindFileByName(name)) == described(right)


def add_all(pool: DescriptorPool, known: set[str], file: FileDescriptor) -> None:
    if file.name in known:
        return
    known.add(file.name)
    for needed in file.dependencies:
        add_all(pool, known, needed)
    made = FileDescriptorProto()
    file.CopyToProto(made)
    pool.Add(made)


def described(file: FileDescriptor) -> dict[str, Any]:
    """All that says how bytes are read, by full names."""
    found: dict[str, Any] = {}

    def add(message: Descriptor) -> None:
        found[message.full_name] = [
            (
                field.name, field.number, field.type, field.is_repeated, field.is_required, field.has_presence,
                field.is_packed, field.containing_oneof and field.containing_oneof.name,
                (field.message_type or field.enum_type) and (field.message_type or field.enum_type).full_name,
                None if field.is_repeated or field.message_type else field.default_value,
            )
            for field in message.fields
        ]  # fmt: skip
        for inner in message.nested_types:
            add(inner)
        for enum in message.enum_types:
            found[enum.full_name] = [(value.name, value.number) for value in enum.values]

    for message in file.message_types_by_name.values():
        add(message)
    for enum in file.enum_types_by_name.values():
        found[enum.full_name] = [(value.name, value.number) for value in enum.values]
    return found


def test_a_number_that_is_too_large_stays_null_where_its_message_comes_again() -> None:
    check(7073)


def test_the_indexes_of_a_head_lead_to_the_message() -> None:
    values = [
        framed(1, b"\x00", b"\x0a\x04Oslo"),
        framed(1, b"\x02\x00", b"\x0a\x03Ulm"),
        framed(1, b"\x02\x02", b"\x1a\x04Bern"),
        framed(1, b"\x04\x00\x00", b"\x38\x05"),
        None,
        framed(1, b"\x00", b""),
    ]
    found = decoded(Texts(ORDERS), values * 2, SHOP, AMOUNT)
    assert found.columns[0].to_pylist() == ["Oslo", "Ulm", "Bern", None, None, ""] * 2
    assert found.columns[1].to_pylist() == [None, None, None, 5, None, None] * 2
    assert found.bad is None
    assert found.ids().to_pylist() == [1, 1, 1, 1, None, 1] * 2


def test_a_schema_is_read_in_either_form_and_with_what_it_refers_to() -> None:
    packed = FileDescriptorProto()
    link(RegisteredSchema(1, SchemaKind.PROTOBUF, ORDERS)).CopyToProto(packed)
    text = base64.b64encode(packed.SerializeToString()).decode()
    assert decoded(Texts(text), [framed(1, b"\0", b"\x0a\x04Oslo")], SHOP).columns[0].to_pylist() == ["Oslo"]
    inner = NamedSchema(
        "in/er.proto", 'syntax = "proto2"; package i; message Inner { optional int32 n = 1 [default = 4]; }'
    )
    outer = 'syntax = "proto3"; import public "in/er.proto"; message Outer { i.Inner inner = 1; }'
    file = link(RegisteredSchema(1, SchemaKind.PROTOBUF, outer, (inner,)))
    assert GetMessageClass(file.message_types_by_name["Outer"])().inner.n == 4


@pytest.mark.parametrize(
    ("value", "fault", "said"),
    [
        (b"", Fault.NO_HEAD, "the value has no head of confluent"),
        (framed(1, b"", b""), Fault.NO_HEAD, "the value has no head of confluent"),
        (framed(1, b"\x01", b""), Fault.NO_HEAD, "the value has no head of confluent"),
        (framed(1, b"\x04\x00", b""), Fault.NO_HEAD, "the value has no head of confluent"),
        (framed(7, b"\0", b""), Fault.UNKNOWN_SCHEMA, "no schema has the id 7"),
        (framed(1, b"\x02\x08", b""), Fault.WRONG_SCHEMA, "schema 1 has no message with the indexes that"),
        (framed(1, b"\0", b"\x0a\x05Oslo"), Fault.CUT, "the value is cut off"),
        (framed(1, b"\0", b"\x0c"), Fault.CUT, "the value is cut off"),
        (framed(2, b"\0", b""), Fault.WRONG_SCHEMA, "schema 2: the text is no .proto file that can be read: 'int' is"),
        (framed(3, b"\0", b""), Fault.WRONG_SCHEMA, "schema 3: the schema of Protobuf cannot be linked"),
        (framed(5, b"\0", b""), Fault.WRONG_SCHEMA, "schema 5: the schema of Protobuf cannot be linked: Value out of"),
        (framed(4, b"\0", b""), Fault.OTHER_TYPE, "schema 4 has $.shop of M as int32, which cannot be read as string"),
    ],
)
def test_a_value_that_cannot_be_read_says_why(value: bytes, fault: Fault, said: str) -> None:
    texts = Texts(
        ORDERS, "message M int", "message M { Absent a = 1; }", "message M { optional int32 shop = 1; }",
        "message M { } enum E { Z = 99999999999; }",
    )  # fmt: skip
    found = decoded(texts, [value, framed(1, b"\0", b"\x0a\x04Oslo")], SHOP)
    assert found.faults.tolist() == [fault, Fault.NONE]
    assert found.reason(0).startswith(said)
    assert found.columns[0].to_pylist() == [None, "Oslo"]


def test_each_message_of_a_schema_has_its_own_reason() -> None:
    texts = Texts('syntax = "proto3"; message A { int32 shop = 1; } message B { bool shop = 1; } message C { }')
    values = [framed(1, indexes, b"") for indexes in (b"\0", b"\2\2", b"\2\6", b"\0", b"\2\4")]
    found = decoded(texts, values, SHOP)
    assert [found.reason(row).partition(", which")[0] for row in range(4)] == [
        "schema 1 has $.shop of A as int32", "schema 1 has $.shop of B as bool",
        "schema 1 has no message with the indexes that are in the head", "schema 1 has $.shop of A as int32",
    ]  # fmt: skip
    ids = found.reason_ids(np.arange(4)).tolist()
    assert ids[0] == ids[3]
    assert len({*ids}) == 3


@pytest.mark.parametrize("texts", [Texts('"string"', kind=SchemaKind.AVRO), Texts(ORDERS), Texts()])
def test_values_with_any_bytes_for_indexes_fill_no_memory(texts: Texts) -> None:
    """Values of an Avro topic: what stands behind the id are other bytes in each of them."""
    decoder = ProtoDecoder(Head.CONFLUENT, [SHOP], texts)
    for batch in range(3):
        values = [framed(1, b"\2" + bytes([66 + 2 * number, 1 + batch]), b"") for number in range(20)]
        assert decoder.decode(pa.array(values, pa.binary())).bad.all()
    assert decoder._known == []


def test_a_schema_of_another_kind_is_a_fault_of_the_value() -> None:
    found = decoded(Texts('"string"', kind=SchemaKind.AVRO), [framed(1, b"\0", b"")], SHOP)
    assert found.reason(0) == "schema 1 is of the kind AVRO, Protobuf is expected"


def test_an_id_that_is_known_later_is_read_then() -> None:
    texts = Texts()
    decoder = ProtoDecoder(Head.CONFLUENT, [SHOP], texts)
    values = pa.array([framed(1, b"\0", b"\x0a\x04Oslo")], pa.binary())
    assert decoder.decode(values).faults.tolist() == [Fault.UNKNOWN_SCHEMA]
    texts._texts = (ORDERS,)
    assert decoder.decode(values).columns[0].to_pylist() == ["Oslo"]


def test_values_without_a_head_are_the_first_message_of_the_schema() -> None:
    class One:
        def schema(self, schema_id: int) -> RegisteredSchema:
            return RegisteredSchema(schema_id, SchemaKind.PROTOBUF, ORDERS)

    found = ProtoDecoder(Head.NONE, [SHOP], One()).decode(pa.array([b"\x0a\x04Oslo", b""], pa.binary()))
    assert found.columns[0].to_pylist() == ["Oslo", ""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", None),
        ('syntax = "proto4";', "'\"proto4\"' is not expected"),
        ("message M {\n  int32 a = 0;\n}", "';' is not expected in line 2"),
        ("message M {\n  int32 a = 1", "the end is not expected in line 2"),
        ("message M { int32 a = 08; }", "is not expected in line 1"),
        ("message M { oneof x { int32 a = 1; }", "the end is not expected"),
        ("{}", "'{' is not expected in line 1"),
        ("message " * 3, "'message' is not expected in line 1"),
        ("message M {" + "message M {" * 70, "is not expected in line 1"),
    ],
)
def test_a_text_that_is_no_proto_file_is_refused_with_its_line(text: str, said: str | None) -> None:
    if said is None:
        assert parse_proto("a", text).message_type == []
        return
    with pytest.raises(InputError, match=r"the text is no \.proto file that can be read: ") as caught:
        parse_proto("a", text)
    assert said in str(caught.value)


def test_a_file_with_an_edition_says_what_is_expected() -> None:
    with pytest.raises(InputError, match=r"with an edition \(line 2\), which cannot be read: syntax = .proto2. or"):
        parse_proto("a", '// new\nedition = "2023";')


def test_what_says_nothing_of_bytes_is_passed_over() -> None:
    made = parse_proto("a", """
        syntax = 'proto2'; package a.b; option (x).y = { z: ["}", { k: 1 }] };
        service S { rpc Get (M) returns (stream M) { option (h) = { get: "/v1/{name}" }; } }
        extend M { optional group Ext = 100 { optional int32 a = 1; } }
        message option { optional .a.b.M message = 1; }
        message M {
          extensions 100 to 199, 500 to max; reserved 2, 9 to 11; reserved "foo", "bar";
          optional option reserved = 4; repeated group Part = 5 { required bool is = 1 [(v) = "];", default = true]; }
          optional sint32 low = 6 [default = -0x10]; map<int32, .a.b.M> all = 7; extend M { optional int32 q = 101; };
          repeated int32 packed = 8 [packed=true, (w).z = {a: 1}];
        }
    """)  # fmt: skip
    pool = DescriptorPool()
    pool.Add(made)
    fields = pool.FindMessageTypeByName("a.b.M").fields_by_name
    assert {name: field.number for name, field in fields.items()} == {
        "reserved": 4, "part": 5, "low": 6, "all": 7, "packed": 8
    }  # fmt: skip
    assert fields["low"].default_value == -16
    assert fields["packed"].is_packed
    assert fields["part"].message_type.fields_by_name["is"].default_value is True
