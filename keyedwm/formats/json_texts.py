"""Single values as JSON text, written into a buffer by compiled functions: numbers, strings, times, bytes.

Rule: the caller has checked the bytes that are read, and the room: 64 bytes, and for a string 6 more for each byte.
Each function returns the position behind its text.
"""

from __future__ import annotations

import numpy as np

from keyedwm.runtime.compiled import bare, inlined

DATE, TIME, TIMESTAMP = 0, 1, 2
NULL, TRUE, FALSE = (np.frombuffer(one, np.uint8) for one in (b"null", b"true", b"false"))
_WIDE = 16  # bytes of the widest decimal
_MOST_DIGITS = 38
_QUOTE, _BACKSLASH, _ZERO, _DASH, _POINT, _COLON = 34, 92, 48, 45, 46, 58
_U = 117
_DAY_S = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999
_NANOS = 1_000_000_000
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@bare
def put_word(out, to, text):
    """Write a constant text."""
    for i in range(len(text)):
        out[to + i] = text[i]
    return to + len(text)


@bare
def _digits(out, to, number, least):
    """Write a number of 0 or more with at least `least` digits."""
    size, rest = np.int64(1), number // 10
    while rest > 0:
        size, rest = size + 1, rest // 10
    size = max(size, least)
    for i in range(size):
        out[to + size - 1 - i] = _ZERO + number % 10
        number //= 10
    return to + size


@bare
def put_number(out, to, number):
    """Write a whole number."""
    if number < 0:
        out[to] = _DASH
        to += 1
        if number == np.int64(-(2**63)):
            return _digits(out, _digits(out, to, np.int64(922_337_203_685_477_580), 1), np.int64(8), 1)
        number = -number
    return _digits(out, to, number, 1)


@bare
def put_escaped(data, at, size, out, to):
    """Write bytes as a JSON string; invalid UTF-8 stays as it is."""
    out[to] = _QUOTE
    to += 1
    for i in range(size):
        byte = data[at + i]
        if byte in (_QUOTE, _BACKSLASH):
            out[to], out[to + 1] = _BACKSLASH, byte
            to += 2
        elif byte < 32:
            out[to], out[to + 1], out[to + 2], out[to + 3] = _BACKSLASH, _U, _ZERO, _ZERO
            out[to + 4], out[to + 5] = _HEX[byte >> 4], _HEX[byte & 15]
            to += 6
        else:
            out[to] = byte
            to += 1
    out[to] = _QUOTE
    return to + 1


@bare
def put_base64(data, at, size, out, to):
    """Write bytes in base64, in quotes."""
    out[to] = _QUOTE
    to += 1
    for i in range(0, size, 3):
        word, some = np.int64(0), min(3, size - i)
        for j in range(3):
            word = word << 8 | (np.int64(data[at + i + j]) if j < some else 0)
        for j in range(4):
            out[to + j] = _BASE64[word >> (18 - 6 * j) & 63] if j <= some else 61
        to += 4
    out[to] = _QUOTE
    return to + 1


@bare
def put_decimal(data, at, size, scale, out, to):  # noqa: PLR0917
    """Write a big-endian number with `scale` digits behind the point; null if it has more than 38 digits."""
    negative = size > 0 and data[at] >= 128
    fill = np.uint8(255) if negative else np.uint8(0)
    high = low = np.uint64(0xFFFFFFFFFFFFFFFF) if negative else np.uint64(0)
    for i in range(size):
        if i < size - _WIDE:
            if data[at + i] != fill:
                return put_word(out, to, NULL)
        else:
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[at + i])
    if (np.int64(high) < 0) != negative:
        return put_word(out, to, NULL)
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
    half = np.uint64(0xFFFFFFFF)
    a, b, c, d = high >> np.uint64(32), high & half, low >> np.uint64(32), low & half
    begin, digits = to + 1 + _MOST_DIGITS + 2, 0  # written from the right, then moved
    while digits <= scale or a | b | c | d:
        if digits > _MOST_DIGITS:
            return put_word(out, to, NULL)
        if digits == scale and scale > 0:
            begin -= 1
            out[begin] = _POINT
        rest = a % np.uint64(10)
        a //= np.uint64(10)
        b |= rest << np.uint64(32)
        rest = b % np.uint64(10)
        b //= np.uint64(10)
        c |= rest << np.uint64(32)
        rest = c % np.uint64(10)
        c //= np.uint64(10)
        d |= rest << np.uint64(32)
        begin -= 1
        out[begin] = np.uint8(_ZERO) + np.uint8(d % np.uint64(10))
        d //= np.uint64(10)
        digits += 1
    if digits > _MOST_DIGITS + 1 or (digits > _MOST_DIGITS and out[begin] != _ZERO):
        return put_word(out, to, NULL)
    behind = to + 1 + _MOST_DIGITS + 2
    if negative:
        out[to] = _DASH
        to += 1
    for i in range(behind - begin):
        out[to + i] = out[begin + i]
    return to + behind - begin


@bare
def _date(out, to, days):
    """Write a day since 1970 as YYYY-MM-DD. days: within the years 1 to 9999."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    part = (5 * of_year + 2) // 153
    month = part + 3 if part < 10 else part - 9
    to = _digits(out, to, year + era * 400 + (1 if month <= 2 else 0), 4)
    out[to] = _DASH
    to = _digits(out, to + 1, month, 2)
    out[to] = _DASH
    return _digits(out, to + 1, of_year - (153 * part + 2) // 5 + 1, 2)


@bare
def _time(out, to, second, nanos):
    """Write a second of the day as HH:MM:SS, and its nanoseconds, unless they are 0, as 3, 6 or 9 digits."""
    to = _digits(out, to, second // 3_600, 2)
    out[to] = _COLON
    to = _digits(out, to + 1, second // 60 % 60, 2)
    out[to] = _COLON
    to = _digits(out, to + 1, second % 60, 2)
    digits = 9
    while digits > 0 and nanos % 1_000 == 0:
        nanos, digits = nanos // 1_000, digits - 3
    if digits == 0:
        return to
    out[to] = _POINT
    return _digits(out, to + 1, nanos, digits)


@bare
def put_instant(kind, number, per_second, local, out, to):  # noqa: PLR0917
    """Write a date, time or timestamp in quotes; null outside of the years 1 to 9999, or of a time's one day."""
    if kind == DATE:
        days, second, nanos = number, np.int64(0), np.int64(0)
    else:
        seconds = number // per_second
        nanos = (number - seconds * per_second) * (_NANOS // per_second)
        days = seconds // _DAY_S
        second = seconds - days * _DAY_S
    if days < _FIRST_DAY or days > _LAST_DAY or (kind == TIME and days != 0):
        return put_word(out, to, NULL)
    out[to] = _QUOTE
    to += 1
    if kind != TIME:
        to = _date(out, to, days)
    if kind == TIMESTAMP:
        out[to] = 84
        to += 1
    if kind != DATE:
        to = _time(out, to, second, nanos)
    if kind == TIMESTAMP and local == 0:
        out[to] = 90
        to += 1
    out[to] = _QUOTE
    return to + 1


@bare
def put_uuid(data, at, out, to):
    """Write 16 bytes as an identifier, in quotes."""
    out[to] = _QUOTE
    to += 1
    for i in range(16):
        if i in (4, 6, 8, 10):
            out[to] = _DASH
            to += 1
        out[to], out[to + 1] = _HEX[data[at + i] >> 4], _HEX[data[at + i] & 15]
        to += 2
    out[to] = _QUOTE
    return to + 1


@inlined
def _word_of(data, at, size):
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@bare
def put_duration(data, at, out, to):
    """Write months, days and milliseconds as PnMnDTnS."""
    months, days, ms = (np.int64(_word_of(data, at, 4)), np.int64(_word_of(data, at + 4, 4)),
                        np.int64(_word_of(data, at + 8, 4)))  # fmt: skip
    out[to], out[to + 1] = _QUOTE, 80
    to = _digits(out, to + 2, months, 1)
    out[to] = 77
    to = _digits(out, to + 1, days, 1)
    out[to], out[to + 1] = 68, 84
    to = _digits(out, to + 2, ms // 1_000, 1)
    if ms % 1_000:
        out[to] = _POINT
        to = _digits(out, to + 1, ms % 1_000, 3)
    out[to], out[to + 1] = 83, _QUOTE
    return to + 2
