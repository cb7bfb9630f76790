"""The Avro encoding of Python values, for tests' records.

Rule: a value that does not fit its type raises one sentence with its place. A union uses the first branch that the
value fits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from keyedwm.core.errors import InputError
from keyedwm.core.text import short_repr
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Logical, Record, Repeated, Union

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_NANOSECONDS = 1_000
_BITS = {Kind.INT: 32, Kind.LONG: 64}
_FORMATS = {Kind.FLOAT: "<f", Kind.DOUBLE: "<d"}


def encode_avro(schema: AvroType, value: Any, at: str = "$") -> bytes:
    """Return the bytes of a value. A record is a dict; its missing fields get their defaults.

    at: the place of the value, for errors. Raises InputError if the value does not fit.
    """
    if isinstance(schema, Record):
        return _record(schema, value, at)
    if isinstance(schema, Union):
        for number, branch in enumerate(schema.branches):
            with suppress(InputError):
                return encode_number(number) + encode_avro(branch, value, at)
        raise _unfit(schema, value, at)
    if isinstance(schema, Repeated):
        return _repeated(schema, value, at)
    return _leaf(schema, _plain(schema, value), at)


def encode_number(value: int) -> bytes:
    """Encode an int or a long: zigzag, seven bits a byte."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _unfit(schema: AvroType, value: Any, at: str) -> InputError:
    return InputError(f"{at}: {short_repr(value)} does not fit the type {schema.text}")


def _record(schema: Record, value: Any, at: str) -> bytes:
    if not isinstance(value, Mapping):
        raise _unfit(schema, value, at)
    unknown = value.keys() - {field.name for field in schema.fields}
    if unknown:
        names = ", ".join(field.name for field in schema.fields)
        raise InputError(f"{at}: {schema.text} has no field {min(map(str, unknown))!r}: it has {names}")
    out = bytearray()
    for field in schema.fields:
        if field.name not in value and not field.has_default:
            raise InputError(f"{at}: the field {field.name!r} of {schema.text} is missing, and has no default")
        out += encode_avro(field.type, value.get(field.name, field.default), f"{at}.{field.name}")
    return bytes(out)


def _repeated(schema: Repeated, value: Any, at: str) -> bytes:
    if not isinstance(value, Mapping if schema.is_map else list | tuple):
        raise _unfit(schema, value, at)
    out = bytearray(encode_number(len(value)) if value else b"")
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        out += _text(str(key).encode()) if schema.is_map else b""
        out += encode_avro(schema.items, item, f"{at}[{key!r}]")
    return bytes(out) + encode_number(0)


def _plain(schema: Leaf, value: Any) -> Any:  # noqa: PLR0911 (one for each logical type)
    """Return the number, text or bytes of a value of a logical type; any other value as it is."""
    logical = schema.logical
    if isinstance(value, datetime) and logical is not None and "timestamp" in logical.value:
        zoned = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        micros = (zoned - _EPOCH) // _MICROSECOND
        if logical.value.endswith("nanos"):
            return micros * _NANOSECONDS
        return micros if logical.value.endswith("micros") else micros // 1_000
    if logical is Logical.DATE and isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH.toordinal()
    if logical in (Logical.TIME_MILLIS, Logical.TIME_MICROS) and isinstance(value, time):
        micros = (datetime.combine(_EPOCH, value, timezone.utc) - _EPOCH) // _MICROSECOND
        return micros if logical is Logical.TIME_MICROS else micros // 1_000
    if logical is Logical.UUID and isinstance(value, UUID):
        return value.bytes if schema.kind is Kind.FIXED else str(value)
    if logical is Logical.DECIMAL and isinstance(value, Decimal):
        unscaled = value.scaleb(schema.scale)
        if unscaled == unscaled.to_integral_value():
            number = int(unscaled)
            size = schema.size if schema.kind is Kind.FIXED else number.bit_length() // 8 + 1
            with suppress(OverflowError):  # a number too large for its bytes is rejected as it is
                return number.to_bytes(size, "big", signed=True)
    return value


def _leaf(schema: Leaf, value: Any, at: str) -> bytes:  # noqa: PLR0911 (one for each type)
    kind = schema.kind
    if kind is Kind.NULL and value is None:
        return b""
    if kind is Kind.BOOLEAN and isinstance(value, bool):
        return bytes([value])
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if kind in _BITS and is_whole and -(2 ** (_BITS[kind] - 1)) <= value < 2 ** (_BITS[kind] - 1):
        return encode_number(value)
    if kind in _FORMATS and (is_whole or isinstance(value, float)):
        return struct.pack(_FORMATS[kind], value)
    if kind is Kind.STRING and isinstance(value, str):
        return _text(value.encode())
    if kind is Kind.BYTES and isinstance(value, bytes):
        return _text(value)
    if kind is Kind.FIXED and isinstance(value, bytes) and len(value) == schema.size:
        return value
    if kind is Kind.ENUM and value in schema.symbols:
        return encode_number(schema.symbols.index(value))
    raise _unfit(schema, value, at)


def _text(value: bytes) -> bytes:
    return encode_number(len(value)) + value
