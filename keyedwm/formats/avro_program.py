"""Compiling a writer's schema and the requested fields to a program of `avro_kernels`.

Rule: values that are not requested are skipped, and bytes behind the last requested field are not read. A field that
the schema lacks is the reader's default, else null. In a union, each branch that can be read as the requested type is
read, the others are null. `unreadable` has the fields without such a branch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.core.places import FieldType, branch_of
from keyedwm.core.text import nearest
from keyedwm.formats.avro_defaults import Constant, aliases_of_branch, default_of, symbols_of, written_name
from keyedwm.formats.avro_json import AvroTexts, Whole, steps_into
from keyedwm.formats.avro_kernels import Op
from keyedwm.formats.avro_readings import reading_of
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Record, Repeated, Union, has_no_bytes
from keyedwm.formats.field_requests import Layout, Request, Steps, Stored

_SIZES = {Kind.BOOLEAN: 1, Kind.FLOAT: 4, Kind.DOUBLE: 8}
# Branches of unions that a path leads through make a product of steps.
_MOST_STEPS = 1_000_000
_MOST_DEPTH = 30  # of types within each other; a record below is skipped by a call
# A slot, its request, and how many steps of the request's path lead here.
_SlotRequest = tuple[int, Request, int]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One writer's schema, compiled.

    code: int32 (steps, 4): op, argument, slot, extra. literals, constants: steps name them by number. layouts: slot →
    how its value is stored. unreadable: slot → the writer's type, which cannot be read as the requested type.
    nearest_paths: slot → the path of the schema that is most similar to a missing path.
    """

    code: NDArray[np.int32]
    literals: tuple[bytes, ...]
    constants: tuple[tuple[int, int], ...]
    layouts: dict[int, Layout]
    unreadable: dict[int, str]
    nearest_paths: dict[int, tuple[str | int, ...]]


def compile_program(schema: AvroType, requests: Sequence[Request], reader: AvroType | None = None) -> Program:
    """Compile a writer's schema. requests: the fields, by slot. reader: has the defaults of missing fields.

    Raises InputError for a schema that needs too many steps.
    """
    compiler = _Compiler(reader)
    compiler.value(schema, [(slot, request, 0) for slot, request in enumerate(requests)], is_last=True)
    compiler.emit(Op.END)
    compiler.subroutines()
    unreadable = {slot: " or ".join(types) for slot, types in compiler.unread.items() if slot not in compiler.layouts}
    return Program(
        code=np.array(compiler.code, np.int32).reshape(-1, 4),
        literals=tuple(compiler.literals),
        constants=tuple(compiler.constants),
        layouts=compiler.layouts,
        unreadable=unreadable,
        nearest_paths={
            slot: path for slot, path in compiler.nearest_paths.items() if slot not in {*compiler.layouts, *unreadable}
        },
    )


class _Compiler:
    """Writes the steps of a program. unread: slot → the writer's types that cannot be read as the requested type."""

    def __init__(self, reader: AvroType | None) -> None:
        self.code: list[tuple[int, int, int, int]] = []
        self.literals: list[bytes] = []
        self.constants: list[tuple[int, int]] = []
        self.layouts: dict[int, Layout] = {}
        self.unread: dict[int, dict[str, None]] = {}
        self.nearest_paths: dict[int, tuple[str | int, ...]] = {}
        self._reader = reader
        self._barrier = 0  # a jump ends at this step, so it is not merged with the step before it
        self._visited: set[int] = set()
        self._depth = 0  # of types within each other
        self._calls: list[tuple[int, Record]] = []
        self._writers: dict[Leaf | int, AvroTexts] = {}

    def emit(self, op: Op, argument: int = 0, slot: int = -1, extra: int = 0) -> int:
        """Add a step and return its place; a skip of numbers or bytes is merged with an equal skip before it."""
        if op in (Op.SKIP_NUMBERS, Op.SKIP_BYTES) and len(self.code) > self._barrier and self.code[-1][0] == op:
            total = self.code[-1][1] + argument
            if total < 2**31:
                self.code[-1] = (op, total, -1, 0)
                return len(self.code) - 1
        if len(self.code) == _MOST_STEPS:
            raise InputError(f"the Avro schema makes more than {_MOST_STEPS} steps of the fields that are read")
        self.code.append((op, argument, slot, extra))
        return len(self.code) - 1

    def value(self, schema: AvroType, needs: list[_SlotRequest], *, is_last: bool) -> None:
        """Read or skip a value. is_last: no field behind the value is requested."""
        if not isinstance(schema, Union):
            needs = [self._past_branch(need, schema) for need in needs]
        paths = [(slot, steps_into(schema, request, depth)) for slot, request, depth in needs]
        parts = {slot: steps for slot, steps in paths if steps is not None}
        slots = [slot for slot, steps in parts.items() if self._keeps(slot, self._layout_of(schema, steps))]
        for slot in slots:
            self.emit(Op.BEGIN, 0, slot)
        self._depth += 1
        self._value(schema, [one for one in needs if one[0] not in parts], is_last=is_last and not slots)
        self._depth -= 1
        for slot in slots:
            self.emit(Op.FINISH, 0, slot)

    def _value(self, schema: AvroType, needs: list[_SlotRequest], *, is_last: bool) -> None:
        if isinstance(schema, Union):
            self._union(schema, needs, is_last=is_last)
            return
        if isinstance(schema, Record):
            self._record(schema, needs, is_last=is_last)
            return
        for slot, request, depth in needs:
            if not (isinstance(schema, Leaf) and depth == len(request.path)):
                self._refuse(slot, schema)  # the path leads into a type without fields, or ends at an array or a map
        if isinstance(schema, Repeated):
            self._repeated(schema)
        else:
            self._leaf(schema, [need for need in needs if need[2] == len(need[1].path)])

    def _layout_of(self, schema: AvroType, steps: tuple[str | int, ...] | Whole) -> Layout:
        """Return the layout of a type that is written as JSON text; each type has one writer."""
        writer = self._writers.setdefault(schema if isinstance(schema, Leaf) else id(schema), AvroTexts(schema))
        return Layout(Stored.PARTS, writer=writer, steps=None if isinstance(steps, Whole) else steps)

    def subroutines(self) -> None:
        """Write the steps of the records that calls skip, each record once."""
        places: dict[int, int] = {}
        while self._calls:
            at, record = self._calls.pop()
            if id(record) not in places:
                places[id(record)] = self._label()
                self._visited.add(id(record))
                self._fields(record, [], is_last=False)
                self.emit(Op.RETURN)
            self.code[at] = (Op.CALL, places[id(record)], -1, 0)

    def _label(self) -> int:
        self._barrier = len(self.code)
        return self._barrier

    def _refuse(self, slot: int, schema: AvroType) -> None:
        if schema != Leaf(kind=Kind.NULL):
            self.unread.setdefault(slot, {})[schema.text] = None

    def _union(self, union: Union, needs: list[_SlotRequest], *, is_last: bool) -> None:
        self.emit(Op.UNION, len(union.branches))
        table = [self.emit(Op.JUMP) for _ in union.branches]
        ends = []
        for place, branch in zip(table, union.branches, strict=True):
            self.code[place] = (Op.JUMP, self._label(), -1, 0)
            some = [one for one in needs if self._may_be(one, branch) and _is_meant(one, branch, union)]
            self.value(branch, some, is_last=is_last)
            ends.append(self.emit(Op.JUMP))
        behind = self._label()
        for place in ends:
            self.code[place] = (Op.JUMP, behind, -1, 0)

    def _record(self, record: Record, needs: list[_SlotRequest], *, is_last: bool) -> None:
        for slot, request, depth in needs:
            if depth == len(request.path):
                self._refuse(slot, record)
        within = [need for need in needs if need[2] < len(need[1].path)]
        if within:
            self._fields(record, within, is_last=is_last)
        elif record.has_no_bytes:
            pass  # else a chain of n records, each with the next one twice, would take 2**n steps
        elif id(record) in self._visited or self._depth > _MOST_DEPTH:
            self._calls.append((self.emit(Op.CALL), record))
            self._label()
        else:
            self._visited.add(id(record))
            self._fields(record, [], is_last=is_last)

    def _fields(self, record: Record, needs: list[_SlotRequest], *, is_last: bool) -> None:
        names = {field.name for field in record.fields}
        by_name: dict[str | int, list[_SlotRequest]] = {}
        for slot, request, depth in needs:
            name = self._writer_name(request.path[: depth + 1], names)
            if name not in names:
                self._missing((slot, request, depth), names)
            by_name.setdefault(name, []).append((slot, request, depth + 1))
        by_field = [by_name.get(field.name, []) for field in record.fields]
        for number, (field, some) in enumerate(zip(record.fields, by_field, strict=True)):
            is_behind = is_last and not any(by_field[number + 1 :])
            if is_behind and not some:
                self.emit(Op.END)
                return
            self.value(field.type, some, is_last=is_behind)

    def _writer_name(self, path: Steps, names: Collection[str]) -> str | int:
        return path[-1] if self._reader is None else written_name(self._reader, path, names)

    def _symbols(self, leaf: Leaf, path: Steps) -> tuple[str, ...]:
        return leaf.symbols if self._reader is None else symbols_of(self._reader, path, leaf)

    def _may_be(self, need: _SlotRequest, branch: AvroType) -> bool:
        """Whether a path leads into a branch: the path names this branch, or none."""
        _, request, depth = need
        branch_name = branch_of(request.path[depth]) if depth < len(request.path) else None
        if branch_name is None or branch_name in _names(branch):
            return True
        aliases = () if self._reader is None else aliases_of_branch(self._reader, request.path[:depth], branch_name)
        return getattr(branch, "name", "") in aliases

    def _past_branch(self, need: _SlotRequest, schema: AvroType) -> _SlotRequest:
        slot, request, depth = need
        is_named = depth < len(request.path) and branch_of(request.path[depth]) is not None
        return (slot, request, depth + 1) if is_named and self._may_be(need, schema) else need

    def _missing(self, need: _SlotRequest, names: Collection[str]) -> None:
        """Give a missing field the default of the reader's schema, if there is one. names: the fields of the record."""
        slot, request, depth = need
        step = request.path[depth]
        near = nearest(step, names) if isinstance(step, str) else None
        if near is not None:
            self.nearest_paths[slot] = (*request.path[:depth], near, *request.path[depth + 1 :])
        default = None if self._reader is None else default_of(self._reader, request, depth)
        if default is None:
            return
        reading, constant = default
        if self._keeps(slot, reading.layout):
            self._constant(slot, constant)

    def _keeps(self, slot: int, layout: Layout) -> bool:
        """Whether the slot has this layout, or had none yet. If it has another layout, the value is null."""
        return self.layouts.setdefault(slot, layout) == layout

    def _constant(self, slot: int, constant: Constant) -> None:
        if isinstance(constant, bytes):
            self.literals.append(constant)
            self.emit(Op.WORD, 0, slot, len(self.literals) - 1)
        else:
            self.constants.append(constant)
            self.emit(Op.CONSTANT, 0, slot, len(self.constants) - 1)

    def _repeated(self, repeated: Repeated) -> None:
        is_empty = not repeated.is_map and has_no_bytes(repeated.items)
        block = self.emit(Op.BLOCK, 0, -1, int(is_empty))
        self._label()
        if not is_empty:
            if repeated.is_map:
                self.emit(Op.SKIP_TEXT)
            self.value(repeated.items, [], is_last=False)
            self.emit(Op.LOOP, block)
        self.code[block] = (Op.BLOCK, self._label(), -1, int(is_empty))

    def _leaf(self, leaf: Leaf, needs: list[_SlotRequest]) -> None:
        readings = [(slot, reading_of(leaf, request.type)) for slot, request, _ in needs]
        some = [
            (slot, reading) for slot, reading in readings if reading is not None and self._keeps(slot, reading.layout)
        ]
        for slot, reading in readings:
            if reading is None:
                self._refuse(slot, leaf)
        if not some:
            self._skip(leaf)
            return
        paths = {slot: request.path for slot, request, _ in needs}
        if len(some) > 1:
            self.emit(Op.MARK)
        for number, (slot, reading) in enumerate(some):
            if number:
                self.emit(Op.REWIND)
            if reading.op is Op.SYMBOL:
                self.emit(Op.SYMBOL, len(leaf.symbols), slot, len(self.literals))
                self.literals += (symbol.encode() for symbol in self._symbols(leaf, paths[slot]))
            else:
                self.emit(reading.op, reading.argument, slot)

    def _skip(self, leaf: Leaf) -> None:
        if leaf.kind in (Kind.INT, Kind.LONG):
            self.emit(Op.SKIP_NUMBERS, 1)
        elif leaf.kind is Kind.ENUM:
            self.emit(Op.SYMBOL, len(leaf.symbols))
        elif leaf.kind in (Kind.BYTES, Kind.STRING):
            self.emit(Op.SKIP_TEXT)
        elif leaf.kind is not Kind.NULL:
            self.emit(Op.SKIP_BYTES, leaf.size if leaf.kind is Kind.FIXED else _SIZES[leaf.kind])


def _is_meant(request_at: _SlotRequest, branch: AvroType, union: Union) -> bool:
    """Whether a path that names no branch leads into `branch`. A leaf, or a record's field, precedes JSON text."""
    _, request, depth = request_at
    if depth == len(request.path):
        return isinstance(branch, Leaf) or request.type is not FieldType.STRING
    if not (isinstance(branch, Repeated) and branch.is_map):
        return True
    fields = [field.name for one in union.branches if isinstance(one, Record) for field in one.fields]
    return request.path[depth] not in fields


def _names(schema: AvroType) -> tuple[str, ...]:
    """Return the names of a branch: a type's own, with and without its namespace, or the kind."""
    if isinstance(schema, Repeated):
        return (schema.text,)
    if isinstance(schema, Leaf) and not schema.name:
        return (schema.kind.value,)
    name = getattr(schema, "name", "")
    return (name, name.rpartition(".")[2])
