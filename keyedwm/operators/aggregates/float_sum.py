# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Reproducible sums of floating-point numbers: the result has the same bits in every order and grouping of additions.

Rule: a number is split at fixed bit positions (every 32 bits of the exponent range) into integers, and integers are
summed, which is exact. Only the four highest positions that occur are stored. So the error of a sum is less than `rows
* 2**-32` units in the last place of its largest number. Then the sum is rounded once. Infinities and NaN are flags.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Column, Ints, contiguous, number
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.sums import VALUES, present
from keyedwm.operators.kernels import add_by_group, add_by_span
from keyedwm.runtime.compiled import compiled

# An accumulator is a row (top, four places from `top` down). top: -1 for nothing, 256 and more: flags of infinities,
# NaN.
_WIDTH = 5
_FIELDS = tuple(number(name) for name in ("top", "place0", "place1", "place2", "place3"))
_INFINITE, _POSITIVE, _NEGATIVE, _NAN = 256, 1, 2, 4


@dataclass(frozen=True)
class FloatSum(AggregateFunction):
    """A sum of floats; null if there was no value."""

    result = pa.float64()
    fields = (*_FIELDS, VALUES)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Split each number into its places."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Split the numbers and sum them by group in one pass."""
        filled = contiguous(pc.fill_null(pc.cast(values, pa.float64()), 0.0))
        bits = filled.to_numpy(zero_copy_only=True).view(np.int64)
        counts = add_by_group(present(values), groups.ids, groups.count)
        return [*_columns(_floats_by_group(bits, groups.ids, groups.count)), counts]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Sum the accumulators of each group, place by place."""
        *places, values = columns
        counts = add_by_group(values, groups.ids, groups.count)
        return [*_columns(_add_by_group_of(np.stack(places, axis=1), groups.ids, groups.count)), counts]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Sum the accumulators of each row range, with two stacks: dropped places make subtraction impossible."""
        *places, values = columns
        counts = add_by_span(values, spans.first, spans.behind)
        return [*_columns(_add_by_span_of(np.stack(places, axis=1), spans.first, spans.behind)), counts]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the sums, each rounded once."""
        *places, values = columns
        return pa.array(_rounded(np.stack(places, axis=1)), mask=values == 0)


class FloatAverage(FloatSum):
    """The mean of floats: the sum divided by the number of values."""

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the means."""
        *places, values = columns
        return pa.array(_rounded(np.stack(places, axis=1)) / np.maximum(values, 1), mask=values == 0)


def _columns(accumulators: Ints) -> list[Ints]:
    return [np.ascontiguousarray(column) for column in accumulators.T]


@compiled
def _cleared(rows: int) -> Ints:
    accumulators = np.zeros((rows, _WIDTH), np.int64)
    accumulators[:, 0] = -1
    return accumulators


@compiled
def _raise_top(accumulator: Ints, top: int) -> None:
    """Make room for a higher place and drop the lowest ones."""
    by = top - accumulator[0]
    if by > 0:
        for place in range(4, 0, -1):
            accumulator[place] = accumulator[place - by] if place - by > 0 else 0
        accumulator[0] = top


@compiled
def _add_float(accumulator: Ints, bits: int) -> None:
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent == 0x7FF:
        flag = _NAN if mantissa else (_NEGATIVE if bits < 0 else _POSITIVE)
        accumulator[0] = (max(accumulator[0], _INFINITE)) | flag
        return
    if exponent:
        mantissa |= 1 << 52
        exponent -= 1
    if not mantissa or accumulator[0] >= _INFINITE:
        return
    lowest, shift = exponent >> 5, exponent & 31
    _raise_top(accumulator, lowest + 2)
    low = (mantissa & 0xFFFFFFFF) << shift
    high = ((mantissa >> 32) << shift) + (low >> 32)
    sign = -1 if bits < 0 else 1
    at = accumulator[0] - lowest + 1  # where the lowest place stands
    if at <= 4:
        accumulator[at] += sign * (low & 0xFFFFFFFF)
    if at - 1 <= 4:
        accumulator[at - 1] += sign * (high & 0xFFFFFFFF)
    if at - 2 <= 4:
        accumulator[at - 2] += sign * (high >> 32)


@compiled
def _add(accumulator: Ints, other: Ints) -> None:
    if accumulator[0] >= _INFINITE or other[0] >= _INFINITE:
        flags = accumulator[0] if accumulator[0] >= _INFINITE else np.int64(_INFINITE)
        accumulator[0] = flags | (other[0] if other[0] >= _INFINITE else 0)
        return
    _raise_top(accumulator, other[0])
    by = accumulator[0] - other[0]
    for place in range(1, 5 - by):
        accumulator[place + by] += other[place]


@compiled
def _floats_by_group(bits: Ints, ids: Ints, count: int) -> Ints:
    """Return the sum of each group of floats, given by their bits, as rows of places."""
    sums = _cleared(count)
    for at in range(bits.shape[0]):
        _add_float(sums[ids[at]], bits[at])
    return sums


@compiled
def _add_by_group_of(accumulators: Ints, ids: Ints, count: int) -> Ints:
    """Return the sum of each group of rows of places."""
    sums = _cleared(count)
    for at in range(accumulators.shape[0]):
        _add(sums[ids[at]], accumulators[at])
    return sums


@compiled
def _add_by_span_of(accumulators: Ints, first: Ints, behind: Ints) -> Ints:
    """Return the sum of each range of rows of places."""
    sums = _cleared(first.shape[0])
    suffix = _cleared(accumulators.shape[0])  # the front stack; see kernels.lowest_by_span
    back = _cleared(1)[0]
    border = high = np.int64(0)
    for at in range(first.shape[0]):
        if first[at] >= high:
            border = high = first[at]
            back[:] = _cleared(1)[0]
        while high < behind[at]:
            _add(back, accumulators[high])
            high += 1
        if first[at] >= border:
            for row in range(high - 1, first[at] - 1, -1):
                suffix[row] = accumulators[row]
                if row + 1 < high:
                    _add(suffix[row], suffix[row + 1])
            border = high
            back[:] = _cleared(1)[0]
        _add(sums[at], suffix[first[at]])
        _add(sums[at], back)
    return sums


@compiled
def _rounded(accumulators: Ints) -> NDArray[np.float64]:
    sums = np.empty(accumulators.shape[0], np.float64)
    digits = np.zeros(8, np.int64)  # of 32 bits, the highest first; the last ones stay 0
    for at in range(accumulators.shape[0]):
        top = accumulators[at, 0]
        if top >= _INFINITE:
            both = top & _POSITIVE and top & _NEGATIVE
            sums[at] = np.nan if top & _NAN or both else (np.inf if top & _POSITIVE else -np.inf)
            continue
        negative = _digits(accumulators[at], digits)
        lead = 0
        while lead < 5 and digits[lead] == 0:
            lead += 1
        if lead == 5:
            sums[at] = 0.0
            continue
        length = 0
        while digits[lead] >> length:
            length += 1
        # 62 leading bits, the last of which also shows whether any bit behind it is set
        below = 64 - (62 - length)
        window = digits[lead] << (62 - length)
        window |= digits[lead + 1] << (30 - length) if length <= 30 else digits[lead + 1] >> (length - 30)
        if below <= 32:
            window |= digits[lead + 2] >> below
            rest = digits[lead + 2] & ((1 << below) - 1)
        else:
            rest = digits[lead + 2] | (digits[lead + 1] & ((1 << (below - 32)) - 1))
        for place in range(lead + 3, 5):
            rest |= digits[place]
        if rest:
            window |= 1
        size = math.ldexp(float(window), 32 * (top - 1 - lead) + below - 1074)
        sums[at] = -size if negative else size
    return sums


@compiled
def _digits(accumulator: Ints, digits: Ints) -> bool:
    """Carry the places into the five digits of the absolute value; return whether the sum was negative."""
    carry = np.int64(0)
    for place in range(4, 0, -1):
        total = accumulator[place] + carry
        digits[place] = total & 0xFFFFFFFF
        carry = total >> 32
    digits[0] = carry
    if carry >= 0:
        return False
    carry = np.int64(1)
    for place in range(4, 0, -1):
        total = (digits[place] ^ 0xFFFFFFFF) + carry
        digits[place] = total & 0xFFFFFFFF
        carry = total >> 32
    digits[0] = ~digits[0] + carry
    return True
