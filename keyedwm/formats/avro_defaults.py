"""What a reader's schema adds to a writer's: aliases of fields and types, defaults of enums, and defaults of fields.

Rule: Avro's schema resolution, of requested fields alone. A default is read as the field itself would be. If a default
cannot be read, the field is null.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any, TypeAlias

from keyedwm.core.places import branch_of
from keyedwm.formats.avro_kernels import Op
from keyedwm.formats.avro_readings import Reading, reading_of
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Record, RecordField, Union
from keyedwm.formats.field_requests import Request, Steps

# The bytes of a span, or the two numbers that the loop stores.
Constant: TypeAlias = bytes | tuple[int, int]
_WORD = 2**64


def default_of(reader: AvroType, request: Request, depth: int) -> tuple[Reading, Constant] | None:
    """Return the reader's default for a path that a writer's schema lacks from step `depth` on, None if it has none."""
    steps = [step for step in request.path if branch_of(step) is None]
    before = sum(branch_of(step) is None for step in request.path[:depth])
    field = field_at(reader, steps[: before + 1]) if before < len(steps) else None
    if field is None or not field.has_default:
        return None
    return _descend(field.type, field.default, steps[before + 1 :], request)


def field_at(reader: AvroType, path: Steps) -> RecordField | None:
    """Return the reader's field at the end of a path, None if it has none; steps that name branches are skipped."""
    schema: AvroType | None = reader
    field = None
    for step in (step for step in path if branch_of(step) is None):
        field = _field(schema, step)
        schema = None if field is None else field.type
    return field


def written_name(reader: AvroType, path: Steps, names: Collection[str]) -> str | int:
    """Return the writer's name of a path's last field: the same, or an alias. names: of the writer's fields there."""
    field = None if path[-1] in names or branch_of(path[-1]) else field_at(reader, path)
    aliases = () if field is None else field.aliases
    return next((alias for alias in aliases if alias in names), path[-1])


def aliases_of_branch(reader: AvroType, path: Steps, name: str) -> tuple[str, ...]:
    """Return the aliases (full names) of the reader's branch `name` at a path."""
    return tuple(
        alias
        for branch in _branches(reader, path)
        if isinstance(branch, (Record, Leaf)) and name in (branch.name, branch.name.rpartition(".")[2])
        for alias in branch.aliases
    )


def symbols_of(reader: AvroType, path: Steps, leaf: Leaf) -> tuple[str, ...]:
    """Return the symbols of a writer's enum at a path; the reader's default replaces symbols that the reader lacks."""
    for branch in _branches(reader, path):
        if isinstance(branch, Leaf) and branch.default is not None and _is_renamed(leaf, branch):
            return tuple(symbol if symbol in branch.symbols else branch.default for symbol in leaf.symbols)
    return leaf.symbols


def _is_renamed(leaf: Leaf, reader: Leaf) -> bool:
    """Whether a writer's type has the reader's name, whatever the namespace, or one of the reader's aliases."""
    return leaf.name in reader.aliases or leaf.name.rpartition(".")[2] == reader.name.rpartition(".")[2]


def _branches(reader: AvroType, path: Steps) -> tuple[AvroType, ...]:
    """Return the types that the reader has at a path: the branches of a union, or one type."""
    steps = [step for step in path if branch_of(step) is None]
    field = field_at(reader, steps)
    if steps and field is None:
        return ()
    schema = reader if field is None else field.type
    return schema.branches if isinstance(schema, Union) else (schema,)


def _descend(schema: AvroType, default: Any, steps: Steps, request: Request) -> tuple[Reading, Constant] | None:
    """Return the reading and the constant of the value at `steps` within a default, None if it cannot be read."""
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


def _field(schema: AvroType | None, name: str | int) -> RecordField | None:
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
        # The specification writes a byte as the character with this code.
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
