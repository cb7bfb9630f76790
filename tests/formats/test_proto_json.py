"""Lists, maps and whole messages of Protobuf as JSON text, paths into them, misspelt paths, and damaged bytes."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.places import FieldType, Unit
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Head, bodies_of
from keyedwm.formats.proto_columns import LinkedMessages, decode
from keyedwm.formats.proto_program import compile_message
from keyedwm.formats.proto_schema import link
from tests.formats import proto_laws
from tests.formats.cage import Cage
from tests.formats.test_proto_values import ORDERS, Texts, decoded, framed
from tests.seeds import times

SOURCE = """
syntax = "proto2"; package p;
import "google/protobuf/duration.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
enum E { A = 0; B = 1; }
message Line { optional string sku = 1; optional int64 many = 2; optional bytes raw_data = 3; extensions 100 to 200; }
message M {
  repeated Line lines = 1; map<string, int64> prices = 2; optional Line first = 3;
  repeated group Part = 4 { optional int32 a = 1; } optional group One = 5 { optional int64 b = 1; }
  optional google.protobuf.Timestamp at = 6; repeated sint32 packed = 7 [packed = true]; map<bool, Line> flags = 8;
  repeated double doubles = 9; repeated float singles = 10; repeated google.protobuf.Int64Value wrapped = 11;
  optional google.protobuf.Struct free = 12; optional google.protobuf.Duration took = 13; repeated E kinds = 14;
}
"""
M = link(RegisteredSchema(1, SchemaKind.PROTOBUF, SOURCE)).message_types_by_name["M"]
TEXT = FieldType.STRING
SECOND = b"\x02\x02"  # the message M of the file
FORMS = {
    ("lines",): ('[{"sku":"a\\"ü","many":9007199254740993},{"raw_data":"AAE="}]', "[]"),
    ("prices",): ('{"x y":-7}', "{}"), ("first",): ('{"sku":"f"}', None), ("part",): ('[{"a":3}]', "[]"),
    ("one",): ('{"b":9}', None), ("at",): ("1970-01-01T00:00:01.005Z", None), ("packed",): ("[1,-2]", "[]"),
    ("flags",): ('{"true":{"sku":"t"}}', "{}"), ("doubles",): ('[1.5,"NaN","-Infinity"]', "[]"),
    ("singles",): ("[0.1]", "[]"), ("wrapped",): ("[5]", "[]"), ("free",): ('{"k":1.0}', None),
    ("took",): ("3s", None), ("kinds",): ('["B"]', "[]"), ("lines", 0, "many"): (9007199254740993, None),
    ("lines", 2, "sku"): (None, None), ("prices", "x y"): (-7, None), ("one", "b"): (9, None),
    ("first", "sku"): ("f", None),
}  # fmt: skip


def body() -> bytes:
    message = GetMessageClass(M)()
    message.lines.add(sku='a"ü', many=2**53 + 1)
    message.lines.add(raw_data=b"\0\1")
    message.prices["x y"] = -7
    message.first.sku = "f"
    message.part.add(a=3)
    message.one.b = 9
    message.at.seconds, message.at.nanos = 1, 5_000_000
    message.packed.extend([1, -2])
    message.flags[True].sku = "t"
    message.doubles.extend([1.5, float("nan"), float("-inf")])
    message.singles.append(0.1)
    message.wrapped.add(value=5)
    message.free["k"] = 1
    message.took.seconds = 3
    message.kinds.append(1)
    return message.SerializeToString()


def test_lists_maps_groups_and_messages_are_json_text_and_paths_lead_into_them() -> None:
    numbers = (FieldType.BIGINT, TEXT)
    requests = [Request(path, numbers[not isinstance(forms[0], int)]) for path, forms in FORMS.items()]
    extension = b"\x0a\x07\x0a\x01s\xa2\x06\x01x\x00"[:-1]  # a line with a field that its schema does not name
    values = [framed(1, SECOND, body()), framed(1, SECOND, b""), None, framed(1, SECOND, extension)]
    batch = decoded(Texts(SOURCE), values, *requests)
    rows = [column.to_pylist() for column in batch.columns]
    assert {request.path: tuple(row[:2]) for request, row in zip(requests, rows, strict=True)} == FORMS
    assert [row[2] for row in rows] == [None] * len(rows)
    assert rows[0][3] == '[{"sku":"s"}]'
    assert batch.bad is None


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        (("lines", "sku"), TEXT, "repeated p.Line"), (("prices", 0), TEXT, "repeated p.M.PricesEntry"),
        (("lines", 0), FieldType.TIMESTAMP, "repeated p.Line"), (("packed",), FieldType.BIGINT, "repeated sint32"),
        (("lines", 0, "many"), Unit.MILLISECONDS, "repeated p.Line"), (("wrapped", 0), FieldType.DATE, "repeated"),
        (("one",), FieldType.BIGINT, "p.M.One"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_of_a_list_or_a_group_is_named(path: tuple, kind: object, name: str) -> None:
    batch = decoded(Texts(SOURCE), [framed(1, SECOND, body())], Request(path, kind))
    assert batch.faults.tolist() == [Fault.OTHER_TYPE]
    assert f"of p.M as {name}" in batch.reason(0)


def test_damage_that_the_loop_passes_over_is_a_fault_where_a_text_is_asked_for() -> None:
    value = framed(1, SECOND, b"\x0a\x01\xff")  # a line whose only byte is no field
    first = Request(("first", "sku"), TEXT)
    assert decoded(Texts(SOURCE), [value], first).bad is None
    batch = decoded(Texts(SOURCE), [value], first, Request(("lines",), TEXT))
    assert (batch.faults.tolist(), batch.columns[1].to_pylist()) == ([Fault.CUT], [None])


def test_bytes_of_a_text_in_a_list_that_are_no_utf_8_are_replaced() -> None:
    source = 'syntax = "proto2"; message M { repeated string names = 1; }'
    batch = decoded(Texts(source), [framed(1, b"\0", b"\x0a\x01\xff")], Request(("names",), TEXT))
    assert (batch.bad, batch.columns[0].to_pylist()) == (None, ['["\ufffd"]'])


def test_a_misspelt_path_is_named_with_the_one_that_is_there(caplog: pytest.LogCaptureFixture) -> None:
    values = [framed(1, b"\0", b"\x0a\x04Oslo")] * 3
    batch = decoded(Texts(ORDERS), values, Request(("shpo",), TEXT), Request(("at", "second"), FieldType.BIGINT))
    assert [column.null_count for column in batch.columns] == [3, 3]
    assert [record.getMessage() for record in caplog.records] == [
        f"message {message} of schema 1 has no {wrong}, which is null in its records; did you mean {right}?"
        for message, wrong, right in (("Order", "$.shpo", "$.shop"), ("Order", "$.at.second", "$.at.seconds"))
    ]


def _requests(chance: random.Random, message: Descriptor) -> list[Request]:
    kinds = (TEXT, FieldType.BIGINT, FieldType.DOUBLE, Unit.MILLISECONDS)
    paths = {proto_laws._request(chance, message).path for _ in range(6)}
    return [Request(path, kind) for path in sorted(paths) for kind in kinds]


def test_every_cut_and_every_flipped_byte_gives_a_value_a_null_or_a_reason(seed: int, cage: Cage) -> None:
    chance = random.Random(f"{seed} proto damage")
    fields_read = 0
    for _ in range(times(3)):
        message = proto_laws._linked(chance)
        requests = _requests(chance, message)
        linked = LinkedMessages([compile_message(message, requests)])
        whole = proto_laws._body(chance, message)[:200]
        damaged = [whole[:size] for size in range(len(whole))]
        for at in range(len(whole)):
            damaged += (whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for flip in (1, 0x80, 0xFF))
        for value in (whole, *damaged):
            rows = []
            for values, row in ((cage.array(value), 0), (pa.array([b"\0" * 40, value, b"\xff" * 40]), 1)):
                bodies = bodies_of(Head.NONE, values)
                columns = decode(linked, bodies, np.zeros(len(values), np.int32), requests)
                rows.append(([proto_laws.comparable_value(column, row) for column in columns], bodies.faults[row]))
            assert rows[0] == rows[1]
            assert rows[0][1] in (Fault.NONE, Fault.CUT)
            fields_read += sum(one is not None for one in rows[0][0])
    assert fields_read
