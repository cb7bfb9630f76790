# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Counts, and sums of whole numbers. Their accumulators can be subtracted, so a sliding window deducts old frames.

Rule: numbers are summed exactly, in 128 bits, so neither the order nor the grouping of rows decides whether a sum fits.
Only a result that does not fit in the type of its column is an error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints, contiguous, ints, number
from keyedwm.core.errors import InputError
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.kernels import add_by_group, add_by_span, add_wide_by_group, add_wide_by_span

_INT64 = pa.int64()
_TOTAL, _HIGH, VALUES = number("total"), number("high"), number("values")
_LOW_BITS = (1 << 64) - 1


class RowCount(AggregateFunction):
    """The number of rows, which every entry has anyway."""

    result = _INT64
    fields = ()

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """There is no accumulator."""
        return []

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """There is no accumulator."""
        return []

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """There is no accumulator."""
        return []

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the row counts."""
        return pa.array(rows)


class ValueCount(AggregateFunction):
    """The number of values that are not null."""

    result = _INT64
    fields = (VALUES,)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return 1 for a value and 0 for a null."""
        return [present(values)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Sum the counts of each group."""
        return [add_by_group(columns[0], groups.ids, groups.count)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Sum the counts of each row range."""
        return [add_by_span(columns[0], spans.first, spans.behind)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the counts."""
        return pa.array(columns[0])


@dataclass(frozen=True)
class WideSum(AggregateFunction):
    """A 128-bit sum of whole numbers in two columns, and the number of values; `name` is the input column."""

    name: str
    fields = (_TOTAL, _HIGH, VALUES)

    @abstractmethod
    def whole_numbers(self, values: pa.Array) -> Ints:
        """Return the values as int64, with 0 for a null."""

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return the value and 1, or 0 and 0 for a null."""
        numbers = self.whole_numbers(values)
        return [numbers, numbers >> 63, present(values)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Sum the accumulators of each group."""
        total, high, values = columns
        sums = add_wide_by_group(total, high, groups.ids, groups.count)
        return [*sums, add_by_group(values, groups.ids, groups.count)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Sum the accumulators of each row range: add rows that enter, subtract rows that leave."""
        total, high, values = columns
        sums = add_wide_by_span(total, high, spans.first, spans.behind)
        return [*sums, add_by_span(values, spans.first, spans.behind)]


class IntegerSum(WideSum):
    """A sum of whole numbers; null if there was no value."""

    result = _INT64

    def whole_numbers(self, values: pa.Array) -> Ints:
        """Return the values as int64, with 0 for a null."""
        filled = pc.fill_null(values, 0) if values.null_count else values
        return ints(contiguous(pc.cast(filled, _INT64)))

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the sums."""
        total, high, values = columns
        if (high != total >> 63).any():
            raise InputError(
                f"the sum of {self.name!r} in one window does not fit in 64 bits; cast the column to decimal or double"
            )
        return pa.array(total, mask=values == 0)


class IntegerAverage(IntegerSum):
    """The mean of whole numbers: the exact sum divided by the number of values."""

    result = pa.float64()

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the means."""
        total, high, values = columns
        each = np.maximum(values, 1)
        # The quotient and the fraction are computed apart: as a float, a sum above 2**53 would lose its last digits.
        means = total // each + (total % each) / each
        for at in np.flatnonzero(high != total >> 63).tolist():  # rare; Python's numbers have as many bits as needed
            means[at] = ((int(high[at]) << 64) + (int(total[at]) & _LOW_BITS)) / int(each[at])
        return pa.array(means, mask=values == 0)


@dataclass(frozen=True)
class DecimalSum(WideSum):
    """A sum of decimals of up to 18 digits; accumulators hold unscaled values."""

    scale: int

    @property
    def result(self) -> pa.DataType:
        """A decimal type with the column's scale."""
        return pa.decimal128(28, self.scale)

    def whole_numbers(self, values: pa.Array) -> Ints:
        """Return the unscaled values, with 0 for a null."""
        filled = contiguous(pc.fill_null(pc.cast(values, pa.decimal128(18, self.scale)), 0))
        halves = np.frombuffer(filled.buffers()[1], np.int64)[2 * filled.offset : 2 * (filled.offset + len(filled))]
        return np.ascontiguousarray(halves[::2])

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the sums."""
        total, high, values = columns
        halves = np.stack([total, high], axis=1)
        widest = pa.decimal128(38, self.scale)
        sums = pa.Array.from_buffers(widest, len(halves), [None, pa.py_buffer(halves.tobytes())])
        try:
            narrowed = pc.cast(sums, self.result)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"the sum of {self.name!r} in one window does not fit in {self.result}; cast the column to double"
            ) from error
        return pc.if_else(pa.array(values > 0), narrowed, pa.scalar(None, self.result))


def present(values: pa.Array) -> Ints:
    """Return 1 for a value and 0 for a null."""
    if not values.null_count:
        return np.ones(len(values), np.int64)
    return ints(contiguous(pc.cast(pc.is_valid(values), _INT64)))
