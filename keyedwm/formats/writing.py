"""Writing values of any format out of Arrow columns: a tree of encoders, made once of a schema, writes whole columns.

Rule: an encoder first computes the size of each value, then writes the value where its parent puts it. A value that
cannot be written is a fault with its path and row, before a byte of its batch is passed on. Memory is bounded: some
thousand rows are written at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.json_scan import buffers
from keyedwm.core.errors import InputError
from keyedwm.formats import writing_kernels as kernels

Live: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]
Octets: TypeAlias = NDArray[np.uint8]
ROWS = 1 << 14  # written at a time: their parts stay in the processor's cache
_MOST_BYTES = 2**31 - 1  # of one Arrow column


class ValueFaultError(Exception):
    """A value that cannot be written. path: the field in the record. row: the row in the array. reason: why."""

    def __init__(self, row: int, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.row, self.reason, self.path = row, reason, path

    @property
    def where(self) -> str:
        """The column and the fields in it; empty for the value itself."""
        return ".".join(self.path).replace(".[]", "[]")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The bytes of one node: their number in each row (int64), and `write(out, at)`, which writes them at `at`."""

    sizes: Places
    write: Callable[[Octets, Places], None]


class Encoder(ABC):
    """Makes the parts of values of one type."""

    @abstractmethod
    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the part of some values; values that are not live have no bytes. Raises ValueFaultError."""


@dataclass(frozen=True, slots=True)
class Literal(Encoder):
    """Writes `data` for every value."""

    data: bytes

    def part(self, values: pa.Array, live: Live) -> Part:  # noqa: ARG002 - the values do not count
        """Return the part that has these bytes in each live row."""
        data = np.frombuffer(self.data or b"\0", np.uint8)[: len(self.data)]
        return Part(live * np.int64(len(data)), lambda out, at: kernels.write_literal(data, live, at, out))


@dataclass(frozen=True, slots=True)
class Numbers(Encoder):
    """Integers, dates and times as varints. times, per: factor or divisor (one is 1). called: the type in messages."""

    is_zigzag: bool = True
    times: int = 1
    per: int = 1
    called: str = ""

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return varints; raises ValueFaultError for a number that does not fit."""
        numbers = scaled(whole_numbers(values), live, self.times, self.per, self.called)
        sizes = np.zeros(len(live), np.int64)
        kernels.number_sizes(numbers, live, self.is_zigzag, sizes)
        return Part(sizes, lambda out, at: kernels.write_numbers(numbers, live, self.is_zigzag, at, out))


@dataclass(frozen=True, slots=True)
class FixedNumbers(Encoder):
    """Numbers of a fixed size. kind: the Arrow type that is stored."""

    kind: pa.DataType

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the numbers as they are stored, the lowest byte first."""
        values = values.cast(self.kind, safe=False)
        size = self.kind.bit_width // 8
        bits = raw(values, np.uint32 if size == 4 else np.uint64).astype(np.uint64)
        return Part(live * np.int64(size), lambda out, at: kernels.write_bits(bits, size, live, at, out))


@dataclass(frozen=True, slots=True)
class Booleans(Encoder):
    """One byte, 1 or 0."""

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return one byte for each live row."""
        yes = np.array(values.fill_null(fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
        return Part(live.astype(np.int64), lambda out, at: kernels.write_either(yes, live, 1, 0, at, out))


@dataclass(frozen=True, slots=True)
class Spans(Encoder):
    """Texts and bytes. is_zigzag: whether the length before each is a zigzag varint; None for no length."""

    is_zigzag: bool | None = True

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the bytes, with their length before them if one is written."""
        data, ends = buffers(values.cast(pa.binary()))
        data = data.view()
        data.setflags(write=False)  # as other buffers: else an empty array would cause a second compilation
        ends = ends.astype(np.int64)
        body = Part(np.where(live, np.diff(ends), 0), lambda out, at: kernels.write_spans(data, ends, live, at, out))
        return body if self.is_zigzag is None else with_length(body, live, is_zigzag=self.is_zigzag)


@dataclass(frozen=True, slots=True)
class Required(Encoder):
    """Values that must not be null."""

    of: Encoder

    def part(self, values: pa.Array, live: Live) -> Part:
        """Raise ValueFaultError for the first null, else return the part of the values."""
        if values.null_count:
            missing = live & ~is_valid(values)
            if missing.any():
                raise ValueFaultError(int(missing.argmax()), "is null, and its field takes no null")
        return self.of.part(values, live)


@dataclass(frozen=True, slots=True)
class Fields(Encoder):
    """The fields of a struct, one behind the other. fields: name, place in the struct (None: no column), encoder."""

    fields: tuple[tuple[str, int | None, Encoder], ...]

    def part(self, values: pa.Array, live: Live) -> Part:
        """Return the parts of the fields, one behind the other; a fault gets the field's name."""
        parts = []
        for name, place, encoder in self.fields:
            with within(name):
                parts.append(encoder.part(values if place is None else values.field(place), live))
        return joined(parts, len(live))


def joined(parts: Sequence[Part], rows: int) -> Part:
    """Put parts one behind the other."""

    def write(out: Octets, at: Places) -> None:
        at = at.copy()
        for part in parts:
            part.write(out, at)
            at += part.sizes

    return Part(sum((part.sizes for part in parts), np.zeros(rows, np.int64)), write)


def with_length(body: Part, live: Live, *, is_zigzag: bool) -> Part:
    """Put the length of each row's bytes before them, as a varint."""
    sizes = np.zeros(len(live), np.int64)
    kernels.number_sizes(body.sizes, live, is_zigzag, sizes)

    def write(out: Octets, at: Places) -> None:
        kernels.write_numbers(body.sizes, live, is_zigzag, at, out)
        body.write(out, at + sizes)

    return Part(sizes + body.sizes, write)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The items of lists or maps, as one array. ends: the borders of the lists (rows + 1). live: one for each item."""

    values: pa.Array
    ends: Places
    live: Live

    @classmethod
    def of(cls, lists: pa.Array, live: Live) -> Items:
        """Lay out lists; an item is live if its list is live."""
        ends = np.array(lists.offsets, np.int64) if len(lists) else np.zeros(1, np.int64)
        values = lists.values.slice(ends[0], ends[-1] - ends[0])
        return cls(values, ends - ends[0], np.repeat(live, np.diff(ends)))

    def part(self, encoder: Encoder, before: Part | None = None) -> Part:
        """Return the part of the items, a row for each list. before: the part that stands before each item."""
        try:
            items = encoder.part(self.values, self.live)
        except ValueFaultError as fault:
            row = int(np.searchsorted(self.ends, fault.row, "right")) - 1
            raise ValueFaultError(row, fault.reason, ("[]", *fault.path)) from None
        if before is not None:
            items = joined([before, items], len(self.live))
        totals = np.zeros(len(items.sizes) + 1, np.int64)
        np.cumsum(items.sizes, out=totals[1:])

        def write(out: Octets, at: Places) -> None:
            places = np.zeros(len(items.sizes), np.int64)
            kernels.spread(at, self.ends, items.sizes, places)
            items.write(out, places)

        return Part(totals[self.ends[1:]] - totals[self.ends[:-1]], write)


@contextmanager
def within(name: str) -> Iterator[None]:
    """Put the name of a field before the path of a fault."""
    try:
        yield
    except ValueFaultError as fault:
        raise ValueFaultError(fault.row, fault.reason, (name, *fault.path)) from None


def is_valid(values: pa.Array) -> Live:
    """Mark the values that are not null."""
    return np.array(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def raw(values: pa.Array, kind: type) -> NDArray:
    """Return the stored numbers of an array, those of nulls included."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.zeros(len(values), kind)
    return np.frombuffer(data, kind)[values.offset : values.offset + len(values)]


def whole_numbers(values: pa.Array) -> Places:
    """Return whole numbers, dates and times as they are stored; a null has any number."""
    width = values.type.bit_width
    kinds = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
    return raw(values, kinds[width]).astype(np.int64)


def scaled(numbers: Places, live: Live, times: int, per: int, called: str) -> Places:
    """Multiply numbers by `times`, or divide them by `per` and round down (one is 1); raises ValueFaultError."""
    if times > 1:
        most = (2**63 - 1) // times
        overflow = live & ((numbers > most) | (numbers < -most))
        if overflow.any():
            raise ValueFaultError(int(overflow.argmax()), f"does not fit {called}")
        return np.where(live, numbers, 0) * times
    return numbers // per if per > 1 else numbers


def decimal_words(values: pa.Array) -> NDArray[np.uint64]:
    """Return decimals of 128 bits as two words each, the low one first."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.zeros((len(values), 2), np.uint64)
    return np.frombuffer(data, np.uint64).reshape(-1, 2)[values.offset : values.offset + len(values)].copy()


def encode(encoder: Encoder, values: pa.Array, head: bytes, slice_rows: int = ROWS) -> pa.Array:
    """Return the values as binary, each with the head before it; a null stays null. Raises ValueFaultError."""
    begins = range(0, len(values), slice_rows)
    if len(begins) <= 1:
        return _encode(encoder, values, head)
    slices = [_encode(encoder, values.slice(begin, slice_rows), head, begin) for begin in begins]
    _check_size(sum(one.nbytes for one in slices))
    return pa.concat_arrays(slices)


def _encode(encoder: Encoder, values: pa.Array, head: bytes, before: int = 0) -> pa.Array:
    live = is_valid(values) if values.null_count else np.ones(len(values), np.bool_)
    try:
        body = encoder.part(values, live)
    except ValueFaultError as fault:
        raise ValueFaultError(fault.row + before, fault.reason, fault.path) from None
    part = joined([Literal(head).part(values, live), body], len(live))
    ends = np.zeros(len(live) + 1, np.int64)
    np.cumsum(part.sizes, out=ends[1:])
    _check_size(int(ends[-1]))
    out = np.empty(int(ends[-1]), np.uint8)
    part.write(out, ends[:-1].copy())
    nulls = len(live) - int(np.count_nonzero(live))
    bits = pa.py_buffer(np.packbits(live, bitorder="little")) if nulls else None
    data = [bits, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(live), data, nulls)


def _check_size(count: int) -> None:
    if count > _MOST_BYTES:
        raise InputError(
            "the values of one batch of rows take more than 2 GiB: lower spark.sql.execution.arrow.maxRecordsPerBatch"
        )
