"""The compiled loop that turns the records of many batches into columns.

Rule: every length is checked against the bytes of its batch before it is followed, so the worst a damaged batch can do is
make the loop stop with a fault. One pass; bytes are copied once, and only those of wanted columns.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from keyedwm.kafka.compiled import compiled


class Plan(IntEnum):
    """Columns of the plan, int64[batches, len(Plan)]: where the records of a batch stand and what its header says."""

    START = 0
    END = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    COUNT = 4
    FIRST_TIME = 5
    APPEND_TIME = 6
    LOG_APPENDED = 7


class Fault(IntEnum):
    """Why the loop stopped."""

    NONE = 0
    VARINT = 1
    LENGTH = 2
    OFFSET = 3
    TIME = 4
    HEADERS = 5
    LEFTOVER = 6


FAULTS = {
    Fault.VARINT: "has a number that is too long or cut off",
    Fault.LENGTH: "has a record whose lengths do not add up",
    Fault.OFFSET: "has a record whose offset does not follow the one before or leaves the batch",
    Fault.TIME: "has a timestamp beyond 64 bits",
    Fault.HEADERS: "has a record with damaged headers",
    Fault.LEFTOVER: "has bytes after its last record",
}


class Total(IntEnum):
    """What the loop counts, int64[len(Total)]."""

    ROWS = 0
    KEY_BYTES = 1
    VALUE_BYTES = 2
    HEADERS = 3
    HEADER_KEY_BYTES = 4
    HEADER_VALUE_BYTES = 5
    NULL_KEYS = 6
    NULL_VALUES = 7
    NULL_HEADERS = 8
    NULL_HEADER_VALUES = 9


@compiled
def _varint(data, at, end, bits):  # type: ignore[no-untyped-def]
    """A zigzag number of at most `bits` bits; returns (value, position after it), position -1 if it is damaged."""
    byte = np.int64(0)
    if at < end:
        byte = np.int64(data[at])
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), at + 1
    result = np.uint64(0)
    shift = 0
    while at < end and shift < bits:
        byte = np.int64(data[at])
        at += 1
        result |= np.uint64(byte & 127) << np.uint64(shift)
        shift += 7
        if byte < 128:
            value = np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1))
            if bits == 32 and (value > 2147483647 or value < -2147483648):
                return np.int64(0), -1
            return value, at
    return np.int64(0), -1


@compiled
def _copy(data, at, length, out, to):  # type: ignore[no-untyped-def]
    for i in range(length):
        out[to + i] = data[at + i]


@compiled
def _set_bit(bitmap, i):  # type: ignore[no-untyped-def]
    bitmap[i >> 3] |= np.uint8(1 << (i & 7))


@compiled
def _headers(data, at, end, keep, totals, key_ends, keys, value_ends, values, value_valid):  # type: ignore[no-untyped-def]
    """The headers of one record, which must end at `end`; returns (how many, fault)."""
    count, at = _varint(data, at, end, 32)
    if at < 0:
        return 0, 1
    if count < 0 or count > (end - at) // 2:
        return 0, 5
    h, k, v, nulls = totals[3], totals[4], totals[5], totals[9]
    for _ in range(count):
        length, at = _varint(data, at, end, 32)
        if at < 0 or length < 0 or length > end - at:
            return 0, 5
        if keep:
            _copy(data, at, length, keys, k)
        k += length
        at += length
        length, at = _varint(data, at, end, 32)
        if at < 0 or length > end - at:
            return 0, 5
        if length >= 0:
            if keep:
                _copy(data, at, length, values, v)
                _set_bit(value_valid, h)
            v += length
            at += length
        else:
            nulls += 1
        h += 1
        if keep:
            key_ends[h] = k
            value_ends[h] = v
    if at != end:
        return 0, 2
    if keep:
        totals[3], totals[4], totals[5], totals[9] = h, k, v, nulls
    return count, 0


@compiled
def decode(  # type: ignore[no-untyped-def]  # noqa: PLR0912, PLR0915 (one loop over one layout; split, it would pass thirty arrays around)
    data, plan, start, stop, wanted, totals, offsets, times, kinds,
    key_ends, keys, key_valid, value_ends, values, value_valid,
    header_ends, headers_valid, name_ends, names, content_ends, contents, content_valid,
):  # fmt: skip
    """Decode the records with start <= offset < stop; returns (fault, number of the batch it is in).

    data: uint8[bytes]; plan: see Plan; wanted: (key, value, headers). Ends are int32[rows + 1] with a leading 0, bitmaps are
    zeroed, least significant bit first. `totals` counts what was written.
    """
    row, k, v = totals[0], totals[1], totals[2]
    for b in range(len(plan)):
        at, end, base, last, count = plan[b, 0], plan[b, 1], plan[b, 2], plan[b, 3], plan[b, 4]
        first_time, append_time, appended = plan[b, 5], plan[b, 6], plan[b, 7]
        least = base
        for _ in range(count):
            length, at = _varint(data, at, end, 32)
            if at < 0:
                return 1, b
            if length < 1 or length > end - at:
                return 2, b
            record_end = at + length
            delta_time, at = _varint(data, at + 1, record_end, 64)
            if at < 0:
                return 1, b
            delta_offset, at = _varint(data, at, record_end, 32)
            if at < 0:
                return 1, b
            offset = base + delta_offset
            if offset < least or offset > last:
                return 3, b
            least = offset + 1
            time = first_time + delta_time
            if ((first_time ^ time) & (delta_time ^ time)) < 0:
                return 4, b
            inside = start <= offset < stop
            key_length, at = _varint(data, at, record_end, 32)
            if at < 0:
                return 1, b
            if key_length > record_end - at:
                return 2, b
            if key_length >= 0:
                if inside and wanted[0]:
                    _copy(data, at, key_length, keys, k)
                    _set_bit(key_valid, row)
                    k += key_length
                at += key_length
            elif inside:
                totals[6] += 1
            value_length, at = _varint(data, at, record_end, 32)
            if at < 0:
                return 1, b
            if value_length > record_end - at:
                return 2, b
            if value_length >= 0:
                if inside and wanted[1]:
                    _copy(data, at, value_length, values, v)
                    _set_bit(value_valid, row)
                    v += value_length
                at += value_length
            elif inside:
                totals[7] += 1
            header_count, fault = _headers(
                data,
                at,
                record_end,
                inside and wanted[2],
                totals,
                name_ends,
                names,
                content_ends,
                contents,
                content_valid,
            )
            if fault:
                return fault, b
            at = record_end
            if inside:
                offsets[row] = offset
                times[row] = append_time if appended else time
                kinds[row] = appended
                if wanted[0]:
                    key_ends[row + 1] = k
                if wanted[1]:
                    value_ends[row + 1] = v
                if wanted[2]:
                    header_ends[row + 1] = totals[3]
                    if header_count > 0:
                        _set_bit(headers_valid, row)
                    else:
                        totals[8] += 1
                row += 1
        if at != end:
            return 6, b
    totals[0], totals[1], totals[2] = row, k, v
    return 0, -1
