"""The defaults of a reader's schema, as constants of a program, for fields that a writer does not have.

Rule: a default is read as the field itself would be; one that cannot be is none, so the field is null.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from keyedwm.core.places import branch_of
from keyedwm.formats.avro_kernels import Op
from keyedwm.formats.avro_readings import Reading, Request, reading_of
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Record, RecordField, Union

# Bytes of a span, or what the loop stores in its two numbers.
Constant: TypeAlias = bytes | tuple[int, int]
_WORD = 2**64


def default_of(reader: AvroType, request: Request, depth: int) -> tuple[Reading, Constant] | None:
    """Return the default of a field whose path a writer's schema lacks from step `depth` on."""
    steps = [step for step in request.path if branch_of(step) is None]
    before = sum(branch_of(step) is None for step in request.path[:depth])
    schema: AvroType | None = reader
    for step in steps[:before]:
        field = _field(schema, step)
        schema = None if field is None else field.type
    field = _field(schema, steps[before]) if before < len(steps) else None
    if field is None or not field.has_default:
        return None
    return _descend(field.type, field.default, steps[before + 1 :], request)


def _descend(schema: AvroType, default: Any, steps: list[str], request: Request) -> tuple[Reading, Constant] | None:
    """The value at some steps within a default."""
    if not steps:
        for leaf in schema.branches if isinstance(schema, Union) else (schema,):
            reading = reading_of(leaf, request.type) if isinstance(leaf, Leaf) else None
            if isinstance(leaf, Leaf) and reading is not None and _is_of(leaf, default):
                constant = _constant(leaf, reading, default)
                return None if constant is None else (reading, constant)
        return None
    field = _field(schema, steps[0])
    if field is None or not isinstance(default, dict):
        return None
    inner = default.get(field.name, field.default)
    return _descend(field.type, inner, steps[1:], request)


def _field(schema: AvroType | None, name: str) -> RecordField | None:
    """The field of a record, or of the first record of a union that has it."""
    records = schema.branches if isinstance(schema, Union) else (schema,)
    fields = [field for record in records if isinstance(record, Record) for field in record.fields]
    return next((field for field in fields if field.name == name), None)


def _is_of(leaf: Leaf, default: Any) -> bool:
    if leaf.kind is Kind.BOOLEAN:
        return isinstance(default, bool)
    if leaf.kind in (Kind.INT, Kind.LONG):
        return type(default) is int and -(2**63) <= default < 2**63
    if leaf.kind in (Kind.FLOAT, Kind.DOUBLE):
        return isinstance(default, (int, float)) and not isinstance(default, bool)
    return isinstance(default, str)


def _constant(leaf: Leaf, reading: Reading, default: Any) -> Constant | None:
    if isinstance(default, str):
        # The specification writes a byte as the character of its number.
        data = default.encode("latin-1", "replace") if leaf.kind in (Kind.BYTES, Kind.FIXED) else default.encode()
        if reading.op not in (Op.DECIMAL, Op.FIXED_DECIMAL):
            return data
        number = int.from_bytes(data, "big", signed=True)
        return (_signed(number % _WORD), number // _WORD) if -(2**127) <= number < 2**127 else None
    if reading.op in (Op.NUMBER, Op.NUMBER_DOWN, Op.BOOLEAN):
        number = default // reading.argument if reading.op is Op.NUMBER_DOWN else default * (reading.argument or 1)
        return (int(number), 0) if abs(number) < _WORD // 2 else None
    try:
        return struct.unpack("<q", struct.pack("<d", default))[0], 0
    except OverflowError:
        return None


def _signed(word: int) -> int:
    return word - _WORD if word >= _WORD // 2 else word
