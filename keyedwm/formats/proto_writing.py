"""Writing Protobuf out of Arrow columns, and the .proto text of the columns.

Rule: the n-th column is field n. A column that may be null is `optional`, and a null is not written. Any other column
is not written if it is 0, false or empty, as in proto3. Lists and maps have no null items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.core.errors import InputError
from keyedwm.formats.writing import (
    Booleans,
    Encoder,
    Fields,
    FixedNumbers,
    Items,
    Literal,
    Live,
    Numbers,
    Part,
    Required,
    Spans,
    ValueFaultError,
    is_valid,
    joined,
    raw,
    whole_numbers,
    with_length,
)
from keyedwm.formats.writing_types import called, is_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIMESTAMP = "google.protobuf.Timestamp"
_US_PER_S, _NS_PER_US = 1_000_000, 1_000
_FIRST_US, _AFTER_LAST_US = -62_135_596_800 * _US_PER_S, 253_402_300_800 * _US_PER_S  # years 0001 and 10000
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5  # wire types


def proto_schema_of(kind: pa.DataType, name: str) -> str:
    """Return the text of a .proto file with one message for a struct of columns. name: the message's, with its package.

    Raises InputError for a column whose name or type Protobuf does not have.
    """
    if not pa.types.is_struct(kind):
        raise InputError(f"a column of type {called(kind)} is no message of Protobuf: write struct(...) in its place")
    package, _, message = name.rpartition(".")
    lines = list(_message(kind, message, (), ""))
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    if any(_TIMESTAMP in line for line in lines):
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, *lines, ""])


def proto_encoder(kind: pa.DataType) -> Encoder:
    """Return the encoder of a struct of columns that `proto_schema_of` accepts."""
    return Fields(tuple((one.name, place, _field(one, place + 1)) for place, one in enumerate(kind)))


def _message(kind: pa.DataType, name: str, path: tuple[str, ...], indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    names = {field.name for field in kind}
    for number, field in enumerate(kind, 1):
        inner = (*path, field.name)
        if not _NAME.fullmatch(field.name):
            raise InputError(
                f"column {'.'.join(inner)} has a name that Protobuf does not have: letters, digits and '_' are "
                f"expected: rename it"
            )
        item = _item(field.type)
        nested = ""
        if pa.types.is_struct(item):
            nested = field.name[:1].upper() + field.name[1:]
            nested += "_" if nested in names or nested.endswith("Entry") else ""
            yield from _message(item, nested, inner, f"{indent}  ")
        yield f"{indent}  {_declared(field, nested, inner)} {field.name} = {number};"
    yield f"{indent}}}"


def _item(kind: pa.DataType) -> pa.DataType:
    """The type of the items of a list or a map, else the type itself."""
    if pa.types.is_map(kind):
        return kind.item_type
    return kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind


def _declared(field: pa.Field, nested: str, path: tuple[str, ...]) -> str:
    """Return the label and the type that stand before a field's name."""
    kind = field.type
    if pa.types.is_map(kind):
        if not is_text(kind.key_type) and not pa.types.is_signed_integer(kind.key_type):
            raise _unsupported(kind, path, "a map of strings, or an array of structs")
        return f"map<{_scalar(kind.key_type, path)}, {nested or _scalar(kind.item_type, path)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"repeated {nested or _scalar(kind.value_type, path)}"
    name = nested or _scalar(kind, path)
    return f"optional {name}" if field.nullable and not _is_message(kind) else name


def _scalar(kind: pa.DataType, path: tuple[str, ...]) -> str:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _TIMESTAMP
    if pa.types.is_signed_integer(kind):
        return "int64" if kind.bit_width == 64 else "int32"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    plain = {pa.bool_(): "bool", pa.float32(): "float", pa.float64(): "double"}
    if kind in plain or is_text(kind):
        return plain.get(kind, "string")
    if pa.types.is_nested(kind):
        raise _unsupported(kind, path, "a struct with the inner list or map as a field")
    raise _unsupported(kind, path, "timestamp" if pa.types.is_timestamp(kind) else "string")


def _unsupported(kind: pa.DataType, path: tuple[str, ...], instead: str) -> InputError:
    return InputError(
        f"column {'.'.join(path)} has type {called(kind)}, which Protobuf does not have: cast it to {instead}"
    )


def _is_message(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or pa.types.is_timestamp(kind)


def _field(field: pa.Field, number: int) -> Encoder:
    kind = field.type
    if pa.types.is_map(kind):
        entry = Fields((
            ("key", 0, _Tagged(_tag(1, kind.key_type), Required(_value(kind.key_type)))),
            ("", 1, _Tagged(_tag(2, kind.item_type), Required(_value(kind.item_type)))),
        ))  # fmt: skip
        return _Repeated(_Tagged(_tagged(number, _LENGTH), _Sized(entry)), None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = Required(_value(kind.value_type))
        if _wire(kind.value_type) == _LENGTH:
            return _Repeated(_Tagged(_tag(number, kind.value_type), value), None)
        return _Repeated(value, _tagged(number, _LENGTH))
    present = _Present(_Tagged(_tag(number, kind), _value(kind)), is_implicit=not field.nullable)
    return present if field.nullable or _is_message(kind) else Required(present)


def _value(kind: pa.DataType) -> Encoder:
    """The encoder of a value without its tag."""
    if pa.types.is_struct(kind):
        return _Sized(proto_encoder(kind))
    if pa.types.is_timestamp(kind):
        return _Sized(_Timestamps())
    if pa.types.is_boolean(kind):
        return Booleans()
    if pa.types.is_floating(kind):
        return FixedNumbers(kind)
    return Numbers(is_zigzag=False) if pa.types.is_integer(kind) else Spans(is_zigzag=False)


def _wire(kind: pa.DataType) -> int:
    if pa.types.is_floating(kind):
        return _EIGHT if kind.bit_width == 64 else _FOUR
    return _VARINT if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else _LENGTH


def _tag(number: int, kind: pa.DataType) -> bytes:
    return _tagged(number, _wire(kind))


def _tagged(number: int, wire: int) -> bytes:
    rest, out = number << 3 | wire, b""
    while rest > 127:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])


@dataclass(frozen=True, slots=True)
class _Tagged(Encoder):
    """A tag before each value."""

    tag: bytes
    of: Encoder

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the tag and the value of each live row."""
        return joined([Literal(self.tag).part(values, live), self.of.part(values, live)], len(live))


@dataclass(frozen=True, slots=True)
class _Sized(Encoder):
    """A length before each value."""

    of: Encoder

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the length and the value of each live row."""
        return with_length(self.of.part(values, live), live, is_zigzag=False)


@dataclass(frozen=True, slots=True)
class _Present(Encoder):
    """Values that may be absent: null, or if `is_implicit`, also 0, false or empty."""

    of: Encoder
    is_implicit: bool

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return no bytes for an absent value."""
        present = live & is_valid(values)
        if self.is_implicit and not _is_message(values.type):
            present &= _is_set(values)
        return self.of.part(values, present)


def _is_set(values: pa.Array) -> Live:
    """Mark the values that are neither 0, false nor empty."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return np.array(values.fill_null(fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_floating(kind):
        return raw(values, np.uint64 if kind.bit_width == 64 else np.uint32) != 0
    if pa.types.is_integer(kind):
        return whole_numbers(values) != 0
    return Spans(is_zigzag=None).part(values, is_valid(values)).sizes > 0


@dataclass(frozen=True, slots=True)
class _Repeated(Encoder):
    """Items one behind the other. packed: the tag before all of them, None if each item has its own."""

    of: Encoder
    packed: bytes | None

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return no bytes for a list that is null or empty."""
        body = Items.of(values, live & is_valid(values)).part(self.of)
        if self.packed is None:
            return body
        some = body.sizes > 0
        return joined([Literal(self.packed).part(values, some), with_length(body, some, is_zigzag=False)], len(live))


@dataclass(frozen=True, slots=True)
class _Timestamps(Encoder):
    """The fields of a google.protobuf.Timestamp: seconds, rounded down, and nanoseconds."""

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the fields that are not 0."""
        us = whole_numbers(values)
        wrong = live & ((us < _FIRST_US) | (us >= _AFTER_LAST_US))
        if wrong.any():
            raise ValueFaultError(int(wrong.argmax()), f"has a year outside 0001 to 9999, which {_TIMESTAMP} rejects")
        seconds = pa.array(us // _US_PER_S)
        nanos = pa.array(us % _US_PER_S * _NS_PER_US)
        parts = [
            _Present(_Tagged(_tagged(number, _VARINT), Numbers(is_zigzag=False)), is_implicit=True).part(one, live)
            for number, one in ((1, seconds), (2, nanos))
        ]
        return joined(parts, len(live))
