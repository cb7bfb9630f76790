"""The loops that write the parts of values: first the size of each, then its bytes at a place that the caller computed.

Rule: a row that is not live has no bytes. Sizes and bytes follow from the same numbers, so that no part ever writes
beyond its own place.
"""

from __future__ import annotations

import numpy as np

from keyedwm.runtime.compiled import bare, inlined

_WORD_BYTES = 8
_LETTERS = (98, 116, 110, 0, 102, 114)  # the characters 8 to 13 are \b, \t, \n, none, \f and \r


@inlined
def _size(number):
    """The number of bytes of an unsigned varint."""
    size = 1
    while number > np.uint64(127):
        number >>= np.uint64(7)
        size += 1
    return size


@inlined
def _store(number, at, out):
    while number > np.uint64(127):
        out[at] = np.uint8(number & np.uint64(127)) | np.uint8(128)
        number >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(number)
    return at + 1


@inlined
def _zigzag(number):
    return np.uint64((number << np.int64(1)) ^ (number >> np.int64(63)))


@bare
def number_sizes(numbers, live, is_zigzag, sizes):
    """Compute the sizes of varints. numbers: int64."""
    for row in range(len(numbers)):
        if live[row]:
            sizes[row] = _size(_zigzag(numbers[row]) if is_zigzag else np.uint64(numbers[row]))


@bare
def write_numbers(numbers, live, is_zigzag, at, out):
    """Write varints."""
    for row in range(len(numbers)):
        if live[row]:
            _store(_zigzag(numbers[row]) if is_zigzag else np.uint64(numbers[row]), at[row], out)


@bare
def write_bits(numbers, size, live, at, out):
    """Write the lowest bytes of numbers (uint64), the lowest byte first."""
    for row in range(len(numbers)):
        if live[row]:
            word = numbers[row]
            for i in range(size):
                out[at[row] + i] = np.uint8(word & np.uint64(255))
                word >>= np.uint64(8)


@bare
def write_literal(data, live, at, out):
    """Write the same bytes in each live row."""
    for row in range(len(live)):
        if live[row]:
            for i in range(len(data)):
                out[at[row] + i] = data[i]


@bare
def write_either(yes, live, first, second, at, out):  # noqa: PLR0917
    """Write one byte in each live row: the first where `yes` is set, else the second."""
    for row in range(len(live)):
        if live[row]:
            out[at[row]] = first if yes[row] else second


@bare
def write_spans(data, ends, live, at, out):
    """Copy data[ends[row]:ends[row + 1]]."""
    for row in range(len(live)):
        if live[row]:
            begin = np.int64(ends[row])
            for i in range(np.int64(ends[row + 1]) - begin):
                out[at[row] + i] = data[begin + i]


@inlined
def _magnitude_bytes(low, high):
    """The number of bytes of a number of two halves, with a bit for its sign."""
    if np.int64(high) < 0:
        low, high = ~low + np.uint64(1), ~high + np.uint64(1 if low == 0 else 0)
    bits = 0
    word = high if high != 0 else low
    while word != 0:
        word >>= np.uint64(1)
        bits += 1
    return (bits + (64 if high != 0 else 0) + 8) >> 3


@bare
def decimal_sizes(halves, live, sizes):
    """Compute the sizes of decimals as big-endian numbers. halves: uint64 (rows, 2), the low one first."""
    for row in range(len(live)):
        if live[row]:
            sizes[row] = _magnitude_bytes(halves[row, 0], halves[row, 1])


@bare
def write_decimals(halves, sizes, live, at, out):
    """Write big-endian numbers of these sizes, with their sign in all higher bits."""
    for row in range(len(live)):
        if live[row]:
            fill = np.uint8(255) if np.int64(halves[row, 1]) < 0 else np.uint8(0)
            for i in range(sizes[row]):
                place = at[row] + sizes[row] - 1 - i
                if i >= 2 * _WORD_BYTES:
                    out[place] = fill
                else:
                    word = halves[row, i // _WORD_BYTES]
                    out[place] = np.uint8((word >> np.uint64(8 * (i % _WORD_BYTES))) & np.uint64(255))


@bare
def spread(begins, lists, sizes, at):
    """Compute the place of each item: items lists[row]:lists[row + 1] lie one behind the other from begins[row] on."""
    for row in range(len(begins)):
        place = begins[row]
        for item in range(lists[row], lists[row + 1]):
            at[item] = place
            place += sizes[item]


@bare
def escaped_sizes(data, ends, live, sizes):
    """Compute the sizes of texts as strings of JSON, with their quotes."""
    for row in range(len(live)):
        if live[row]:
            size = np.int64(2)
            for i in range(np.int64(ends[row]), np.int64(ends[row + 1])):
                byte = data[i]
                if byte >= 32:
                    size += 2 if byte in (34, 92) else 1
                else:
                    size += 2 if byte in (8, 9, 10, 12, 13) else 6
            sizes[row] = size


@bare
def write_escaped(data, ends, live, at, out):
    """Write texts as strings of JSON."""
    for row in range(len(live)):
        if live[row]:
            place = at[row]
            out[place] = 34
            place += 1
            for i in range(np.int64(ends[row]), np.int64(ends[row + 1])):
                byte = data[i]
                if byte >= 32 and byte != 34 and byte != 92:  # noqa: PLR1714 - twice as fast
                    out[place] = byte
                    place += 1
                    continue
                out[place] = 92
                if byte >= 32:
                    out[place + 1] = byte
                elif byte in (8, 9, 10, 12, 13):
                    out[place + 1] = _LETTERS[byte - 8]
                else:
                    out[place + 1], out[place + 2], out[place + 3] = 117, 48, 48  # u00
                    low = byte & np.uint8(15)
                    out[place + 4] = 48 + (byte >> np.uint8(4))
                    out[place + 5] = low + (48 if low < 10 else 87)
                    place += 4
                place += 2
            out[place] = 34


@bare
def write_base64(data, ends, letters, live, at, out):  # noqa: PLR0917
    """Write bytes in base64, as strings of JSON."""
    for row in range(len(live)):
        if live[row]:
            begin, end, place = np.int64(ends[row]), np.int64(ends[row + 1]), at[row]
            out[place] = 34
            place += 1
            for i in range(begin, end, 3):
                three = np.uint32(data[i]) << np.uint32(16)
                if i + 1 < end:
                    three |= np.uint32(data[i + 1]) << np.uint32(8)
                if i + 2 < end:
                    three |= np.uint32(data[i + 2])
                for j in range(4):
                    six = (three >> np.uint32(18 - 6 * j)) & np.uint32(63)
                    out[place + j] = letters[six] if i + j - 1 < end else 61
                place += 4
            out[place] = 34
