"""The compiled loops that find the records of many batches, and copy their bytes together.

Rule: two steps. `find_records` checks every length against the bytes of its batch before it follows the length. So the
worst effect of a damaged batch is a fault. `gather` copies the bytes of the records; it checks nothing.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from keyedwm.runtime.compiled import bare, inlined

LEAST_RECORD_BYTES = 7
UNNAMED = -2  # instead of the length of a header's value: the record is no control record
MOST_HEADERS = 1 << 16  # of one record; each costs far more memory than its bytes, which may be two


class PlanColumn(IntEnum):
    """Columns of the plan, int64[batches, len(PlanColumn)]: the place of a batch's records, and facts of its header."""

    START = 0
    END = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    COUNT = 4
    FIRST_TIME = 5
    APPEND_TIME = 6
    LOG_APPENDED = 7
    LEAST_OFFSET = 8  # no record of the piece may have a lower offset


class RecordField(IntEnum):
    """Rows of the result, int64[len(RecordField), records]; a length of -1 is null; KIND: 1 for log-append time."""

    OFFSET = 0
    TIME = 1
    KIND = 2
    KEY_AT = 3
    KEY_LENGTH = 4
    VALUE_AT = 5
    VALUE_LENGTH = 6
    HEADERS_AT = 7
    HEADERS = 8


class HeaderField(IntEnum):
    """Rows of the headers, int64[len(HeaderField), headers]."""

    NAME_AT = 0
    NAME_LENGTH = 1
    CONTENT_AT = 2
    CONTENT_LENGTH = 3


class Fault(IntEnum):
    """Why the search stopped; inside the loops a fault is passed as a negative position."""

    NUMBER = 1
    LENGTH = 2
    OFFSET = 3
    TIME = 4
    HEADERS = 5
    LEFTOVER = 6


FAULTS = {
    Fault.NUMBER: "has a number that is too long or cut off",
    Fault.LENGTH: "has a record whose lengths do not add up",
    Fault.OFFSET: "has a record whose offset does not follow the one before or leaves the batch",
    Fault.TIME: "has a timestamp beyond 64 bits",
    Fault.HEADERS: f"has a record with damaged headers or more than {MOST_HEADERS} of them",
    Fault.LEFTOVER: "has bytes after its last record",
}


@bare
def find_records(data, plan, span, fields, cursor):  # type: ignore[no-untyped-def]  # noqa: PLR0911 (each fault has its exit)
    """Find the records with span[0] <= offset < span[1]; return (their number, 0), or (batch, fault).

    data: uint8[bytes]; plan: see PlanColumn; fields: see RecordField. When `fields` is full, it stops and stores its
    position in `cursor`: batch (len(plan) at the end), position, records left and least offset.
    """
    row, first = 0, cursor[0]
    at, left, least = cursor[1], cursor[2], cursor[3]
    offsets, times, kinds = fields[0], fields[1], fields[2]
    for b in range(first, len(plan)):
        if b > first:
            at, left, least = plan[b, 0], plan[b, 4], plan[b, 8]
        end, base, last, first_time = plan[b, 1], plan[b, 2], plan[b, 3], plan[b, 5]
        append_time, appended = plan[b, 6], plan[b, 7]
        for done in range(left):
            if row == len(offsets):
                cursor[0], cursor[1], cursor[2], cursor[3] = b, at, left - done, least
                return row, 0
            length, at = _length(data, at, end)
            if at < 0 or length < 1:
                return b, 2
            stop = at + length
            delta_time, at = _number(data, at + 1, stop, 64)
            delta_offset, at = _number(data, at, stop, 32)
            if at < 0:
                return b, 1
            offset, time = base + delta_offset, first_time + delta_time
            if offset < least or offset > last:
                return b, 3
            if ((first_time ^ time) & (delta_time ^ time)) < 0:
                return b, 4
            fault = _body(data, at, stop, fields, row)
            if fault:
                return b, fault
            at, least = stop, offset + 1
            if span[0] <= offset < span[1]:
                offsets[row], kinds[row] = offset, appended
                times[row] = append_time if appended else time
                row += 1
        if at != end:
            return b, 6
    cursor[0] = len(plan)
    return row, 0


def begin(plan: np.ndarray) -> np.ndarray:
    """Return the cursor at which `find_records` begins."""
    start = (PlanColumn.START, PlanColumn.COUNT, PlanColumn.LEAST_OFFSET)
    return np.array([0, *(plan[0, column] for column in start)], np.int64)


@bare
def whole_records(data, most):  # type: ignore[no-untyped-def]
    """Count the complete records in `data`, at most `most`, by their lengths.

    Returns (their number, the end of the last record, bytes that the next record needs or 0 if unknown, offset delta of
    the last record). If a length is impossible, the needed bytes are a negated fault.
    """
    at, last = 0, 0
    for row in range(most):
        length, body = _number(data, at, len(data), 32)
        if body < 0:
            return row, at, -1 if len(data) - at >= 5 else 0, last
        if length < 1:
            return row, at, -2, last
        if body + length > len(data):
            return row, at, body - at + length, last
        _, position = _number(data, body + 1, body + length, 64)
        last, position = _number(data, position, body + length, 32)
        if position < 0:
            return row, at, -1, last
        at = body + length
    return most, at, 0, last


@bare
def find_headers(data, headers_at, headers, fields):  # type: ignore[no-untyped-def]
    """Find the headers of records that `find_records` has checked; fields: see HeaderField."""
    h = 0
    for i in range(len(headers)):
        at = headers_at[i]
        for _ in range(headers[i]):
            length, at = _length(data, at, len(data))
            fields[0, h], fields[1, h] = at, length
            length, at = _length(data, at + length, len(data))
            fields[2, h], fields[3, h] = at, length
            at += max(length, 0)
            h += 1


@bare
def find_named(data, headers_at, headers, name, content):  # type: ignore[no-untyped-def]
    """Mark the records, checked by `find_records`, whose first header has `name` (uint8[]); return their number.

    content: int64[2, records]: the place of that header's value and its length, -1 for null; UNNAMED for other records.
    Only the first header is read, so that a record with many headers costs no more than one with few.
    """
    count = 0
    for i in range(len(headers)):
        content[1, i] = -2
        if headers[i] == 0:
            continue
        length, at = _length(data, headers_at[i], len(data))
        same = length == len(name)
        for k in range(length if same else 0):
            if data[at + k] != name[k]:
                same = False
                break
        if same:
            content[1, i], content[0, i] = _length(data, at + length, len(data))
            count += 1
    return count


@bare
def gather(data, starts, ends, out):  # type: ignore[no-untyped-def]
    """Copy value i, which starts at starts[i] and is ends[i + 1] - ends[i] bytes long, to its place in `out`."""
    for i in range(len(starts)):
        # unsigned: positions that might count from the end would keep the copy from being vectorised
        to, at = np.uint64(ends[i]), np.uint64(starts[i])
        for k in range(np.uint64(ends[i + 1]) - to):
            out[to + k] = data[at + k]


@inlined
def _body(data, at, end, fields, row):  # type: ignore[no-untyped-def]  # noqa: PLR0911 (each fault has its exit)
    """Read key, value and headers of a record that ends at `end`; write their places, return a fault or 0."""
    length, at = _length(data, at, end)
    if at < 0:
        return -at
    fields[3, row], fields[4, row] = at, length
    length, at = _length(data, at + max(length, 0), end)
    if at < 0:
        return -at
    fields[5, row], fields[6, row] = at, length
    count, at = _number(data, at + max(length, 0), end, 32)
    if at < 0:
        return 1
    if count < 0 or count > MOST_HEADERS:
        return 5
    fields[7, row], fields[8, row] = at, count
    for _ in range(count):
        length, at = _length(data, at, end)
        if at < 0 or length < 0:
            return 5
        length, at = _length(data, at + length, end)
        if at < 0:
            return 5
        at += max(length, 0)
    return 0 if at == end else 2


@inlined
def _length(data, at, end):  # type: ignore[no-untyped-def]
    """A length that fits before `end`, -1 for null; returns (length, position after it or a negated fault)."""
    length, at = _number(data, at, end, 32)
    if at < 0:
        return length, -1
    if length > end - at:
        return length, -2
    return max(length, -1), at


@inlined
def _number(data, at, end, bits):  # type: ignore[no-untyped-def]
    """A zigzag number of at most `bits` bits; returns (number, position after it, or -1 if damaged or `at` was)."""
    if at < 0 or at >= end:
        return np.int64(0), -1
    low = np.int64(data[np.uint64(at)])
    if low < 128:
        return (low >> 1) ^ -(low & 1), at + 1
    if at + 3 <= end:  # most numbers are short
        middle, high = np.int64(data[np.uint64(at + 1)]), np.int64(data[np.uint64(at + 2)])
        if middle < 128:
            low = (low & 127) | (middle << 7)
            return (low >> 1) ^ -(low & 1), at + 2
        if high < 128:
            low = (low & 127) | ((middle & 127) << 7) | (high << 14)
            return (low >> 1) ^ -(low & 1), at + 3
    return _long_number(data, at, end, bits)


@bare
def _long_number(data, at, end, bits):  # type: ignore[no-untyped-def]
    result, shift = np.uint64(0), 0
    while at < end and shift < bits:
        byte = np.int64(data[at])
        at += 1
        result |= np.uint64(byte & 127) << np.uint64(shift)
        shift += 7
        if byte < 128:
            number = np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1))
            if bits == 32 and (number > 2147483647 or number < -2147483648):
                break
            return number, at
    return np.int64(0), -1
