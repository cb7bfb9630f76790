"""Numbers and strings out of spans of text, in compiled loops.

Rule: a number is written as in JSON, and may have leading zeros. A whole number has neither fraction nor exponent and
fits 64 bits. A float is the one nearest to the text. A text that is not wholly a number is null, never a guess.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import text_of
from keyedwm.runtime.compiled import bare, inlined

_Bytes = NDArray[np.uint8]
_Places = NDArray[np.int64]
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _UPPER_E, _LOWER_E = 45, 43, 46, 48, 57, 69, 101
_QUOTE, _BACKSLASH, _LOWER_U = 34, 92, 117
_TENS = 10.0 ** np.arange(23)  # the powers of ten that a double holds exactly
_EXACT = 2**53
_FAR = 10**17  # no text has this number of digits, so a higher exponent needs no exact value
_WRONG, _READ, _LONG = 0, 1, 2


def whole_numbers(data: _Bytes, start: _Places, end: _Places) -> pa.Array:
    """Read each text [start, end) of `data` as int64; start -1: no text."""
    values, valid = np.zeros(len(start), np.int64), np.zeros(len(start), np.bool_)
    _whole_numbers(data, start, end, values, valid)
    return pa.array(values, mask=None if valid.all() else ~valid)


def floats(data: _Bytes, start: _Places, end: _Places) -> pa.Array:
    """Read each text [start, end) of `data` as float64; start -1: no text."""
    values, status = np.zeros(len(start), np.float64), np.zeros(len(start), np.uint8)
    _floats(data, start, end, values, status)
    (long,) = np.nonzero(status == _LONG)
    if len(long):
        texts = _strings(data, start[long], end[long], unescape=False)
        values[long] = pc.cast(texts, pa.float64()).to_numpy()
    return pa.array(values, mask=None if status.all() else status == _WRONG)


def strings(data: _Bytes, start: _Places, end: _Places) -> pa.Array:
    """Return the values of `json_scan.find`: a string unescaped, a literal null as null, any other value as JSON."""
    nulls = np.zeros(len(start), np.bool_)
    _nulls(data, start, end, nulls)
    return _strings(data, np.where(nulls, -1, start), end, unescape=True)


def _strings(data: _Bytes, start: _Places, end: _Places, *, unescape: bool) -> pa.Array:
    present = start >= 0
    ends = np.zeros(len(start) + 1, np.int32)
    np.cumsum(np.where(present, end - start, 0), out=ends[1:])
    text = np.empty(ends[-1], np.uint8)
    _copy(data, start, end, unescape, ends, text, present)
    nulls = len(present) - int(np.count_nonzero(present))
    valid = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    texts = pa.Array.from_buffers(
        pa.binary(), len(present), [valid, pa.py_buffer(ends), pa.py_buffer(text[: ends[-1]])], nulls
    )
    return text_of(texts)


@bare
def _digits(data, at, stop):
    """The position behind the digits that begin at `at`."""
    while at < stop and _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@bare
def _whole_numbers(data, start, end, values, valid):
    for row in range(len(start)):
        at, stop = start[row], end[row]
        negative = 0 <= at < stop and data[at] == _MINUS
        first = at + 1 if negative else at
        if at < 0 or first >= stop or stop - first > 19 or _digits(data, first, stop) < stop:
            continue
        size = np.uint64(0)
        for place in range(first, stop):
            size = size * np.uint64(10) + np.uint64(data[place] - _ZERO)
        if size > np.uint64(2**63 - 1) + np.uint64(negative):
            continue
        values[row] = -np.int64(size) if negative else np.int64(size)
        valid[row] = True


@bare
def _floats(data, start, end, values, status):
    for row in range(len(start)):
        if start[row] >= 0:
            status[row], values[row] = _float(data, start[row], end[row])


@bare
def _float(data, at, stop):
    """Return (status, number).

    _LONG: the mantissa or the power of ten is no exact double, so the caller parses the text.
    """
    negative = at < stop and data[at] == _MINUS
    whole = at + 1 if negative else at
    point = _digits(data, whole, stop)
    if point == whole:
        return _WRONG, 0.0
    behind = point
    if behind < stop and data[behind] == _POINT:
        behind = _digits(data, point + 1, stop)
        if behind == point + 1:
            return _WRONG, 0.0
    power = np.int64(point - behind + 1 if behind > point else 0)
    mantissa = np.int64(0)
    for place in range(whole, behind):
        if place != point and mantissa < _EXACT:
            mantissa = mantissa * 10 + (data[place] - _ZERO)
    if behind < stop:
        if data[behind] not in (_UPPER_E, _LOWER_E):
            return _WRONG, 0.0
        first = behind + 1
        negative_exponent = first < stop and data[first] == _MINUS
        if negative_exponent or (first < stop and data[first] == _PLUS):
            first += 1
        if first == stop or _digits(data, first, stop) < stop:
            return _WRONG, 0.0
        exponent = np.int64(0)
        for place in range(first, stop):
            if exponent < _FAR:
                exponent = exponent * 10 + (data[place] - _ZERO)
        power += -exponent if negative_exponent else exponent
    if mantissa >= _EXACT or power < -22 or power > 22:
        return _LONG, 0.0
    value = mantissa * _TENS[power] if power >= 0 else mantissa / _TENS[-power]
    return _READ, -value if negative else value


def escaped_texts(
    data: _Bytes, start: _Places, end: _Places, rows: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], pa.Array]:
    """Return the marked rows whose value has escapes, and these values unescaped. start, end: of `json_scan.find`."""
    marked = rows & (start >= 0)
    if marked.any():
        _mark_escaped(data, start, end, marked)
    (at,) = np.nonzero(marked)
    return at, _strings(data, start[at], end[at], unescape=True)


@bare
def _mark_escaped(data, start, end, marked):
    for row in range(len(start)):
        if marked[row]:
            marked[row] = _has_escape(data, start[row], end[row])


@bare
def _nulls(data, start, end, nulls):
    """Mark the values that are the literal null. A quote before the value shows a string."""
    for row in range(len(start)):
        at = start[row]
        if end[row] - at == 4 and at > 0 and data[at - 1] != _QUOTE:
            nulls[row] = data[at] == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108


@bare
def _copy(data, start, end, unescape, ends, text, present):  # noqa: PLR0917
    """Copy the texts one after the other. Set `ends` to the unescaped ends; clear `present` if an escape is invalid."""
    out = 0
    for row in range(len(start)):
        if present[row]:
            begin = out
            at, stop = start[row], end[row]
            if not (unescape and at > 0 and data[at - 1] == _QUOTE and _has_escape(data, at, stop)):
                # unsigned: the copy is not vectorised if positions may be negative and count from the end
                to, first = np.uint64(out), np.uint64(at)
                for i in range(np.uint64(stop - at)):
                    text[to + i] = data[first + i]
                out += stop - at
            else:
                at, out = _unescaped_text(data, at, stop, text, out)
                if at < 0:
                    present[row] = False
                    out = begin
        ends[row + 1] = out


@inlined
def _has_escape(data, at, stop):
    first, escapes = np.uint64(at), np.uint8(0)
    for i in range(np.uint64(stop - at)):
        escapes |= np.uint8(data[first + i] == _BACKSLASH)
    return escapes != 0


@bare
def _unescaped_text(data, at, stop, text, out):
    """Write a text, its escapes replaced.

    Returns the next positions in data and text; the first is -1 if an escape is invalid.
    """
    while 0 <= at < stop:
        if data[at] == _BACKSLASH:
            at, out = _unescaped(data, at, stop, text, out)
        else:
            text[out] = data[at]
            at += 1
            out += 1
    return at, out


@bare
def _unescaped(data, at, stop, text, out):
    """Write the character whose escape begins at `at`.

    Returns the next positions in data and text; the first is -1 if the escape is invalid.
    """
    behind, code = escaped_character(data, at, stop)
    if behind < 0:
        return behind, out
    if code < 0x80:
        text[out] = code
        return behind, out + 1
    size = 2 if code < 0x800 else (3 if code < 0x10000 else 4)
    text[out] = (0xF00 >> size & 0xFF) | (code >> 6 * (size - 1))
    for place in range(1, size):
        text[out + place] = 0x80 | (code >> 6 * (size - 1 - place) & 0x3F)
    return behind, out + size


@bare
def escaped_character(data, at, stop):
    """The position behind the escape that begins at `at`, and its character; both -1 if the escape is invalid."""
    nothing = (np.int64(-1), np.int64(-1))
    if at + 1 >= stop:
        return nothing
    if data[at + 1] != _LOWER_U:
        code = _plain(data[at + 1])
        return (at + 2, code) if code >= 0 else nothing
    code = _hex(data, at + 2, stop)
    if not 0xD800 <= code < 0xE000:
        return (at + 6, code) if code >= 0 else nothing
    if code >= 0xDC00 or at + 7 >= stop or data[at + 6] != _BACKSLASH or data[at + 7] != _LOWER_U:
        return nothing
    low = _hex(data, at + 8, stop)
    if not 0xDC00 <= low < 0xE000:
        return nothing
    return at + 12, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)


@bare
def _plain(c):
    """The character that a backslash and `c` stand for, -1 if JSON has no such escape."""
    if c in (_QUOTE, _BACKSLASH, 47):
        return np.int64(c)
    if c == 98:
        return np.int64(8)
    if c == 102:
        return np.int64(12)
    if c == 110:
        return np.int64(10)
    if c == 114:
        return np.int64(13)
    return np.int64(9 if c == 116 else -1)


@bare
def _hex(data, at, stop):
    """Four hex digits as a number, or -1."""
    if at + 4 > stop:
        return np.int64(-1)
    code = np.int64(0)
    for place in range(at, at + 4):
        c = data[place]
        if _ZERO <= c <= _NINE:
            digit = c - _ZERO
        elif 97 <= c <= 102:
            digit = c - 87
        elif 65 <= c <= 70:
            digit = c - 55
        else:
            return np.int64(-1)
        code = code * 16 + digit
    return code
