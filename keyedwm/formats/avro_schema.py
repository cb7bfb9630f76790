"""Reading an Avro schema's text into types.

Rule: a schema that breaks the specification is an error if that changes how bytes are read: an unknown type, a name
twice, a union in a union. Attributes that only document (`doc`, `order`, others) are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from keyedwm.core.errors import InputError
from keyedwm.core.text import short_repr
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Logical, Record, RecordField, Repeated, Union

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_PLAIN = {kind.value: Leaf(kind=kind) for kind in Kind if kind not in (Kind.ENUM, Kind.FIXED)}
_OF_LONG = {
    Logical.TIME_MICROS, Logical.TIMESTAMP_MILLIS, Logical.TIMESTAMP_MICROS, Logical.TIMESTAMP_NANOS,
    Logical.LOCAL_TIMESTAMP_MILLIS, Logical.LOCAL_TIMESTAMP_MICROS, Logical.LOCAL_TIMESTAMP_NANOS,
}  # fmt: skip
# The logical types that may annotate each type.
_ANNOTATES = {
    Kind.INT: {Logical.DATE, Logical.TIME_MILLIS}, Kind.LONG: _OF_LONG, Kind.STRING: {Logical.UUID},
    Kind.BYTES: {Logical.DECIMAL}, Kind.FIXED: {Logical.DECIMAL, Logical.UUID, Logical.DURATION},
}  # fmt: skip
_LOGICAL = {logical.value: logical for logical in Logical}
_SIZES = {Logical.UUID: 16, Logical.DURATION: 12}  # the bytes that such a fixed must have
_MOST_DEPTH = 100  # types within each other, far more than people write
_MOST_NESTING = 400  # of JSON: some levels for each type, and defaults


def parse_avro(text: str, references: Iterable[str] = ()) -> AvroType:
    """Read a schema. references: the texts of the schemas that it names, each before the schemas that name it.

    Raises InputError in one sentence.
    """
    reader = _Reader()
    for reference in references:
        reader.read_text(reference)
    return reader.read_text(text)


class _Reader:
    """Reads schemas, which may name the types of earlier schemas."""

    def __init__(self) -> None:
        self._types_by_name: dict[str, AvroType] = {}
        self._depth = 0

    def read_text(self, text: str) -> AvroType:
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError):
            plain = text.strip()
            if plain not in _PLAIN:
                raise InputError(f"{short_repr(text)} is no JSON, so it is no Avro schema") from None
            schema = plain
        if _nesting(schema) > _MOST_NESTING:
            raise InputError(
                f"an Avro schema of more than {_MOST_NESTING} lists and objects within each other is not supported"
            )
        return self._type(schema, "")

    def _type(self, schema: Any, space: str) -> AvroType:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise InputError(f"an Avro schema of more than {_MOST_DEPTH} types within each other is not supported")
        try:
            if isinstance(schema, str):
                return self._reference(schema, space)
            if isinstance(schema, list):
                return self._union(schema, space)
            if isinstance(schema, dict) and "type" in schema:
                return self._described(schema, space)
        finally:
            self._depth -= 1
        raise InputError(f"{short_repr(json.dumps(schema))} is no Avro type")

    def _reference(self, name: str, space: str) -> AvroType:
        if name in _PLAIN:
            return _PLAIN[name]
        full = f"{space}.{name}" if space and "." not in name else name
        schema_type = self._types_by_name.get(full) or self._types_by_name.get(name)
        if schema_type is None:
            raise InputError(f"the Avro schema names the type {name!r}, which it does not define before")
        return schema_type

    def _union(self, schema: list, space: str) -> Union:
        branches = tuple(self._type(one, space) for one in schema)
        if any(isinstance(branch, Union) for branch in branches):
            raise InputError("the Avro schema has a union in a union")
        if not branches:
            raise InputError("the Avro schema has a union without a branch")
        return Union(branches)

    def _described(self, schema: dict, space: str) -> AvroType:
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._type(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(kind, schema, space)
        if kind in ("array", "map"):
            of = "items" if kind == "array" else "values"
            if of not in schema:
                raise InputError(f"the Avro schema has a {kind} without {of!r}")
            return Repeated(self._type(schema[of], space), kind == "map")
        schema_type = self._reference(kind, space)
        return _annotated(schema_type, schema) if kind in _PLAIN and isinstance(schema_type, Leaf) else schema_type

    def _defined(self, kind: str, schema: dict, space: str) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"the Avro schema has a {kind} with the name {name!r}, which Avro does not allow")
        if "." not in name:
            space = schema.get("namespace", space) or ""
            name = f"{space}.{name}" if space else name
        if name in self._types_by_name:
            raise InputError(f"the Avro schema defines {name!r} twice")
        aliases = _aliases(schema, name.rpartition(".")[0])
        if kind == "enum":
            symbols = _symbols(name, schema)
            default = schema["default"] if schema.get("default") in symbols else None
            return self._keep(name, Leaf(kind=Kind.ENUM, name=name, aliases=aliases, symbols=symbols, default=default))
        if kind == "fixed":
            return self._keep(
                name, _annotated(Leaf(kind=Kind.FIXED, name=name, aliases=aliases, size=_size(name, schema)), schema)
            )
        record = Record(name, aliases)
        self._keep(name, record)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise InputError(f"the Avro schema has the record {name!r} without a list of fields")
        record.define(tuple(self._field(name, one, name.rpartition(".")[0]) for one in fields))
        names = [one.name for one in record.fields]
        _check_unicode(name, names)
        if len(set(names)) < len(names):
            raise InputError(f"the Avro schema has the record {name!r} with two fields of one name")
        return record

    def _keep(self, name: str, type_: AvroType) -> AvroType:
        self._types_by_name[name] = type_
        return type_

    def _field(self, record: str, field: Any, space: str) -> RecordField:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise InputError(f"the Avro schema has the record {record!r} with a field without a name or a type")
        _check_unicode(record, field.get("default"))
        return RecordField(
            field["name"],
            self._type(field["type"], space),
            field.get("default"),
            has_default="default" in field,
            aliases=_aliases(field, ""),
        )


def _nesting(value: Any) -> int:
    """Return how many lists and objects lie within each other; without calls within each other."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


def _aliases(schema: dict, space: str) -> tuple[str, ...]:
    """Return the aliases of a type or a field. space: the namespace of aliases that have none."""
    aliases = schema.get("aliases")
    texts = [one for one in aliases if isinstance(one, str)] if isinstance(aliases, list) else []
    return tuple(f"{space}.{one}" if space and "." not in one else one for one in texts)


def _symbols(name: str, schema: dict) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
        raise InputError(f"the Avro schema has the enum {name!r} without a list of symbols")
    _check_unicode(name, symbols)
    return tuple(symbols)


def _check_unicode(name: str, value: Any) -> None:
    """Reject half of a surrogate pair, which JSON can write and UTF-8 cannot. name: the type with the value."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(f"the Avro schema has {name!r} with a text that is no Unicode") from None


def _size(name: str, schema: dict) -> int:
    size = schema.get("size")
    if type(size) is not int or not 0 <= size < 2**31:
        raise InputError(f"the Avro schema has the fixed {name!r} with the size {size!r}")
    return size


def _annotated(leaf: Leaf, schema: dict) -> Leaf:
    """Return the type with its logical type, if this logical type may annotate it."""
    name = schema.get("logicalType")
    logical = _LOGICAL.get(name) if isinstance(name, str) else None
    if logical is None or logical not in _ANNOTATES.get(leaf.kind, ()):
        return leaf
    if leaf.kind is Kind.FIXED and leaf.size != _SIZES.get(logical, leaf.size):
        return leaf
    if logical is not Logical.DECIMAL:
        return replace(leaf, logical=logical)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return leaf
    return replace(leaf, logical=logical, precision=precision, scale=scale)
