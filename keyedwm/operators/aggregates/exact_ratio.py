"""Results of exact sums: `count * product - left * right`, and ratios of such numbers, rounded once.

Rule: numbers are those of `exact_sum`. A ratio is divided digit by digit until its float is decided: the nearest float,
of two the even one (IEEE 754).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from keyedwm.arrow.columns import Ints
from keyedwm.operators.aggregates.exact_sum import Digits, Sums, of_ints, packed, room, sums_of
from keyedwm.runtime.compiled import compiled

Floats = NDArray[np.float64]
_LOW = 0xFFFFFFFF
_DIGITS = 4  # digits of a quotient: the first may be 0, the second small, so these have 65 bits at least
_LEAST = -1074  # the exponent of the smallest float


def whole(numbers: Ints) -> Sums:
    """Return whole numbers as sums."""
    each = np.arange(len(numbers))
    return sums_of(of_ints(numbers), of_ints(np.ones_like(numbers)), each, len(numbers))


def centred(count: Sums, product: Sums, left: Sums, right: Sums) -> Sums:
    """Return `count * product - left * right`: for sums of n values, n times the sum around both means."""
    return Sums(*_centred(count, product, left, right))


def ratios(above: Sums, below: Sums) -> Floats:
    """Return each quotient as the nearest float; NaN unless `below` is positive."""
    return _ratios(above, below)


@compiled
def _centred(count: Sums, product: Sums, left: Sums, right: Sums) -> tuple[Ints, Digits]:
    rows = count.offsets.shape[0] - 1
    low, high = np.zeros(rows, np.int64), np.full(rows, -1, np.int64)
    finite = np.ones(rows, np.bool_)
    for at in range(rows):
        empty = True
        for one, other in ((count, product), (left, right)):
            a, b = _of(one, at), _of(other, at)
            if a.shape[0] == 1 or b.shape[0] == 1:
                finite[at] = False
            elif a.shape[0] and b.shape[0]:
                place = np.int64(a[0]) + np.int64(b[0])
                last = place + a.shape[0] + b.shape[0] - 3
                low[at] = place if empty else min(low[at], place)
                high[at] = last if empty else max(high[at], last)
                empty = False
    starts = room(low, high)
    places = np.zeros(starts[rows], np.int64)
    for at in range(rows):
        if finite[at]:
            _multiply(places, starts[at] - low[at], _of(count, at), _of(product, at), 1)
            _multiply(places, starts[at] - low[at], _of(left, at), _of(right, at), -1)
    return packed(places, starts, low, finite)


@compiled
def _of(sums: Sums, at: int) -> Digits:
    return sums.digits[sums.offsets[at] : sums.offsets[at + 1]]


@compiled
def _multiply(places: Ints, zero: int, a: Digits, b: Digits, sign: int) -> None:
    """Add the product of two finite sums; `zero`: where the place of 1 would be."""
    for i in range(1, a.shape[0]):
        for j in range(1, b.shape[0]):
            one, other = np.int64(a[i]), np.int64(b[j])
            at = zero + a[0] + b[0] + i + j - 2
            if i + 1 < a.shape[0]:
                one &= _LOW
            if j + 1 < b.shape[0]:
                other &= _LOW
            product = one * other
            upper = product >> 32
            if i + 1 < a.shape[0] and j + 1 < b.shape[0]:
                upper &= _LOW  # both have no sign
            places[at] += sign * (product & _LOW)
            places[at + 1] += sign * upper


@compiled
def _ratios(above: Sums, below: Sums) -> Floats:
    quotients = np.empty(above.offsets.shape[0] - 1, np.float64)
    for at in range(quotients.shape[0]):
        dividend, divisor = _of(above, at), _of(below, at)
        if dividend.shape[0] == 1 or divisor.shape[0] <= 1:
            quotients[at] = np.nan
        elif not dividend.shape[0]:
            quotients[at] = 0.0
        else:
            quotients[at] = _ratio(dividend, divisor)
    return quotients


@compiled
def _ratio(above: Digits, below: Digits) -> float:
    dividend, negative = _absolute(above)
    divisor, _ = _absolute(below)
    scale = np.int64(above[0]) - np.int64(below[0])
    if divisor.shape[0] == 1:  # the division needs two digits
        divisor = np.append(np.zeros(1, np.int64), divisor)
        scale += 1
    shift = 0
    while not (divisor[-1] << shift) >> 31:
        shift += 1
    divisor = _shifted(divisor, shift)[:-1]
    shifted = _shifted(dividend, shift)
    numbers = np.zeros(divisor.shape[0] + _DIGITS, np.int64)
    more = numbers.shape[0] - shifted.shape[0]  # zeros below, or digits that only show whether there is a remainder
    rest = np.int64(0)
    for place in range(shifted.shape[0]):
        if place + more >= 0:
            numbers[place + more] = shifted[place]
        else:
            rest |= shifted[place]
    quotient = _divide(numbers, divisor)
    for digit in numbers:
        rest |= digit
    size = _rounded(quotient, 32 * (scale - more), rest != 0)
    return -size if negative else size


@compiled
def _absolute(number: Digits) -> tuple[Ints, bool]:
    """Return the digits of the absolute value, the highest not 0, and whether the number is negative."""
    digits = np.zeros(number.shape[0] - 1, np.int64)
    negative = number[-1] < 0
    carry = np.int64(1 if negative else 0)
    for place in range(digits.shape[0]):
        digit = np.int64(number[place + 1]) & _LOW
        carry += digit ^ _LOW if negative else digit
        digits[place] = carry & _LOW
        carry >>= 32
    end = digits.shape[0]
    while end > 1 and digits[end - 1] == 0:
        end -= 1
    return digits[:end], negative


@compiled
def _shifted(digits: Ints, shift: int) -> Ints:
    """Return the digits shifted up by less than 32 bits, and one more digit."""
    shifted_digits = np.zeros(digits.shape[0] + 1, np.int64)
    for place in range(digits.shape[0]):
        shifted_digits[place] |= (digits[place] << shift) & _LOW
        shifted_digits[place + 1] = (digits[place] << shift) >> 32
    return shifted_digits


@compiled
def _divide(numbers: Ints, divisor: Ints) -> Ints:
    """Return the digits of the quotient; the remainder stays in `numbers` (Knuth, volume 2, 4.3.1, algorithm D)."""
    size = divisor.shape[0]
    quotient = np.zeros(numbers.shape[0] - size, np.int64)
    first, second = divisor[size - 1], divisor[size - 2]
    for at in range(quotient.shape[0] - 1, -1, -1):
        # Both are below 2**63: the highest digit left is less than the divisor's, or equal to it.
        guess, left = _by_digit(numbers[at + size], numbers[at + size - 1], first)
        while guess > _LOW or _exceeds(guess, second, left, numbers[at + size - 2]):
            guess -= 1
            left += first
            if left > _LOW:
                break
        borrow = np.int64(0)
        for place in range(size):
            product = guess * divisor[place]
            total = numbers[at + place] - (product & _LOW) + borrow
            numbers[at + place] = total & _LOW
            borrow = (total >> 32) - (product >> 32 & _LOW)
        numbers[at + size] += borrow
        if numbers[at + size] < 0:  # one too many
            guess -= 1
            carry = np.int64(0)
            for place in range(size):
                total = numbers[at + place] + divisor[place] + carry
                numbers[at + place] = total & _LOW
                carry = total >> 32
            numbers[at + size] += carry
        quotient[at] = guess
    return quotient


@compiled
def _by_digit(high: int, low: int, digit: int) -> tuple[int, int]:
    """Divide two digits by one digit with its highest bit set: in halves, as there are no unsigned 64 bits here."""
    guess, left = 0, high
    for half in (low >> 16, low & 0xFFFF):
        total = left << 16 | half
        guess = (guess << 16) + total // digit
        left = total % digit
    return guess, left


@compiled
def _exceeds(guess: int, second: int, left: int, third: int) -> bool:
    """Return whether guess * second is above left * 2**32 + third, for numbers of 32 bits."""
    product = guess * second
    upper = product >> 32 & _LOW
    return upper > left or (upper == left and product & _LOW > third)


@compiled
def _rounded(digits: Ints, exponent: int, rest: bool) -> float:
    """Return digits times 2**exponent as the nearest float; rest: whether a remainder follows the digits."""
    lead = digits.shape[0] - 1
    while lead > 0 and digits[lead] == 0:
        lead -= 1
    window = digits[lead]  # 62 leading bits, the last of which also shows whether any bit behind it is set
    exponent += 32 * lead
    odd = rest
    for place in range(lead - 1, -1, -1):
        free = 0
        while free < 32 and not window >> (61 - free):
            free += 1
        window = window << free | digits[place] >> (32 - free)
        exponent -= free
        odd = odd or digits[place] & ((1 << (32 - free)) - 1) != 0
        if free < 32:
            for behind in range(place):
                odd = odd or digits[behind] != 0
            break
    if exponent < _LEAST - 2:  # a float below has fewer bits, and is rounded once
        shift = min(_LEAST - 2 - exponent, 62)
        odd = odd or window & ((1 << shift) - 1) != 0
        window >>= shift
        exponent = _LEAST - 2
    return math.ldexp(float(window | (1 if odd else 0)), exponent)
