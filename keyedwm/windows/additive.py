# ruff: noqa: ARG002  an aggregate is given what every aggregate is given
"""Counts, and sums of whole numbers: accumulators that add up, so a window deducts the frame that leaves.

Rule: a sum that leaves 64 bits is refused, never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import InputError
from keyedwm.windows.columns import Column, Ints, contiguous, ints, number
from keyedwm.windows.kinds import Groups, Kind, Rows, Spans
from keyedwm.windows.loops import add_by_group, add_by_span

_INT64 = pa.int64()
_TOTAL, VALUES = number("total"), number("values")


class RowCount(Kind):
    """How many rows: the count that every entry carries anyway."""

    result = _INT64
    fields = ()

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """Nothing."""
        return []

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Nothing."""
        return []

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Nothing."""
        return []

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The row counts."""
        return pa.array(rows)


@dataclass(frozen=True)
class Added(Kind):
    """Columns that add up; `name` is the input column."""

    name: str

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Add."""
        return [self._checked(*add_by_group(column, groups.ids, groups.count)) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Add what enters, deduct what leaves."""
        return [self._checked(*add_by_span(column, spans.first, spans.behind)) for column in columns]

    def _checked(self, sums: Ints, overflow: np.bool_) -> Ints:
        if overflow:
            raise InputError(f"the sum of {self.name!r} leaves 64 bits in one window; cast the column to double")
        return sums


class ValueCount(Added):
    """How many values that are not null."""

    result = _INT64
    fields = (VALUES,)

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """1, or 0 for null."""
        return [present(values)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The counts."""
        return pa.array(columns[0])


class IntegerSum(Added):
    """A sum of whole numbers; null if there was no value."""

    result = _INT64
    fields = (_TOTAL, VALUES)

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """The value and 1, or 0 and 0 for null."""
        return [_whole_numbers(values), present(values)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The sums."""
        return pa.array(columns[0], mask=columns[1] == 0)


class IntegerAverage(IntegerSum):
    """The mean of whole numbers: the exact sum, divided once."""

    result = pa.float64()

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The means."""
        total, values = columns
        each = np.maximum(values, 1)
        # whole and fraction apart: a sum above 2**53 would lose its last digits as a float
        return pa.array(total // each + (total % each) / each, mask=values == 0)


@dataclass(frozen=True)
class DecimalSum(Added):
    """A sum of decimals of up to 18 digits, as whole numbers of their last digit."""

    scale: int
    fields = (_TOTAL, VALUES)

    @property
    def result(self) -> pa.DataType:
        """A decimal with the column's scale."""
        return pa.decimal128(28, self.scale)

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """The unscaled value and 1, or 0 and 0 for null."""
        filled = contiguous(pc.fill_null(pc.cast(values, pa.decimal128(18, self.scale)), 0))
        words = np.frombuffer(filled.buffers()[1], np.int64)[2 * filled.offset : 2 * (filled.offset + len(filled))]
        return [np.ascontiguousarray(words[::2]), present(values)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The sums."""
        words = np.stack([columns[0], columns[0] >> 63], axis=1)
        sums = pa.Array.from_buffers(self.result, len(words), [None, pa.py_buffer(words.tobytes())])
        return pc.if_else(pa.array(columns[1] > 0), sums, pa.scalar(None, self.result))


def present(values: pa.Array) -> Ints:
    """1 where there is a value."""
    if not values.null_count:
        return np.ones(len(values), np.int64)
    return ints(contiguous(pc.cast(pc.is_valid(values), _INT64)))


def _whole_numbers(values: pa.Array) -> Ints:
    """Int64, with 0 for null."""
    filled = pc.fill_null(values, 0) if values.null_count else values
    return ints(contiguous(pc.cast(filled, _INT64)))
