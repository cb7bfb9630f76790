"""Writing JSON out of Arrow columns, and the JSON Schema of the columns.

Rule: a null is written as `null`, bytes in base64, times in ISO 8601, a decimal as a number with all of its digits. The
schema is closed, so adding a column later is a compatible change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.json_scan import buffers
from keyedwm.core.errors import InputError
from keyedwm.core.text import nearest, short_repr
from keyedwm.formats import writing_kernels as kernels
from keyedwm.formats.writing import (
    Encoder,
    Fields,
    Items,
    Literal,
    Live,
    Part,
    Required,
    Spans,
    ValueFaultError,
    is_valid,
    joined,
    whole_numbers,
)
from keyedwm.formats.writing_types import called, is_text

DRAFT = "http://json-schema.org/draft-07/schema#"
_FIRST_DAY, _AFTER_LAST_DAY = -719_528, 2_932_897  # 0000-01-01 and 10000-01-01, in days since 1970
_PER_DAY = {unit: 86_400 * per_s for unit, per_s in (("s", 1), ("ms", 1_000), ("us", 1_000_000))}
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


def json_schema_of(kind: pa.DataType, name: str) -> str:
    """Return the text of the schema of a column, or of a struct of columns. name: the title; a namespace is dropped."""
    body = _type(kind, ())
    title = {"title": name.rpartition(".")[2]} if pa.types.is_struct(kind) else {}
    return json.dumps({"$schema": DRAFT, **title, **body}, separators=(",", ":"))


def json_encoder(kind: pa.DataType, path: tuple[str, ...] = ()) -> Encoder:
    """Return the encoder of a column, or of a struct of columns; raises InputError for a type that JSON lacks."""
    if pa.types.is_struct(kind):
        fields: list[tuple[str, int | None, Encoder]] = []
        for place, field in enumerate(kind):
            before = f"{',' if place else '{'}{json.dumps(field.name, ensure_ascii=False)}:"
            fields.append((field.name, None, Literal(before.encode())))
            fields.append((field.name, place, _field(field, (*path, field.name))))
        return Fields((*fields, ("", None, Literal(b"}" if fields else b"{}"))))
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            raise _unsupported(kind, path, "a map of strings, or an array of structs")
        item = _field(kind.item_field, (*path, "[]"))
        return _Group(Fields((("", 0, _Texts(kind.key_type)), ("", None, Literal(b":")), ("", 1, item))), b"{", b"}")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _Group(_field(kind.value_field, (*path, "[]")), b"[", b"]")
    _type(kind, path)  # raises for a type that JSON does not have
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return _Plain(kind) if is_plain or pa.types.is_decimal(kind) else _Texts(kind)


def check_json_schema(text: str, kind: pa.DataType, called_as: str) -> None:
    """Compare a schema's top-level names and types with columns; raises InputError for the first difference."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{called_as} is no JSON, so it is no JSON Schema") from None
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not pa.types.is_struct(kind):
        return
    names = {field.name for field in kind}
    missing = next((name for name in _names(schema, "required", called_as) if name not in names), None)
    if missing is not None:
        raise InputError(f"{called_as} requires the property {missing}, which the rows do not have: add the column")
    for field in kind:
        described = properties.get(field.name)
        if described is None and schema.get("additionalProperties") is False:
            near = nearest(field.name, properties)
            raise InputError(
                f"column {field.name} is no property of {called_as}"
                + (f", did you mean {near}?" if near else ": drop the column, or add the property")
            )
        allowed = {*_names(described, "type", called_as)} if isinstance(described, dict) else set()
        own = _type(field.type, (field.name,))["type"]
        if allowed and own not in allowed and not (own == "integer" and "number" in allowed):
            raise InputError(
                f"column {field.name} has type {called(field.type)}, which is {own} in JSON, and {called_as} has the "
                f"type {' or '.join(sorted(allowed))} there: cast the column, or change the schema"
            )


def _names(schema: dict[str, Any], keyword: str, called_as: str) -> list[str]:
    """Return the strings of a keyword, [] if it is missing; raises InputError if they are no strings."""
    value = schema.get(keyword, [])
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in names):
        raise InputError(f"{called_as} has {keyword} as {short_repr(json.dumps(value))}: strings are expected")
    return names


def _type(kind: pa.DataType, path: tuple[str, ...]) -> dict[str, Any]:  # noqa: PLR0911
    if pa.types.is_struct(kind):
        properties = {field.name: _nullable(field, (*path, field.name)) for field in kind}
        required = [field.name for field in kind if not field.nullable]
        return {
            "type": "object", "properties": properties, **({"required": required} if required else {}),
            "additionalProperties": False,
        }  # fmt: skip
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _nullable(kind.item_field, (*path, "[]"))}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, (*path, "[]"))}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    if pa.types.is_timestamp(kind):
        return {"type": "string", **({} if kind.tz is None else {"format": "date-time"})}
    if pa.types.is_date32(kind):
        return {"type": "string", "format": "date"}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_null(kind):
        return {"type": "null"}
    if pa.types.is_signed_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind) or pa.types.is_decimal128(kind):
        return {"type": "number"}
    if is_text(kind):
        return {"type": "string"}
    raise _unsupported(kind, path, "string")


def _nullable(field: pa.Field, path: tuple[str, ...]) -> dict[str, Any]:
    body = _type(field.type, path)
    return {"oneOf": [{"type": "null"}, body]} if field.nullable and not pa.types.is_null(field.type) else body


def _unsupported(kind: pa.DataType, path: tuple[str, ...], instead: str) -> InputError:
    where = ".".join(path).replace(".[]", "[]")
    return InputError(f"column {where} has type {called(kind)}, which JSON does not have: cast it to {instead}")


def _field(field: pa.Field, path: tuple[str, ...]) -> Encoder:
    if pa.types.is_null(field.type):
        return Literal(b"null")
    encoder = json_encoder(field.type, path)
    return _OrNull(encoder) if field.nullable else Required(encoder)


@dataclass(frozen=True, slots=True)
class _OrNull(Encoder):
    """A value, or null."""

    of: Encoder

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return `null` for a null, else the value."""
        if not values.null_count:
            return self.of.part(values, live)
        valid = is_valid(values)
        null = Literal(b"null").part(values, live & ~valid)
        return joined([null, self.of.part(values, live & valid)], len(live))


@dataclass(frozen=True, slots=True)
class _Plain(Encoder):
    """Numbers and booleans."""

    kind: pa.DataType

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the numbers as Arrow writes them; raises ValueFaultError for NaN and infinite numbers."""
        if pa.types.is_floating(self.kind):
            wrong = live & ~np.array(pc.is_finite(values).fill_null(fill_value=False), np.bool_)
            if wrong.any():
                row = int(wrong.argmax())
                raise ValueFaultError(row, f"is {values[row].as_py()}, which JSON does not have")
        return Spans(is_zigzag=None).part(values.cast(pa.string()), live)


@dataclass(frozen=True, slots=True)
class _Texts(Encoder):
    """Texts, bytes, dates and timestamps, which JSON has as strings."""

    kind: pa.DataType

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the texts in quotes."""
        if pa.types.is_temporal(self.kind):
            _check_years(values, live)
        if pa.types.is_timestamp(self.kind):
            if self.kind.tz is not None:
                values = values.cast(pa.timestamp(self.kind.unit, "UTC"))
            values = pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
        elif pa.types.is_date32(self.kind):
            values = values.cast(pa.string())
        data, ends = buffers(values.cast(pa.binary()))
        data = data.view()
        data.setflags(write=False)  # as other buffers: else an empty array would cause a second compilation
        ends = ends.astype(np.int64)
        sizes = np.zeros(len(live), np.int64)
        if pa.types.is_binary(self.kind) or pa.types.is_large_binary(self.kind):
            sizes[live] = (np.diff(ends)[live] + 2) // 3 * 4 + 2
            return Part(sizes, lambda out, at: kernels.write_base64(data, ends, _BASE64, live, at, out))
        kernels.escaped_sizes(data, ends, live, sizes)
        return Part(sizes, lambda out, at: kernels.write_escaped(data, ends, live, at, out))


def _check_years(values: pa.Array, live: Live) -> None:
    """Reject years beyond ISO 8601's four digits: Arrow's text of some of them is another year, or none."""
    per_day = 1 if pa.types.is_date32(values.type) else _PER_DAY.get(values.type.unit)
    if per_day is None:
        return  # nanoseconds hold no such year
    numbers = whole_numbers(values)
    wrong = live & ((numbers < _FIRST_DAY * per_day) | (numbers >= _AFTER_LAST_DAY * per_day))
    if wrong.any():
        raise ValueFaultError(int(wrong.argmax()), "has a year outside 0000 to 9999, which ISO 8601 does not have")


@dataclass(frozen=True, slots=True)
class _Group(Encoder):
    """The items of a list, or the members of a map, with commas between."""

    of: Encoder
    begin: bytes
    end: bytes

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the items with commas between."""
        items = Items.of(values, live)
        later = items.live.copy()
        later[items.ends[:-1][np.diff(items.ends) > 0]] = False
        comma = Literal(b",").part(items.values, later)
        ends = [Literal(end).part(values, live) for end in (self.begin, self.end)]
        return joined([ends[0], items.part(self.of, comma), ends[1]], len(live))
