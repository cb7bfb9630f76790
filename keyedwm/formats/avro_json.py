"""Arrays, maps and whole records of Avro as JSON text, in the form of Spark's `to_json`.

Rule: unions have no wrapper, null fields of a record are omitted, bytes are base64, times are ISO 8601, decimals are
numbers. Numbers that JSON lacks are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.core.places import TEXT_TYPES, FieldType, branch_of
from keyedwm.formats.avro_readings import reading_of
from keyedwm.formats.avro_types import AvroType, Kind, Leaf, Logical, Record, Repeated, Union, has_no_bytes
from keyedwm.formats.field_requests import Request, TextWriter
from keyedwm.formats.json_kernels import Op, fill_gaps, write_texts
from keyedwm.formats.spans import Literals

_MOST_DEPTH = 2_048  # levels of records, and of lists, within each other
_MOST_COLUMN = 2**31 - 1
_GAPS = 64
_OPS = {
    Kind.BOOLEAN: (Op.BOOLEAN, 1), Kind.INT: (Op.NUMBER, 0), Kind.LONG: (Op.NUMBER, 0), Kind.FLOAT: (Op.FLOAT, 4),
    Kind.DOUBLE: (Op.DOUBLE, 8), Kind.BYTES: (Op.BYTES, 0), Kind.STRING: (Op.STRING, 0),
}  # fmt: skip
_JSON_LOGICALS = (Logical.TIME_MILLIS, Logical.TIME_MICROS, Logical.DURATION)
_UUID = (Kind.FIXED, Logical.UUID)
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


class Whole(Enum):
    """The request is for the whole JSON text, not for a part."""

    TEXT = 0


def steps_into(schema: AvroType, request: Request, depth: int) -> tuple[str | int, ...] | Whole | None:
    """Return a request's path into the JSON text of the type that its first `depth` steps reach; None if without text.

    A `string` request gets the whole text of an array, map or record. A union with such a branch has a text, too,
    unless one of its leaves has one. A path into an array or a map may be of any type that JSON text can be read as.
    Times of day, durations and fixed UUIDs have the path (): their text without quotes.
    """
    rest = request.path[depth:]
    if isinstance(schema, Repeated) and rest:
        is_in = isinstance(rest[0], str if schema.is_map else int) and not any(map(branch_of, rest))
        return rest if is_in and request.type in TEXT_TYPES else None
    if rest or request.type is not FieldType.STRING:
        return None
    if isinstance(schema, Leaf):
        return () if schema.logical in _JSON_LOGICALS or (schema.kind, schema.logical) == _UUID else None
    if not isinstance(schema, Union):
        return Whole.TEXT
    leaves = [one for one in schema.branches if isinstance(one, Leaf)]
    is_text = any(reading_of(one, request.type) or steps_into(one, request, depth) is not None for one in leaves)
    return None if is_text or len(leaves) == len(schema.branches) else Whole.TEXT


class AvroTexts(TextWriter):
    """Writes values of one type as JSON text. most_bytes: the limit for all texts of one column."""

    def __init__(self, schema: AvroType, most_bytes: int = _MOST_COLUMN) -> None:
        self._schema, self._most_bytes = schema, most_bytes

    @cached_property
    def _compiled(self) -> _Compiler:
        compiler = _Compiler()
        compiler.root(self._schema)
        return compiler

    @cached_property
    def _literals(self) -> Literals:
        return Literals(self._compiled.literals)

    @cached_property
    def _code(self) -> NDArray[np.int32]:
        return np.array(self._compiled.code, np.int32).reshape(-1, 3)

    def write(
        self,
        data: NDArray[np.uint8],
        start: NDArray[np.int64],
        stop: NDArray[np.int64],
        valid: NDArray[np.uint8],
        faults: NDArray[np.uint8],
    ) -> pa.Array:
        """Return the texts as bytes. valid, faults: changed for values without a text."""
        room = int(np.sum((stop - start)[valid != 0])) * 2 + 4_096
        out, gaps = np.empty(room, np.uint8), np.empty((_GAPS, 3), np.int64)
        ends, state = np.zeros(len(start) + 1, np.int64), np.zeros(4, np.int64)
        depths = np.zeros(_MOST_DEPTH, np.int64)
        while True:
            write_texts(
                data, start, stop, valid, 0, self._code, self._literals.bytes, self._literals.ends, out, ends, gaps,
                state, faults, depths, depths.copy(),
            )  # fmt: skip
            if state[0] == len(start):
                break
            if len(out) > self._most_bytes:
                raise self._too_long(len(start))
            if state[3]:
                gaps = np.concatenate([gaps, np.empty_like(gaps)])
            else:
                out = np.concatenate([out, np.empty_like(out)])
        out, gaps = out[: ends[-1]], gaps[: state[2]]
        if len(gaps):
            texts, text_ends = _fractions(gaps)
            filled = np.empty(len(out) + int(text_ends[-1]), np.uint8)
            fill_gaps(out, ends, gaps, texts, text_ends, filled)
            out = filled
        if len(out) > self._most_bytes:
            raise self._too_long(len(start))
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [bits, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.binary(), len(start), buffers)

    def _too_long(self, count: int) -> InputError:
        return InputError(
            f"the JSON texts of {count} records have more than {self._most_bytes} bytes together, more than a column "
            "holds: ask for parts of them, or read fewer records in a batch"
        )


def _fractions(gaps: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the shortest texts of the gaps' numbers, one behind the other, and the borders between them."""
    singles = pa.array(gaps[:, 2].astype(np.uint32).view(np.float32))
    doubles = pa.array(gaps[:, 2].copy().view(np.float64))
    single = pa.array(gaps[:, 1] == 4)
    texts = pc.if_else(single, pc.cast(singles, pa.string()), pc.cast(doubles, pa.string()))
    for text, called in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        texts = pc.if_else(pc.equal(texts, text), called, texts)
    _, ends, data = texts.buffers()
    return np.frombuffer(data, np.uint8), np.frombuffer(ends, np.int32)[: len(texts) + 1].astype(np.int64)


class _Compiler:
    """Writes the steps of a program. The steps of each record are written once, and called."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, int]] = []
        self.literals: list[bytes] = []
        self._places: dict[int, int] = {}
        self._calls: list[tuple[int, Record]] = []

    def root(self, schema: AvroType) -> None:
        """Write the program of a whole value."""
        if isinstance(schema, Union):  # a leaf has no text that was requested, so it is written as null
            self._union([None if isinstance(one, Leaf) else one for one in schema.branches], b"")
        else:
            self._value(schema)
        self._emit(Op.END)
        while self._calls:
            at, record = self._calls.pop()
            if id(record) not in self._places:
                self._places[id(record)] = len(self.code)
                self._record(record)
                self._emit(Op.RETURN)
            self.code[at] = (Op.CALL, self._places[id(record)], 0)

    def _emit(self, op: Op, argument: int = 0, extra: int = 0) -> int:
        self.code.append((op, argument, extra))
        return len(self.code) - 1

    def _literal(self, text: bytes) -> None:
        self._emit(Op.LITERAL, len(self.literals))
        self.literals.append(text)

    def _value(self, schema: AvroType) -> None:
        if isinstance(schema, Union):
            self._union(schema.branches, b"")
        elif isinstance(schema, Record):
            self._calls.append((self._emit(Op.CALL), schema))
        elif isinstance(schema, Repeated):
            self._repeated(schema)
        else:
            self._leaf(schema)

    def _union(self, branches: Sequence[AvroType | None], member: bytes) -> None:
        """Write a union; a branch None is written as `null`. member: a field's name, which is omitted with a null."""
        self._emit(Op.UNION, len(branches))
        table = [self._emit(Op.JUMP) for _ in branches]
        ends = []
        for place, branch in zip(table, branches, strict=True):
            self.code[place] = (Op.JUMP, len(self.code), 0)
            if branch is None:
                self._literal(b"null")
            elif not (member and _is_null(branch)):
                self._member(member)
                self._value(branch)
            ends.append(self._emit(Op.JUMP))
        for place in ends:
            self.code[place] = (Op.JUMP, len(self.code), 0)

    def _member(self, member: bytes) -> None:
        if member:
            self._emit(Op.NEXT)
            self._literal(member)

    def _record(self, record: Record) -> None:
        self._literal(b"{")
        for field in record.fields:
            member = json.dumps(field.name, ensure_ascii=False).encode() + b":"
            if isinstance(field.type, Union):
                self._union(field.type.branches, member)
            elif not _is_null(field.type):
                self._member(member)
                self._value(field.type)
        self._literal(b"}")

    def _repeated(self, repeated: Repeated) -> None:
        self._literal(b"{" if repeated.is_map else b"[")
        is_empty = int(not repeated.is_map and has_no_bytes(repeated.items))
        block = self._emit(Op.BLOCK)
        self._emit(Op.NEXT)
        if repeated.is_map:
            self._emit(Op.STRING)
            self._literal(b":")
        self._value(repeated.items)
        self._emit(Op.LOOP, block)
        self.code[block] = (Op.BLOCK, len(self.code), is_empty)
        self._literal(b"}" if repeated.is_map else b"]")

    def _leaf(self, leaf: Leaf) -> None:
        logical = leaf.logical
        if leaf.kind is Kind.NULL:
            self._literal(b"null")
        elif leaf.kind is Kind.ENUM:
            self._emit(Op.SYMBOL, len(leaf.symbols), len(self.literals))
            self.literals += (json.dumps(symbol, ensure_ascii=False).encode() for symbol in leaf.symbols)
        elif logical is Logical.DECIMAL:
            is_fixed = leaf.kind is Kind.FIXED
            self._emit(Op.FIXED_DECIMAL if is_fixed else Op.DECIMAL, leaf.size, leaf.scale)
        elif logical is Logical.DATE:
            self._emit(Op.DATE)
        elif logical is not None and logical.value.rpartition("-")[2] in _PER_SECOND:
            name, _, unit = logical.value.rpartition("-")
            self._emit(Op.TIME if name == "time" else Op.TIMESTAMP, _PER_SECOND[unit], int(name.startswith("local")))
        elif leaf.kind is Kind.FIXED:
            ops = {Logical.UUID: Op.UUID, Logical.DURATION: Op.DURATION}
            self._emit(Op.FIXED if logical is None else ops[logical], leaf.size)
        else:
            self._emit(*_OPS[leaf.kind])


def _is_null(schema: AvroType) -> bool:
    return isinstance(schema, Leaf) and schema.kind is Kind.NULL
