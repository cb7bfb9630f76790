"""The values that programs of Avro or Protobuf have stored, as Arrow columns and event times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import text_of
from keyedwm.arrow.json_scan import Path, find
from keyedwm.arrow.places import FieldReader
from keyedwm.arrow.schema import arrow_type
from keyedwm.arrow.time_text import MAX_EVENT_MS, MIN_EVENT_MS, milliseconds
from keyedwm.core.places import DecimalType, Field, FieldType, Unit
from keyedwm.core.rows import VALUE
from keyedwm.formats.field_requests import Layout, Request, Stored
from keyedwm.formats.heads import Bodies
from keyedwm.formats.spans import Literals, copied_spans

_US_PER_S, _NS_PER_US, _MS_PER_S, _NS_PER_MS = 1_000_000, 1_000, 1_000, 1_000_000
_MOST_SECONDS = 2**63 // _US_PER_S - 1
_MOST_DAYS = 2**31
EventTimes: TypeAlias = tuple[NDArray[np.int64], NDArray[np.bool_]]
Column: TypeAlias = pa.Array | EventTimes


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """What programs have stored: values, until, valid are (slot, row).

    data, literals: the bytes in which spans lie. which: the program of each row, -1 for none. layouts: slot → layout,
    of each program. faults: one for each row; a text that cannot be written sets one.
    """

    data: NDArray[np.uint8]
    literals: Literals
    which: NDArray[np.int32]
    layouts: Sequence[Mapping[int, Layout]]
    values: NDArray[np.int64]
    until: NDArray[np.int64]
    valid: NDArray[np.uint8]
    faults: NDArray[np.uint8]

    @classmethod
    def empty(
        cls,
        bodies: Bodies,
        literals: Literals,
        which: NDArray[np.int32],
        layouts: Sequence[Mapping[int, Layout]],
        slots: int,
    ) -> Slots:
        """Return empty slots, which programs then fill."""
        values = np.zeros((2, slots, len(which)), np.int64)
        valid = np.zeros((slots, len(which)), np.uint8)
        return cls(bodies.data, literals, which, layouts, values[0], values[1], valid, bodies.faults)

    def columns(self, requests: Sequence[Request]) -> list[Column]:
        """Return for each request an Arrow array, or (ms, validity) for an event time."""
        return [self._column(slot, request.type) for slot, request in enumerate(requests)]

    def _column(self, slot: int, as_type: FieldType | DecimalType | Unit) -> Column:
        if isinstance(as_type, Unit):
            return _event_times(self, slot, as_type)
        if isinstance(as_type, DecimalType):
            return _decimals(self, slot, as_type)
        if self.layouts_of(slot, Stored.PARTS):
            return self._with_parts(slot, as_type)
        return self._plain(slot, as_type, self.valid[slot])

    def _plain(self, slot: int, as_type: FieldType, valid: NDArray[np.uint8]) -> pa.Array:
        numbers = self.values[slot]
        if as_type in (FieldType.BINARY, FieldType.STRING):
            spans = self.texts(slot, valid)
            return spans if as_type is FieldType.BINARY else text_of(spans)
        if as_type is FieldType.BOOLEAN:
            return pa.array(numbers != 0, mask=valid == 0)
        if as_type is FieldType.DATE:
            fits = valid.astype(bool) & (numbers >= -_MOST_DAYS) & (numbers < _MOST_DAYS)
            return pa.array(np.where(fits, numbers, 0).astype(np.int32), mask=~fits).view(pa.date32())
        if as_type is FieldType.TIMESTAMP and self.layouts_of(slot, Stored.SECONDS):
            numbers, fits = self.times(slot, valid != 0, _US_PER_S, _NS_PER_US)
            valid = fits.astype(np.uint8)
        # The loop has stored a double's bits.
        return _from_buffers(arrow_type(as_type), valid, [pa.py_buffer(numbers)])

    def _with_parts(self, slot: int, as_type: FieldType) -> pa.Array:
        """Return values that some programs store as the span of a JSON text, and others plainly."""
        plain = self.valid[slot].copy()
        columns = []
        for layout in self.layouts_of(slot, Stored.PARTS):
            rows = self.stored_as(slot, layout).astype(np.uint8)
            plain[rows != 0] = 0
            if layout.writer is None:  # never so: a layout of parts has a writer
                continue
            texts = layout.writer.write(self.data, self.values[slot], self.until[slot], rows, self.faults)
            columns.append(_read_text(texts, layout.steps, as_type))
        return pc.coalesce(*columns, self._plain(slot, as_type, plain))

    def texts(self, slot: int, valid: NDArray[np.uint8]) -> pa.Array:
        """Return a slot's spans as bytes."""
        ends, out = copied_spans(self.data, self.literals.bytes, self.values[slot], self.until[slot], valid)
        return _from_buffers(pa.binary(), valid, [pa.py_buffer(ends), pa.py_buffer(out)])

    def times(
        self, slot: int, rows: NDArray[np.bool_], per_s: int, ns_per: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the seconds and nanoseconds of `rows` in a unit, and which fit. per_s, ns_per: units/s, ns/unit."""
        seconds = self.values[slot]
        fits = rows & _within(seconds, _MOST_SECONDS)
        return np.where(fits, seconds, 0) * per_s + self.until[slot] // ns_per, fits

    def layouts_of(self, slot: int, stored: Stored | None = None) -> list[Layout]:
        """Return the layouts of a slot, each once; if `stored` is set, only layouts that store in this form."""
        layouts = dict.fromkeys(one[slot] for one in self.layouts if slot in one)
        return [one for one in layouts if stored is None or one.stored is stored]

    def stored_as(self, slot: int, layout: Layout) -> NDArray[np.bool_]:
        """Mark the valid rows whose value has this layout."""
        some = [number for number, one in enumerate(self.layouts) if one.get(slot) == layout]
        valid = self.valid[slot] != 0
        return valid if len(some) == len(self.layouts) else np.isin(self.which, some) & valid


def _read_text(texts: pa.Array, steps: Sequence[str | int] | None, as_type: FieldType) -> pa.Array:
    """Return whole JSON texts, or the values at the path `steps` in them."""
    if steps is None:
        return text_of(texts)
    reader = FieldReader(Field(VALUE, (), as_type), pa.schema([]))
    return reader.read(texts, find(texts, Path(steps)))


def _from_buffers(kind: pa.DataType, valid: NDArray[np.uint8], buffers: list[pa.Buffer]) -> pa.Array:
    nulls = len(valid) - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(kind, len(valid), [bits, *buffers], nulls)


def _within(numbers: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Mark the numbers whose magnitude is below `most`; the lowest int64 has no magnitude."""
    return (numbers < most) & (numbers > -most)


def _event_times(slots: Slots, slot: int, unit: Unit) -> EventTimes:
    """Return ms and validity; texts and doubles are read as those of JSON."""
    count = len(slots.which)
    ms, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    for layout in slots.layouts_of(slot):
        rows = slots.stored_as(slot, layout)
        if layout.stored is Stored.NUMBER:
            read_ms, read = _scaled(slots.values[slot], rows, *layout.to_ms)
        elif layout.stored is Stored.SECONDS:
            read_ms, read = slots.times(slot, rows, _MS_PER_S, _NS_PER_MS)
        else:
            read_ms, read = _written_times(slots, slot, layout.stored, rows, unit)
        ms, valid = np.where(rows, read_ms, ms), np.where(rows, read, valid)
    fits = valid & (ms >= MIN_EVENT_MS) & (ms <= MAX_EVENT_MS)
    return np.where(fits, ms, 0), fits


def _scaled(numbers: NDArray[np.int64], rows: NDArray[np.bool_], factor: int, divisor: int) -> EventTimes:
    """Return the numbers of `rows` as ms, and which of them fit."""
    if (factor, divisor) == (1, 1):
        return numbers, rows
    fits = rows & _within(numbers, 2**62 // factor)
    return np.where(fits, numbers, 0) * factor // divisor, fits


def _written_times(slots: Slots, slot: int, stored: Stored, rows: NDArray[np.bool_], unit: Unit) -> EventTimes:
    """Read event times out of texts, or out of doubles as texts."""
    if stored is Stored.SPAN:
        texts = slots.texts(slot, rows.astype(np.uint8))
    else:
        texts = pc.cast(pa.array(np.where(rows, slots.values[slot], 0).view(np.float64)), pa.string())
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(rows) + 1].astype(np.int64)
    some = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return milliseconds(some, np.where(rows, ends[:-1], -1), ends[1:], unit)


def _decimals(slots: Slots, slot: int, as_type: DecimalType) -> pa.Array:
    """Return decimals of the requested scale; a number with more digits is null."""
    halves = np.stack([slots.values[slot], slots.until[slot]], axis=1)
    wide = arrow_type(DecimalType(38, as_type.scale))
    result = pa.nulls(len(halves), arrow_type(as_type))
    for layout in slots.layouts_of(slot, Stored.DECIMAL_WORDS):
        scale = layout.scale
        most = 10 ** (as_type.precision - as_type.scale + scale)
        rows = slots.stored_as(slot, layout) & _is_below(halves[:, 1], halves[:, 0].view(np.uint64), most)
        own = _from_buffers(pa.decimal128(38, scale), rows.astype(np.uint8), [pa.py_buffer(halves)])
        if scale != as_type.scale:
            own = own.cast(wide)
        result = pc.coalesce(own.cast(arrow_type(as_type)), result)
    return result


def _is_below(high: NDArray[np.int64], low: NDArray[np.uint64], most: int) -> NDArray[np.bool_]:
    """Mark the numbers (of two words) whose magnitude is below `most`."""
    top, bottom = divmod(most, 2**64)
    is_less = (high < top) | ((high == top) & (low < np.uint64(bottom)))
    negative = -most
    floor, rest = divmod(negative, 2**64)
    is_more = (high > floor) | ((high == floor) & (low > np.uint64(rest)))
    return is_less & is_more
