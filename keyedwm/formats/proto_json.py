"""Lists, maps and whole messages of Protobuf as JSON text, written by Google's runtime and Python.

Rule: texts are ProtoJSON, but with the names of the .proto file, and with 64-bit integers as numbers, as in Spark's
`to_json`. A field's parts may lie anywhere in a message, so the whole value is parsed. That is slow, so it happens only
for requested fields of this kind.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import Error, MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from keyedwm.core.places import TEXT_TYPES, FieldType
from keyedwm.formats.faults import Fault
from keyedwm.formats.field_requests import Request, Steps, TextWriter
from keyedwm.formats.json_kernels import MOST_BYTES

# Messages with a form of their own in ProtoJSON; those in _TEXTS are texts.
_TEXTS = frozenset(f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask"))
_OWN_FORM = _TEXTS | {f"google.protobuf.{name}" for name in ("Any", "ListValue", "Struct", "Value")}
_ANY = "google.protobuf.Any"
_MOST_ANYS = 100  # within each other: each is parsed for itself, so Google's runtime has no limit of them
_VALUE = "google.protobuf.{}Value"
WRAPPERS = frozenset(map(_VALUE.format, (
    "Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64"
)))  # fmt: skip


def text_steps(field: FieldDescriptor, request: Request, rest: Steps) -> tuple[bool, tuple[str | int, ...] | None]:
    """Return whether a request is for a field's JSON text, and the path into this text (None: the whole text)."""
    message = field.message_type
    if field.is_repeated and rest:
        is_map = message is not None and message.GetOptions().map_entry
        is_in = isinstance(rest[0], str if is_map else int) and request.type in TEXT_TYPES
        return is_in, tuple(rest)
    if field.type == FieldDescriptor.TYPE_GROUP and rest:
        return request.type in TEXT_TYPES, tuple(rest)
    is_text = request.type is FieldType.STRING and not rest
    if field.is_repeated:
        return is_text, None
    if message is None or message.full_name in WRAPPERS:
        return False, None
    return is_text, () if message.full_name in _TEXTS else None


class _TooDeepError(Exception):
    """A message holds too many others of the type `Any` within each other."""


class ProtoTexts(TextWriter):
    """Writes one field of messages as JSON text. parents: the names of the fields that lead to its message."""

    def __init__(self, message: Descriptor, parents: Sequence[str], field: FieldDescriptor) -> None:
        self._message, self._parents, self._field = message, tuple(parents), field

    def write(
        self,
        data: NDArray[np.uint8],
        start: NDArray[np.int64],
        stop: NDArray[np.int64],
        valid: NDArray[np.uint8],
        faults: NDArray[np.uint8],
    ) -> pa.Array:
        """Return the texts as bytes. valid, faults: changed for values without a text."""
        kind = GetMessageClass(self._message)
        texts: list[bytes | None] = [None] * len(start)
        for row in np.flatnonzero(valid).tolist():
            message = kind()
            try:
                message.ParseFromString(data[start[row] : stop[row]].tobytes())
                text = self._text(message)
            except (DecodeError, UnicodeDecodeError):  # proto2 checks UTF-8 when the text is read
                faults[row], text = Fault.CUT, None
            except _TooDeepError:
                faults[row], text = Fault.TOO_DEEP, None
            if text is not None and len(text) > MOST_BYTES:
                faults[row], text = Fault.TOO_LONG, None
            texts[row] = text
            valid[row] = text is not None
        return pa.array(texts, pa.binary())

    def _text(self, message: Message) -> bytes | None:
        for name in self._parents:
            if not message.HasField(name):
                return None
            message = getattr(message, name)
        if not self._field.is_repeated and not message.HasField(self._field.name):
            return None
        value = json_value(self._field, getattr(message, self._field.name))
        return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_value(field: FieldDescriptor, value: Any) -> Any:
    """Return a field's value in the form that `json.dumps` writes."""
    if not field.is_repeated:
        return _single(field, value)
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return [_single(field, one) for one in value]
    of = entry.fields_by_name["value"]
    return {_key(key): _single(of, value[key]) for key in value}


def _key(key: bool | int | str) -> str:
    return json.dumps(key) if isinstance(key, bool) else str(key)


def _single(field: FieldDescriptor, value: Any) -> Any:  # noqa: PLR0911 (a table of types)
    if field.message_type is not None:
        return _whole(value)
    if field.enum_type is not None:
        symbol = field.enum_type.values_by_number.get(value)
        return value if symbol is None else symbol.name
    if isinstance(value, bytes):
        is_text = field.type == FieldDescriptor.TYPE_STRING  # a string of proto2 that is no UTF-8
        return value.decode("utf-8", "replace") if is_text else base64.b64encode(value).decode()
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(str(np.float32(value))) if field.type == FieldDescriptor.TYPE_FLOAT else value


def _whole(message: Message) -> Any:
    """Return a message as JSON, None for a time out of range and for an `Any` of an unknown type."""
    name = message.DESCRIPTOR.full_name
    if name in WRAPPERS:
        return _single(message.DESCRIPTOR.fields_by_name["value"], message.value)
    if name in _OWN_FORM:
        _check_depth(message)
        try:
            return MessageToDict(message, preserving_proto_field_name=True)
        except (Error, TypeError, ValueError, OverflowError):
            return None
    return {
        f"[{field.full_name}]" if field.is_extension else field.name: json_value(field, value)
        for field, value in message.ListFields()
    }


def _check_depth(message: Message) -> None:
    """Raise _TooDeepError for more messages of the type `Any` within each other than JSON is made of."""
    for _ in range(_MOST_ANYS):
        if message.DESCRIPTOR.full_name != _ANY or not message.Is(message.DESCRIPTOR):
            return
        inner = type(message)()
        inner.ParseFromString(message.value)
        message = inner
    raise _TooDeepError
