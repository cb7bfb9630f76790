"""What a run over Protobuf messages has stored, as Arrow columns and event times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import text_of
from keyedwm.arrow.schema import arrow_type
from keyedwm.arrow.time_text import MAX_EVENT_MS, MIN_EVENT_MS, milliseconds
from keyedwm.core.places import FieldType, Unit
from keyedwm.formats.avro_columns import Column, EventTimes
from keyedwm.formats.avro_kernels import gather_texts, text_sizes
from keyedwm.formats.avro_readings import Request
from keyedwm.formats.heads import Bodies
from keyedwm.formats.proto_kernels import Op, run_messages
from keyedwm.formats.proto_program import Program, Stored

_MOST_GROUPS = 100  # within each other, as Google's runtime has it
_US_PER_S, _NS_PER_US, _MS_PER_S, _NS_PER_MS = 1_000_000, 1_000, 1_000, 1_000_000
_MOST_SECONDS = 2**63 // _US_PER_S - 1
# (multiplied by, divided by) to get ms, of each unit of an event time.
_TO_MS = {Unit.SECONDS: (1_000, 1), Unit.MILLISECONDS: (1, 1), Unit.MICROSECONDS: (1, 1_000),
          Unit.NANOSECONDS: (1, 1_000_000), Unit.ISO: (1, 1)}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinkedMessages:
    """Programs one behind the other, as the loop takes them."""

    programs: Sequence[Program]

    @cached_property
    def roots(self) -> NDArray[np.int64]:
        """The first level of each program."""
        return _begins([len(program.levels) for program in self.programs])[:-1]

    @cached_property
    def _words(self) -> list[bytes]:
        names = [name for program in self.programs for _, name in program.symbols]
        starts = [one.word for program in self.programs for level in program.levels for one in level.starts]
        return names + [word for word in starts if word is not None]

    @cached_property
    def words(self) -> NDArray[np.int64]:
        """The words' positions in `word_bytes`, and the end of the last."""
        return _begins([len(word) for word in self._words])

    @cached_property
    def word_bytes(self) -> NDArray[np.uint8]:
        """All words."""
        return np.frombuffer(b"".join(self._words) or b"\0", np.uint8)

    @cached_property
    def symbols(self) -> NDArray[np.int64]:
        """Number and word of each name."""
        numbers = [number for program in self.programs for number, _ in program.symbols]
        return np.array([*enumerate(numbers)] or [(0, 0)], np.int64)[:, ::-1].copy()

    @cached_property
    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries of all levels, and where those of each level begin."""
        symbols = _begins([len(program.symbols) for program in self.programs])
        rows: list[tuple[int, ...]] = []
        for program, root, first_symbol in zip(self.programs, self.roots, symbols, strict=False):
            moved = {Op.MESSAGE: int(root), Op.SYMBOL: int(first_symbol), Op.CLOSED_SYMBOL: int(first_symbol),
                     Op.CLEAR: int(first_symbol)}  # fmt: skip
            for level in program.levels:
                rows += [
                    (number, wire, op, slot, argument + moved.get(Op(op), 0), count)
                    for number, wire, op, slot, argument, count in level.entries
                ]
        counts = [len(level.entries) for program in self.programs for level in program.levels]
        return np.array(rows or [(0,) * 6], np.int64), _begins(counts)

    @cached_property
    def starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The values that fields begin with (slot, 1 for a word, number, word), and where those of each level begin."""
        word = sum(len(program.symbols) for program in self.programs)
        rows: list[tuple[int, int, int, int]] = []
        counts = []
        for level in (level for program in self.programs for level in program.levels):
            counts.append(len(level.starts))
            for one in level.starts:
                rows.append((one.slot, int(one.word is not None), one.value, word))
                word += one.word is not None
        return np.array(rows or [(0,) * 4], np.int64), _begins(counts)


def _begins(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *counts]).astype(np.int64)


class _Slots:
    """What the programs have stored, a row for each slot."""

    def __init__(self, linked: LinkedMessages, bodies: Bodies, which: NDArray[np.int32], slots: int) -> None:
        self.linked, self.data, self.which = linked, bodies.data, which
        shape = (slots, len(which))
        self.values, self.until = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.valid = np.zeros(shape, np.uint8)
        depth = max([program.depth for program in linked.programs], default=1)
        run_messages(
            bodies.data, bodies.start, bodies.stop, which, linked.roots, *linked.entries, *linked.starts,
            linked.symbols, linked.words, self.values, self.until, self.valid, bodies.faults,
            np.zeros(depth, np.int64), np.zeros(depth, np.int64), np.zeros(_MOST_GROUPS, np.int64),
        )  # fmt: skip

    def texts(self, slot: int, valid: NDArray[np.uint8]) -> pa.Array:
        """Return spans as bytes."""
        ends = np.zeros(len(valid) + 1, np.int32)
        start = self.values[slot]
        text_sizes(start, self.until[slot], valid, ends)
        out = np.empty(ends[-1], np.uint8)
        gather_texts(self.data, self.linked.word_bytes, start, valid, ends, out)
        return _from_buffers(pa.binary(), valid, [pa.py_buffer(ends), pa.py_buffer(out)])

    def stored_as(self, slot: int, stored: Stored) -> NDArray[np.bool_]:
        """Mark the rows whose value is stored so."""
        some = [number for number, one in enumerate(self.linked.programs) if one.stored.get(slot) is stored]
        return np.isin(self.which, some) & (self.valid[slot] != 0)


def decode(
    linked: LinkedMessages, bodies: Bodies, which: NDArray[np.int32], requests: Sequence[Request]
) -> list[Column]:
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
    if asked in (FieldType.BINARY, FieldType.STRING):
        found = slots.texts(slot, valid)
        return found if asked is FieldType.BINARY else text_of(found)
    if asked is FieldType.BOOLEAN:
        return pa.array(slots.values[slot] != 0, mask=valid == 0)
    if asked is FieldType.TIMESTAMP:
        micros, fits = _seconds(slots, slot, _US_PER_S, _NS_PER_US)
        return _from_buffers(arrow_type(asked), fits.astype(np.uint8), [pa.py_buffer(micros)])
    if asked in (FieldType.BIGINT, FieldType.DOUBLE):
        return _from_buffers(arrow_type(asked), valid, [pa.py_buffer(slots.values[slot])])
    return pa.nulls(len(valid), arrow_type(asked))  # a date or a decimal, which no field of Protobuf is


def _from_buffers(kind: pa.DataType, valid: NDArray[np.uint8], buffers: list[pa.Buffer]) -> pa.Array:
    nulls = len(valid) - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(kind, len(valid), [bits, *buffers], nulls)


def _within(numbers: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Mark the numbers of a size below `most`; the lowest of all has no size."""
    return (numbers < most) & (numbers > -most)


def _seconds(slots: _Slots, slot: int, per_s: int, ns_per: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return seconds and nanoseconds as one number, and where it fits."""
    seconds = slots.values[slot]
    fits = slots.valid[slot].astype(bool) & _within(seconds, _MOST_SECONDS)
    return np.where(fits, seconds, 0) * per_s + slots.until[slot] // ns_per, fits


def _event_times(slots: _Slots, slot: int, unit: Unit) -> EventTimes:
    """Return ms and validity; texts and doubles are read as in JSON."""
    factor, divisor = _TO_MS[unit]
    numbers = slots.stored_as(slot, Stored.NUMBER) & _within(slots.values[slot], 2**62 // factor)
    ms = np.where(numbers, slots.values[slot], 0) * factor // divisor
    valid = numbers
    written = slots.stored_as(slot, Stored.SECONDS)
    if written.any():
        of_seconds, fits = _seconds(slots, slot, _MS_PER_S, _NS_PER_MS)
        ms, valid = np.where(written, of_seconds, ms), np.where(written, fits, valid)
    for stored in (Stored.SPAN, Stored.DOUBLE):
        rows = slots.stored_as(slot, stored)
        if not rows.any():
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
