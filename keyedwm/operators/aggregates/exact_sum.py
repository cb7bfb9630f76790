"""Exact sums of numbers and of products of two numbers: no digit is lost, for numbers of any size.

Rule: a sum is a list of 32-bit digits. The list begins with the position of the lowest digit, in units of 32 bits. The
digits follow from the lowest up, and the last has the sign (two's complement). Digits without information are omitted,
so equal sums have equal bits. An empty list is 0, and one number alone is a sum with an infinity or a NaN. Sums can be
subtracted, so sliding windows deduct.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.columns import Ints, contiguous
from keyedwm.runtime.compiled import compiled

Digits = NDArray[np.int32]
DIGITS = pa.list_(pa.int32())
_LOW = 0xFFFFFFFF
_NOT_FINITE = -(2**40)  # an exponent
_NOTHING = 2**40  # no position yet


class Numbers(NamedTuple):
    """Numbers as `mantissa * 2**exponent`."""

    mantissas: Ints
    exponents: Ints


class Sums(NamedTuple):
    """Lists of digits: list i has the digits from `offsets[i]` to `offsets[i + 1]`."""

    offsets: Ints
    digits: Digits


def of_floats(values: NDArray[np.float64]) -> Numbers:
    """Take floats apart."""
    return Numbers(*_apart(np.ascontiguousarray(values).view(np.int64)))


def of_ints(values: Ints) -> Numbers:
    """Return whole numbers as they are."""
    return Numbers(np.ascontiguousarray(values), np.zeros(len(values), np.int64))


def sums_of(left: Numbers, right: Numbers, ids: Ints, count: int) -> Sums:
    """Return the sum of the products of each group."""
    return Sums(*_products_by_group(left, right, ids, count))


def merged(sums: Sums, ids: Ints, count: int) -> Sums:
    """Return the sum of each group of sums."""
    return Sums(*_by_group(sums, ids, count))


def by_span(sums: Sums, first: Ints, behind: Ints) -> Sums:
    """Return the sum of each range of sums: add the sums that enter a range, subtract the sums that leave it."""
    return Sums(*_by_span(sums, first, behind))


def to_column(sums: Sums) -> pa.Array:
    """Return the lists as Arrow has them."""
    return pa.ListArray.from_arrays(pa.array(sums.offsets.astype(np.int32)), pa.array(sums.digits))


def of_column(column: pa.Array) -> Sums:
    """Return the lists of a column (the inverse of `to_column`)."""
    offsets = contiguous(column.offsets).to_numpy().astype(np.int64)
    # Arrow's arrays are read-only. For numba this is another type, for which it would compile everything again.
    return Sums(offsets - offsets[0], contiguous(column.flatten()).to_numpy().copy())


@compiled
def _apart(bits: Ints) -> tuple[Ints, Ints]:
    mantissas = np.empty(bits.shape[0], np.int64)
    exponents = np.empty(bits.shape[0], np.int64)
    for at in range(bits.shape[0]):
        exponent = (bits[at] >> 52) & 0x7FF
        mantissa = bits[at] & 0xFFFFFFFFFFFFF
        if exponent == 0x7FF:
            mantissas[at], exponents[at] = 1, _NOT_FINITE
            continue
        if exponent:
            mantissa |= 1 << 52
            exponent -= 1
        mantissas[at] = -mantissa if bits[at] < 0 else mantissa
        exponents[at] = exponent - 1074
    return mantissas, exponents


@compiled
def room(low: Ints, high: Ints) -> Ints:
    """Return where the places of each sum begin: places from `low` to `high`, and one for the carry."""
    starts = np.zeros(low.shape[0] + 1, np.int64)
    for at in range(low.shape[0]):
        starts[at + 1] = starts[at] + (high[at] - low[at] + 2 if high[at] >= low[at] else 0)
    return starts


@compiled
def _products_by_group(left: Numbers, right: Numbers, ids: Ints, count: int) -> tuple[Ints, Digits]:
    a, b = left.mantissas, right.mantissas
    low = np.full(count, _NOTHING, np.int64)
    high = np.full(count, -_NOTHING, np.int64)
    finite = np.ones(count, np.bool_)
    for at in range(ids.shape[0]):
        group = ids[at]
        if left.exponents[at] == _NOT_FINITE or right.exponents[at] == _NOT_FINITE:
            finite[group] = False
        elif a[at] and b[at]:
            place = (left.exponents[at] + right.exponents[at]) >> 5
            low[group] = min(low[group], place)
            high[group] = max(high[group], place + 4)
    starts = room(low, high)
    places = np.zeros(starts[count], np.int64)
    for at in range(ids.shape[0]):
        group = ids[at]
        if a[at] and b[at] and finite[group]:
            exponent = left.exponents[at] + right.exponents[at]
            _add_product(places, starts[group] + (exponent >> 5) - low[group], a[at], b[at], exponent & 31)
    return packed(places, starts, low, finite)


@compiled
def _add_product(places: Ints, at: int, a: int, b: int, shift: int) -> None:
    """Add a product of two numbers of up to 63 bits, shifted by up to 31 bits, to five places."""
    sign = -1 if (a < 0) != (b < 0) else 1
    a, b = abs(a), abs(b)
    a_low, a_high, b_low, b_high = a & _LOW, a >> 32 & _LOW, b & _LOW, b >> 32 & _LOW
    lowest = a_low * b_low
    one, other = a_low * b_high, a_high * b_low
    highest = a_high * b_high
    middle = (lowest >> 32 & _LOW) + (one & _LOW) + (other & _LOW)
    upper = (middle >> 32) + (one >> 32 & _LOW) + (other >> 32 & _LOW) + (highest & _LOW)
    carry = 0
    for digit in (lowest & _LOW, middle & _LOW, upper & _LOW, (upper >> 32) + (highest >> 32 & _LOW)):
        shifted = digit << shift
        places[at] += sign * ((shifted & _LOW) + carry)
        carry = shifted >> 32 & _LOW
        at += 1
    places[at] += sign * carry


@compiled
def _bounds(sums: Sums, ids: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the lowest and the highest place of each group."""
    low = np.full(count, _NOTHING, np.int64)
    high = np.full(count, -_NOTHING, np.int64)
    for at in range(ids.shape[0]):
        length = sums.offsets[at + 1] - sums.offsets[at]
        if length > 1:
            place = np.int64(sums.digits[sums.offsets[at]])
            low[ids[at]] = min(low[ids[at]], place)
            high[ids[at]] = max(high[ids[at]], place + length - 2)
    return low, high


@compiled
def _add_sum(places: Ints, zero: int, digits: Digits, sign: int) -> None:
    """Add a sum that is finite and not 0; `zero`: where the place of 1 would be."""
    at = zero + digits[0]
    for digit in digits[1:-1]:
        places[at] += sign * (np.int64(digit) & _LOW)
        at += 1
    places[at] += sign * np.int64(digits[-1])


@compiled
def _by_group(sums: Sums, ids: Ints, count: int) -> tuple[Ints, Digits]:
    low, high = _bounds(sums, ids, count)
    finite = np.ones(count, np.bool_)
    starts = room(low, high)
    places = np.zeros(starts[count], np.int64)
    for at in range(ids.shape[0]):
        digits, group = sums.digits[sums.offsets[at] : sums.offsets[at + 1]], ids[at]
        if digits.shape[0] == 1:
            finite[group] = False
        elif digits.shape[0]:
            _add_sum(places, starts[group] - low[group], digits, 1)
    return packed(places, starts, low, finite)


@compiled
def _by_span(sums: Sums, first: Ints, behind: Ints) -> tuple[Ints, Digits]:
    low, high = _bounds(sums, np.zeros(sums.offsets.shape[0] - 1, np.int64), 1)
    places = np.zeros(room(low, high)[1], np.int64)
    digits_out = np.empty(8 * first.shape[0] + places.shape[0] + 1, np.int32)
    ends = np.zeros(first.shape[0] + 1, np.int64)
    entered = left = end = odd = np.int64(0)
    for at in range(first.shape[0]):
        while entered < behind[at] or left < first[at]:
            sign = 1 if entered < behind[at] else -1
            row = entered if sign == 1 else left
            digits = sums.digits[sums.offsets[row] : sums.offsets[row + 1]]
            if digits.shape[0] == 1:
                odd += sign
            elif digits.shape[0]:
                _add_sum(places, -low[0], digits, sign)
            if sign == 1:
                entered += 1
            else:
                left += 1
        if end + places.shape[0] + 1 > digits_out.shape[0]:
            digits_out = np.append(digits_out, np.empty(digits_out.shape[0] + places.shape[0] + 1, np.int32))
        end = pack(places, low[0], odd == 0, digits_out[end:]) + end
        ends[at + 1] = end
    return ends, digits_out[:end].copy()


@compiled
def packed(places: Ints, starts: Ints, low: Ints, finite: NDArray[np.bool_]) -> tuple[Ints, Digits]:
    """Return sums as lists of digits; the places of each sum are between two `starts`."""
    count = low.shape[0]
    digits_out = np.empty(places.shape[0] + count, np.int32)
    ends = np.zeros(count + 1, np.int64)
    for at in range(count):
        at_end = ends[at]
        ends[at + 1] = at_end + pack(places[starts[at] : starts[at + 1]], low[at], finite[at], digits_out[at_end:])
    return ends, digits_out[: ends[count]].copy()


@compiled
def pack(places: Ints, low: int, is_finite: bool, digits_out: Digits) -> int:
    """Write the digits of one sum without needless ones, and return how many numbers were written."""
    if not is_finite:
        digits_out[0] = 0
        return 1
    size = 1
    carry = np.int64(0)
    for place in range(places.shape[0]):
        total = places[place] + carry
        carry = total >> 32
        if size == 1 and total & _LOW == 0:
            low += 1  # nothing below the lowest digit
            continue
        digits_out[size] = np.int32(total & _LOW)
        size += 1
    while size > 2 and digits_out[size - 1] == (-1 if digits_out[size - 2] < 0 else 0):
        size -= 1
    if size == 1:
        return 0
    digits_out[0] = low
    return size
