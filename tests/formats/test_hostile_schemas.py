"""Schemas that anybody with a login of the registry may add: a value of each is read, or has one short reason."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.errors import InputError
from keyedwm.core.places import FieldType
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.avro_schema import parse_avro
from keyedwm.formats.decoder import Decoded, Decoder
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Head
from keyedwm.formats.proto_schema import link
from keyedwm.formats.proto_text import parse_proto
from tests.formats.avro_laws import Texts, framed
from tests.formats.test_avro_values import record
from tests.formats.test_proto_values import SHOP
from tests.formats.test_proto_values import Texts as Protos
from tests.formats.test_proto_values import decoded as decoded_protos
from tests.formats.test_proto_values import framed as framed_proto


def read(schema: str, *path: str, body: bytes = b"\x02") -> Decoded:
    decoder = Decoder(Head.CONFLUENT, [Request(path or ("n",), FieldType.BIGINT)], Texts({1: schema}))
    return decoder.decode(pa.array([framed(1, body)], pa.binary()))


def nested(types: int) -> str:
    """The text of a record in a record, and so on."""
    text = '"long"'
    for number in range(types):
        text = json.dumps(record(("n", json.loads(text)), name=f"R{number}"))
    return text


def nested_records(count: int, first: str) -> list[dict]:
    """Records that hold the one before them, by its name."""
    others = (record(("before", f"R{number - 1}"), ("n", "long"), name=f"R{number}") for number in range(1, count))
    return [record(("n", first), name="R0"), *others]


def in_json(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (nested(120), "of more than 100 types within each other is not supported"),
        (nested(190), "lists and objects within each other"),
        (json.dumps(record(("n", "long", json.loads(in_json(900))))), "lists and objects within each other"),
        (json.dumps(record(("n", {"x": json.loads(in_json(900))}))), "lists and objects within each other"),
        (json.dumps(record(("n", record(("x", "long"), name="R" * 50_000)))), "record RRR"),
    ],
)
def test_a_schema_beyond_all_measure_is_a_short_reason(schema: str, sentence: str) -> None:
    read_values = read(schema)
    (problem,) = read_values.problems.values()
    assert sentence in problem.sentence
    assert len(problem.sentence) < 500


def test_a_chain_of_records_is_skipped_however_long_it_is() -> None:
    for first, body in (("long", b"\x02" * 800), ("null", b"\x02" * 799)):
        top = record(("skipped", "R799"), ("m", "long"), name="Top")
        values = read(json.dumps(["null", *nested_records(800, first), top]), "m", body=b"\xc2\x0c" + body + b"\x54")
        assert values.problems == {}
        assert values.columns[0].to_pylist() == [42]


def test_branches_that_lead_to_each_other_end_in_a_reason() -> None:
    branches = [record(("a", ["null", "Top"]), name=f"B{number}") for number in range(300)]
    (problem,) = read(json.dumps(record(("a", ["null", *branches]), name="Top")), *"aaaaaa").problems.values()
    assert problem.fault is Fault.WRONG_SCHEMA
    assert "makes more than 1000000 steps" in problem.sentence


@pytest.mark.parametrize("default", ["\\UFFFFFFFF", "\\U00110000"])
def test_a_character_that_there_is_not_is_a_fault_of_the_schema(default: str) -> None:
    source = f'syntax = "proto2"; message M {{ optional string shop = 1 [default = "{default}"]; }}'
    values = decoded_protos(Protos(source), [framed_proto(1, b"\0", b"")], SHOP)
    assert values.faults.tolist() == [Fault.WRONG_SCHEMA]


def test_comments_that_do_not_end_are_looked_through_once() -> None:
    with pytest.raises(InputError, match=r"text is no \.proto file .* is not expected in line 1"):
        parse_proto("x.proto", "/*" * 1_000_000)


def any_within(levels: int) -> Message:
    """A message of the type Any in another, and so on."""
    message = Any()
    for _ in range(levels):
        outer = Any()
        outer.Pack(message)
        message = outer
    return message


def test_messages_of_any_type_within_each_other_are_a_fault_not_an_error() -> None:
    source = 'syntax = "proto3"; import "google/protobuf/any.proto"; message M { google.protobuf.Any free = 1; }'
    kind = GetMessageClass(link(RegisteredSchema(1, SchemaKind.PROTOBUF, source)).message_types_by_name["M"])
    values = []
    for levels in (3, 99, 100, 1_000):
        message = kind()
        message.free.ParseFromString(any_within(levels).SerializeToString())
        values.append(framed_proto(1, b"\0", message.SerializeToString()))
    faults = decoded_protos(Protos(source), values, Request(("free",), FieldType.STRING)).faults
    assert faults.tolist() == [Fault.NONE, Fault.NONE, Fault.TOO_DEEP, Fault.TOO_DEEP]


def test_an_avro_schema_of_a_hundred_types_within_each_other_is_read() -> None:
    assert parse_avro(nested(99))
