"""Fields of generated messages against Google's Protobuf: `python -m tests.formats.proto_laws 10000 [FIRST]`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import ANY

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from keyedwm.core.places import FieldType, Unit
from keyedwm.core.schemas import RegisteredSchema, SchemaKind
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request
from keyedwm.formats.heads import Bodies, Head, bodies_of
from keyedwm.formats.proto_columns import LinkedMessages, decode
from keyedwm.formats.proto_program import compile_message
from keyedwm.formats.proto_schema import link

WHOLE = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
SCALARS = (*WHOLE, "float", "double", "bool", "string", "bytes")
GOOGLES = ("Timestamp", "Int64Value", "StringValue", "BoolValue", "DoubleValue", "Duration")
REQUEST_TYPES = (
    FieldType.BIGINT, FieldType.DOUBLE, FieldType.STRING, FieldType.BINARY, FieldType.BOOLEAN, FieldType.TIMESTAMP,
    Unit.MILLISECONDS, Unit.NANOSECONDS,
)  # fmt: skip
_EDGES = (0, 1, -1, 127, 128, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
_VALUES = 12


def check(seed: int) -> None:
    """Two messages in one batch: what is read is what Google's runtime reads, also of damaged bytes that it reads."""
    chance = random.Random(f"{seed} proto")
    messages = [_linked(chance) for _ in range(2)]
    requests = [_request(chance, chance.choice(messages)) for _ in range(chance.randint(1, 5))]
    more = random.Random(f"{seed} texts")
    requests += [Request(one.path, FieldType.STRING) for one in requests if more.random() < 0.4]
    programs = [compile_message(message, requests) for message in messages]
    which = np.array([chance.randrange(2) for _ in range(_VALUES)], np.int32)
    bodies = [_body(chance, messages[number]) for number in which]
    bodies_by_schema: Bodies = bodies_of(Head.NONE, pa.array(bodies, pa.binary()))
    columns = decode(LinkedMessages(programs), bodies_by_schema, which, requests)
    for row, body in enumerate(bodies):
        message = GetMessageClass(messages[which[row]])()
        try:
            message.ParseFromString(body)
            rights = [expected(message, request) for request in requests]
        except (DecodeError, UnicodeDecodeError):  # texts of proto2 are looked at when they are asked for
            continue
        assert bodies_by_schema.faults[row] == Fault.NONE, (seed, row)
        for request, column, right in zip(requests, columns, rights, strict=True):
            assert right == comparable_value(column, row), (
                seed,
                row,
                request,
                comparable_value(column, row),
                right,
                body,
            )


class Parts:
    """What a list, a map or a whole message holds; equal to its JSON text, and to null where it is not there."""

    def __init__(self, message: Message, name: str) -> None:
        self._whole, self._name = type(message)(), name
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated:
            getattr(self._whole, name).MergeFrom(getattr(message, name))
        elif message.HasField(name):
            getattr(self._whole, name).CopyFrom(getattr(message, name))
        self._is_absent = not field.is_repeated and not message.HasField(name)
        self._whole.DiscardUnknownFields()

    def __eq__(self, text: object) -> bool:
        if text is None or self._is_absent:
            return text is None and self._is_absent
        if "\ufffd" in str(text):
            return True  # damage has made a text no UTF-8, which Google's runtime gives as bytes
        try:
            right = MessageToDict(self._whole)
        except (Error, ValueError):
            return True  # ProtoJSON has no form for a time out of range
        # As texts: a number that is none has one form there, whatever its bits.
        return MessageToDict(ParseDict({self._name: json.loads(str(text))}, type(self._whole)())) == right

    __hash__ = None  # type: ignore[assignment]


def comparable_value(column: Any, row: int) -> Any:
    """A value as Python has it, comparable with itself also if it is no number."""
    if isinstance(column, tuple):
        return int(column[0][row]) if column[1][row] else None
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())[row].as_py()
    value = column[row].as_py()
    return "nan" if value != value else value  # noqa: PLR0124


def expected(message: Message, request: Request) -> Any:  # noqa: PLR0911 (a list of rules)
    """What Google's runtime has at a path, as the type that is asked for; None for what cannot be read so."""
    for step in request.path[:-1]:
        field = message.DESCRIPTOR.fields_by_name.get(step)
        if field is None or field.is_repeated or field.message_type is None or not message.HasField(step):
            return None
        message = getattr(message, step)
    name = request.path[-1]
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        return None
    whole = field.message_type is not None and not field.message_type.full_name.startswith("google.")
    if request.type is FieldType.STRING and (field.is_repeated or whole):
        return Parts(message, name)
    if field.is_repeated:
        return None
    if field.message_type is not None and field.message_type.full_name.endswith("Value"):
        if not message.HasField(name):
            return None
        message, field = getattr(message, name), field.message_type.fields_by_name["value"]
    if field.has_presence and not message.HasField(field.name) and not field.has_default_value:
        return None
    return _as(field, getattr(message, field.name), request.type)


def _as(field: FieldDescriptor, value: Any, as_type: Any) -> Any:  # noqa: PLR0911 (a table of types)
    if field.message_type is not None:
        return _time(field, value, as_type)
    kind = field.type
    if as_type is FieldType.STRING and kind == FieldDescriptor.TYPE_ENUM:
        names = field.enum_type.values_by_number
        return names[value].name if value in names else None
    if kind == FieldDescriptor.TYPE_ENUM:
        return None
    if isinstance(value, bool):
        return value if as_type is FieldType.BOOLEAN else None
    if isinstance(value, (str, bytes)):
        raw = value.encode() if isinstance(value, str) else value
        return {FieldType.BINARY: raw, FieldType.STRING: raw.decode(errors="replace")}.get(as_type)
    if as_type is FieldType.DOUBLE:
        return "nan" if value != value else float(value)  # noqa: PLR0124
    if isinstance(value, float) and isinstance(as_type, Unit):
        return ANY  # read as the text of the number, which tests of JSON prove
    if isinstance(value, int):
        if as_type is FieldType.BIGINT:
            return value if value < 2**63 else None
        if isinstance(as_type, Unit) and abs(value) < 2**62:
            return _in_range(value // (1_000_000 if as_type is Unit.NANOSECONDS else 1))
    return None


def _time(field: FieldDescriptor, value: Any, as_type: Any) -> int | None:
    if as_type is FieldType.STRING:
        try:
            return value.ToJsonString()
        except ValueError:
            return None
    if field.message_type.full_name != "google.protobuf.Timestamp" or abs(value.seconds) >= 2**63 // 1_000_000 - 1:
        return None
    if as_type is FieldType.TIMESTAMP:
        return value.seconds * 1_000_000 + value.nanos // 1_000
    return _in_range(value.seconds * 1_000 + value.nanos // 1_000_000) if isinstance(as_type, Unit) else None


def _in_range(ms: int) -> int | None:
    from keyedwm.arrow.time_text import MAX_EVENT_MS, MIN_EVENT_MS

    return ms if MIN_EVENT_MS <= ms <= MAX_EVENT_MS else None


def _linked(chance: random.Random) -> Descriptor:
    file = link(RegisteredSchema(1, SchemaKind.PROTOBUF, source(chance)))
    return chance.choice([*file.message_types_by_name.values()])


def source(chance: random.Random) -> str:
    """A .proto file of some messages that hold each other."""
    syntax = chance.choice(("proto2", "proto3"))
    lines = [f'syntax = "{syntax}"; // {chance.random()}', "package p.q;"]
    lines += [f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "wrappers", "duration")]
    lines.append("enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; MINUS = -7; reserved 9; }")
    for number in range(chance.randint(1, 3)):
        lines += [f"message M{number} {{", *_fields(chance, syntax, number), "}"]
    return "\n".join(lines)


def _fields(chance: random.Random, syntax: str, number: int) -> Iterator[str]:
    numbers = iter(chance.sample(range(1, 40), 12))
    names = iter("abcdefghijkl")
    for _ in range(chance.randint(1, 5)):
        kind = _type(chance, number)
        label = chance.choice(("repeated ", "optional ", "optional " if syntax == "proto2" else "", "map"))
        if label == "map":
            yield f"  map<string, {kind}> {next(names)} = {next(numbers)};"
            continue
        options = _default(chance, kind) if syntax == "proto2" and label == "optional " else ""
        yield f"  {label}{kind} {next(names)} = {next(numbers)}{options};"
    if chance.random() < 0.6:
        yield "  oneof some {"
        for _ in range(chance.randint(1, 4)):
            yield f"    {_type(chance, number)} {next(names)} = {next(numbers)};"
        yield "  }"


def _type(chance: random.Random, number: int) -> str:
    others = ["E", ".p.q.E", *(f"M{other}" for other in range(number + 1)), f"q.M{number}"]
    google = f"google.protobuf.{chance.choice(GOOGLES)}"
    return chance.choice((chance.choice(SCALARS), chance.choice(SCALARS), chance.choice(others), google))


def _default(chance: random.Random, kind: str) -> str:
    texts = {
        "string": r'"a\tb" "c"',
        "bytes": r'"\x01\377"',
        "bool": "true",
        "double": "-1.5e3",
        "float": "inf",
        "E": "UNO",
    }
    texts |= dict.fromkeys(WHOLE, "0x7f") | {"int32": "-5", "uint64": str(2**64 - 1)}
    return f" [deprecated = true, default = {texts[kind]}]" if kind in texts and chance.random() < 0.5 else ""


def _request(chance: random.Random, message: Descriptor) -> Request:
    path: list[str] = []
    while True:
        fields = [*message.fields]
        if not fields:
            return Request((*path, "none"), chance.choice(REQUEST_TYPES))
        field = chance.choice(fields)
        path.append(field.name)
        goes_on = field.message_type is not None and not field.is_repeated and len(path) < 4
        if not goes_on or (field.message_type.full_name.startswith("google.") and chance.random() < 0.7):
            return Request(tuple(path), chance.choice(REQUEST_TYPES))
        message = field.message_type


def _body(chance: random.Random, message: Descriptor) -> bytes:
    """Bytes of a message, of two that are joined, with other fields among them, or damaged."""
    parts = [_message(chance, message, 3).SerializeToString() for _ in range(chance.choice((1, 1, 2, 3)))]
    body = b"".join(parts)
    if chance.random() < 0.3:
        body = bytes([chance.choice((0xF8, 0xFA)), 0x3F, 1, 7]) + body  # a field that no schema has
    if chance.random() < 0.3 and body:
        at = chance.randrange(len(body))
        body = chance.choice((body[:at], body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]))
    return body


def _message(chance: random.Random, kind: Descriptor, depth: int) -> Message:
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if chance.random() < 0.35 or (field.message_type is not None and (depth == 0 or _is_map(field))):
            continue
        if field.is_repeated:
            _fill(chance, getattr(message, field.name), field, depth)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(_message(chance, field.message_type, depth - 1))
        else:
            setattr(message, field.name, _scalar(chance, field))
    return message


def _fill(chance: random.Random, many: Any, field: FieldDescriptor, depth: int) -> None:
    for _ in range(chance.randint(0, 3)):
        if field.message_type is not None:
            many.append(_message(chance, field.message_type, depth - 1))
        else:
            many.append(_scalar(chance, field))


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type.GetOptions().map_entry


def _scalar(chance: random.Random, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return chance.choice((0, 1, -7))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(("", "a", "ü€", "x" * 200))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice((b"", b"a", b"\x00\x01", b"x" * 200))
    if field.cpp_type in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return chance.choice((0.0, -0.0, 1.5, -2.25, float("inf"), float("nan"), 3.0e10))
    low, high = _bounds(field)
    return chance.choice([edge for edge in _EDGES if low <= edge <= high] + [chance.randint(low, high)])


def _bounds(field: FieldDescriptor) -> tuple[int, int]:
    return {
        FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1), FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1), FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    }[field.cpp_type]  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Play as many seeds as asked for, from the first one that is named."""
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    for seed in range(first, first + count):
        check(seed)
    print(f"{count} seeds from {first}: equal")


if __name__ == "__main__":
    main(sys.argv[1:])
