"""Making an Avro schema of columns.

Rule: a column that may be null is a union with null first, and null is its default. So adding such a column later is a
compatible change. Inner records are named after their path, decimals are bytes, timestamps have microseconds.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from keyedwm.core.errors import InputError
from keyedwm.core.text import short_repr
from keyedwm.formats.writing_types import called, is_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def avro_schema_of(kind: pa.DataType, name: str) -> str:
    """Return the text of the schema of a column, or of a struct of columns. name: the record's, with its namespace.

    Raises InputError for a column whose name or type Avro does not have.
    """
    space, _, last = name.rpartition(".")
    return json.dumps(_type(kind, (space, last), ()), separators=(",", ":"))


def _type(kind: pa.DataType, name: tuple[str, str], path: tuple[str, ...]) -> Any:  # noqa: PLR0911
    """name: the namespace and the name of a record at this place."""
    if pa.types.is_struct(kind):
        return _record(kind, name, path)
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            raise _unsupported(kind, path, "a map of strings, or an array of structs")
        return {"type": "map", "values": _nullable(kind.item_field, name, (*path, "[]"))}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, (*path, "[]"))}
    if pa.types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'local-' if kind.tz is None else ''}timestamp-micros"}
    if pa.types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_signed_integer(kind):
        return "long" if kind.bit_width == 64 else "int"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    plain = {pa.bool_(): "boolean", pa.float32(): "float", pa.float64(): "double", pa.null(): "null"}
    if kind not in plain and not is_text(kind):
        raise _unsupported(kind, path, "string")
    return plain.get(kind, "string")


def _record(kind: pa.DataType, name: tuple[str, str], path: tuple[str, ...]) -> dict[str, Any]:
    space, last = name
    inner = f"{space}.{last}" if space else last
    fields = []
    for field in kind:
        if not _NAME.fullmatch(field.name):
            raise InputError(
                f"column {'.'.join((*path, field.name))} has a name that Avro does not have: letters, digits and '_' "
                f"are expected: rename it, or give the schema by value.schema"
            )
        type_ = _nullable(field, (inner, field.name), (*path, field.name))
        default = {"default": None} if isinstance(type_, list) or type_ == "null" else {}
        fields.append({"name": field.name, "type": type_, **default})
    return {"type": "record", "name": last, **({"namespace": space} if space else {}), "fields": fields}


def _nullable(field: pa.Field, name: tuple[str, str], path: tuple[str, ...]) -> Any:
    type_ = _type(field.type, name, path)
    return ["null", type_] if field.nullable and type_ != "null" else type_


def _unsupported(kind: pa.DataType, path: tuple[str, ...], instead: str) -> InputError:
    where = ".".join(path).replace(".[]", "[]")
    name = f"column {where or 'of the rows'} has type {short_repr(called(kind))}"
    return InputError(f"{name}, which Avro does not have: cast it to {instead}")
