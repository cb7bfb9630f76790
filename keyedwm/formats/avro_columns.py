"""What a run of programs has stored, as Arrow columns and event times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import text_of
from keyedwm.arrow.schema import arrow_type
from keyedwm.arrow.time_text import MAX_EVENT_MS, MIN_EVENT_MS, milliseconds
from keyedwm.core.places import DecimalType, FieldType, Unit
from keyedwm.formats.avro_kernels import Op, gather_texts, run_programs, text_sizes
from keyedwm.formats.avro_program import Program
from keyedwm.formats.avro_readings import Request, Stored
from keyedwm.formats.heads import Bodies

# How deep records and lists lie within each other at most.
_MOST_DEPTH = 1_024
_JUMPS = [int(op) for op in (Op.JUMP, Op.BLOCK, Op.LOOP, Op.CALL)]
EventTimes: TypeAlias = tuple[NDArray[np.int64], NDArray[np.bool_]]
Column: TypeAlias = pa.Array | EventTimes


@dataclass(frozen=True, eq=False)
class Linked:
    """Programs one behind the other, with what their steps name."""

    programs: Sequence[Program]

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """The place of each program's first step."""
        return np.cumsum([0, *(len(program.code) for program in self.programs)])[:-1].astype(np.int64)

    @cached_property
    def code(self) -> NDArray[np.int32]:
        """The steps of all programs."""
        words = np.cumsum([0, *(len(program.words) for program in self.programs)])
        constants = np.cumsum([0, *(len(program.constants) for program in self.programs)])
        moved = []
        for number, program in enumerate(self.programs):
            code = program.code.copy()
            code[np.isin(code[:, 0], _JUMPS), 1] += self.begins[number]
            code[np.isin(code[:, 0], [int(Op.SYMBOL), int(Op.WORD)]), 3] += words[number]
            code[code[:, 0] == int(Op.CONSTANT), 3] += constants[number]
            moved.append(code)
        return np.concatenate([*moved, np.zeros((1, 4), np.int32)])

    @cached_property
    def _words(self) -> list[bytes]:
        return [word for program in self.programs for word in program.words]

    @cached_property
    def word_ends(self) -> NDArray[np.int64]:
        """The words' positions in `word_bytes`, and the end of the last."""
        return np.cumsum([0, *map(len, self._words)]).astype(np.int64)

    @cached_property
    def word_bytes(self) -> NDArray[np.uint8]:
        """All words."""
        return np.frombuffer(b"".join(self._words) or b"\0", np.uint8)

    @cached_property
    def constants(self) -> NDArray[np.int64]:
        """Two numbers for each constant."""
        pairs = [pair for program in self.programs for pair in program.constants]
        return np.array(pairs or [(0, 0)], np.int64)


class _Slots:
    """What the programs have stored, a row for each slot."""

    def __init__(self, linked: Linked, bodies: Bodies, which: NDArray[np.int32], slots: int) -> None:
        self.linked, self.data, self.which = linked, bodies.data, which
        shape = (slots, len(which))
        self.values, self.until = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.valid = np.zeros(shape, np.uint8)
        depths = np.zeros(_MOST_DEPTH, np.int64)
        if not len(which):
            return
        run_programs(
            bodies.data, bodies.start, bodies.stop, which, linked.begins, linked.code, linked.word_ends,
            linked.constants, self.values, self.until, self.valid, bodies.faults, depths, depths.copy(),
        )  # fmt: skip

    def texts(self, slot: int, valid: NDArray[np.uint8]) -> pa.Array:
        """Return spans as bytes."""
        ends = np.zeros(len(valid) + 1, np.int32)
        start = self.values[slot]
        text_sizes(start, self.until[slot], valid, ends)
        out = np.empty(ends[-1], np.uint8)
        gather_texts(self.data, self.linked.word_bytes, start, valid, ends, out)
        return _from_buffers(pa.binary(), valid, [pa.py_buffer(ends), pa.py_buffer(out)])

    def stored_as(self, slot: int, stored: Stored) -> NDArray[np.bool_] | None:
        """Mark the rows whose value is stored so, None for none."""
        some = [
            number
            for number, program in enumerate(self.linked.programs)
            if slot in program.readings and program.readings[slot].stored is stored
        ]
        if not some:
            return None
        return np.isin(self.which, some) & (self.valid[slot] != 0)


def decode(linked: Linked, bodies: Bodies, which: NDArray[np.int32], requests: Sequence[Request]) -> list[Column]:
    """Read the fields that are asked for out of some bodies, whose faults are added to theirs.

    which: of the programs, -1 for none. Returns an Arrow array for each request, or of one for an event time ms and
    validity.
    """
    slots = _Slots(linked, bodies, which, len(requests))
    return [_column(slots, slot, request) for slot, request in enumerate(requests)]


def _column(slots: _Slots, slot: int, request: Request) -> Column:
    asked, valid = request.type, slots.valid[slot]
    if isinstance(asked, Unit):
        return _event_times(slots, slot, asked)
    if isinstance(asked, DecimalType):
        return _decimals(slots, slot, asked)
    if asked in (FieldType.BINARY, FieldType.STRING):
        found = slots.texts(slot, valid)
        return found if asked is FieldType.BINARY else text_of(found)
    if asked is FieldType.BOOLEAN:
        return pa.array(slots.values[slot] != 0, mask=valid == 0)
    if asked is FieldType.DATE:
        days = slots.values[slot]
        fits = valid.astype(bool) & (days >= -(2**31)) & (days < 2**31)
        return pa.array(np.where(fits, days, 0).astype(np.int32), mask=~fits).view(pa.date32())
    # Spark's double keeps the bits that the loop has stored.
    return _from_buffers(arrow_type(asked), valid, [pa.py_buffer(slots.values[slot])])


def _from_buffers(kind: pa.DataType, valid: NDArray[np.uint8], buffers: list[pa.Buffer]) -> pa.Array:
    nulls = len(valid) - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(kind, len(valid), [bits, *buffers], nulls)


def _event_times(slots: _Slots, slot: int, unit: Unit) -> EventTimes:
    """Return ms and validity; texts and doubles are read as in JSON."""
    ms, valid = slots.values[slot].copy(), slots.valid[slot].astype(bool)
    for stored in (Stored.SPAN, Stored.DOUBLE):
        rows = slots.stored_as(slot, stored)
        if rows is None:
            continue
        if stored is Stored.SPAN:
            texts = slots.texts(slot, rows.astype(np.uint8))
        else:
            texts = pc.cast(pa.array(np.where(rows, slots.values[slot], 0).view(np.float64)), pa.string())
        _, ends, data = texts.buffers()
        ends = np.frombuffer(ends, np.int32)[: len(ms) + 1].astype(np.int64)
        found = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        read_ms, read = milliseconds(found, np.where(rows, ends[:-1], -1), ends[1:], unit)
        ms, valid = np.where(rows, read_ms, ms), np.where(rows, read, valid)
    fits = valid & (ms >= MIN_EVENT_MS) & (ms <= MAX_EVENT_MS)
    return np.where(fits, ms, 0), fits


def _decimals(slots: _Slots, slot: int, asked: DecimalType) -> pa.Array:
    """Return decimals of the scale that is asked for; a number of more digits is null."""
    words = np.stack([slots.values[slot], slots.until[slot]], axis=1)
    wide = arrow_type(DecimalType(38, asked.scale))
    result = pa.nulls(len(words), arrow_type(asked))
    scales = {one.readings[slot].scale for one in slots.linked.programs if slot in one.readings}
    for scale in scales:
        some = [n for n, one in enumerate(slots.linked.programs) if slot in one.readings]
        some = [n for n in some if slots.linked.programs[n].readings[slot].scale == scale]
        rows = slots.valid[slot].astype(bool) & np.isin(slots.which, some)
        most = 10 ** (asked.precision - asked.scale + scale)
        high, low = words[:, 1], words[:, 0].view(np.uint64)
        rows &= _is_below(high, low, most)
        own = _from_buffers(pa.decimal128(38, scale), rows.astype(np.uint8), [pa.py_buffer(words)])
        if scale != asked.scale:
            own = own.cast(wide)
        result = pc.coalesce(own.cast(arrow_type(asked)), result)
    return result


def _is_below(high: NDArray[np.int64], low: NDArray[np.uint64], most: int) -> NDArray[np.bool_]:
    """Mark the numbers (of two words) whose size is below `most`."""
    top, bottom = divmod(most, 2**64)
    is_less = (high < top) | ((high == top) & (low < np.uint64(bottom)))
    negative = -most
    floor, rest = divmod(negative, 2**64)
    is_more = (high > floor) | ((high == floor) & (low > np.uint64(rest)))
    return is_less & is_more
