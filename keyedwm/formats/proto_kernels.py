"""Running programs over Protobuf messages, in one compiled loop over their fields.

Rule: no byte outside of a message is read: each step first checks the bytes that are left. Fields that are not
requested are skipped by their wire type. As everywhere in Protobuf, the last value of a field counts. A message that
occurs twice is merged, and a member of a oneof clears the others.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from keyedwm.formats.faults import Fault
from keyedwm.runtime.compiled import bare, inlined


class Op(IntEnum):
    """What the loop does with a field: an entry is (number, wire type, op, slot, argument, count)."""

    SIGNED = 0  # a varint of 64 bits; argument, here and up to ZIGZAG_32: 1 to store it as a double
    UNSIGNED = 1  # a number that needs 64 bits is null, unless it is stored as a double
    SIGNED_32 = 2
    UNSIGNED_32 = 3
    ZIGZAG = 4
    ZIGZAG_32 = 5
    FLAG = 6
    FLOAT = 7
    DOUBLE = 8
    SPAN = 9
    SYMBOL = 10  # argument: the place of its first name; count: of its names; a number without a name is null
    CLOSED_SYMBOL = 11  # as SYMBOL, but a number without a name is ignored
    SECONDS = 12
    NANOS = 13  # stored beside the seconds
    MESSAGE = 14  # argument: its level
    CLEAR = 15  # another member of the oneof clears the slot; argument, count: its closed enum, 0 for other types


class Wire(IntEnum):
    """The types of fields on the wire."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


(_SIGNED, _UNSIGNED, _SIGNED_32, _UNSIGNED_32, _ZIGZAG, _ZIGZAG_32, _FLAG, _FLOAT, _DOUBLE, _SPAN, _SYMBOL,
 _CLOSED_SYMBOL, _SECONDS, _NANOS, _MESSAGE, _CLEAR) = (int(op) for op in Op)  # fmt: skip
_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = (int(wire) for wire in Wire)
_NONE, _NO_HEAD, _CUT_OFF = int(Fault.NONE), int(Fault.NO_HEAD), int(Fault.CUT)
_MOST_INDEXES = 64  # messages within each other
_FAILED = -1
_VALID, _NULL_FIELD = 1, 2  # _NULL_FIELD: the field is written and null, so it gets no start value
_TAG_BYTES = 5
_NUMBER_BYTES = 10
_MOST_BYTES = 2**31 - 1  # of one field


@inlined
def _varint(data, at, stop, most):
    """The number that begins at `at`, and the position behind it (-1: it is cut off, or longer than `most` bytes)."""
    if at < stop and data[at] < 128:  # most have one byte
        return np.uint64(data[at]), np.int64(at + 1)
    value, shift = np.uint64(0), np.uint64(0)
    last = min(at + most, stop)
    while at < last:
        byte = np.uint64(data[at])
        value |= (byte & np.uint64(127)) << shift
        at += 1
        if byte < np.uint64(128):
            return value, np.int64(at)
        shift += np.uint64(7)
    return value, np.int64(_FAILED)


@inlined
def _word_of(data, at, size):
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@inlined
def _field(data, at, stop):
    """The number, wire type and word of the field that begins at `at`, and the position behind it (-1: damaged).

    The word of a field of bytes is the position of its first byte. The word of a group's tag is 0.
    """
    tag, at = _varint(data, at, stop, _TAG_BYTES)
    number, wire = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    if at < 0 or tag > np.uint64(0xFFFFFFFF) or number == 0:
        return number, wire, np.uint64(0), np.int64(_FAILED)
    word = np.uint64(0)
    if wire == _VARINT:
        word, at = _varint(data, at, stop, _NUMBER_BYTES)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
        if stop - at < size:
            return number, wire, word, np.int64(_FAILED)
        word, at = _word_of(data, at, size), at + size
    elif wire == _BYTES:
        size, at = _varint(data, at, stop, _NUMBER_BYTES)
        if at < 0 or size > np.uint64(_MOST_BYTES) or np.int64(size) > stop - at:
            return number, wire, word, np.int64(_FAILED)
        word, at = np.uint64(at), at + np.int64(size)
    elif wire > _FIXED32:
        return number, wire, word, np.int64(_FAILED)
    return number, wire, word, np.int64(at)


@bare
def _past_group(data, at, stop, number, open_groups):
    """The position behind a group whose first tag was read, -1 if the group is damaged."""
    depth = 1
    open_groups[0] = number
    while depth > 0:
        number, wire, _, at = _field(data, at, stop)
        if at < 0:
            return at
        if wire == _GROUP:
            if depth == len(open_groups):
                return np.int64(_FAILED)
            open_groups[depth] = number
            depth += 1
        elif wire == _END_GROUP:
            depth -= 1
            if open_groups[depth] != number:
                return np.int64(_FAILED)
    return at


@inlined
def _as_number(op, word):
    """The number that a word stands for in the field's type, as int64."""
    if op in (_SIGNED_32, _ZIGZAG_32, _UNSIGNED_32):
        word &= np.uint64(0xFFFFFFFF)
    if op in (_ZIGZAG, _ZIGZAG_32):
        return np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1))
    if op == _SIGNED_32:
        return np.int64(np.int32(np.uint32(word)))
    return np.int64(word)


@inlined
def _store_number(op, word, is_double, slot, row, values, valid):  # noqa: PLR0917
    """Store a whole number, as it is or as a double."""
    number = _as_number(op, word)
    valid[slot, row] = 1
    if is_double and op == _UNSIGNED:
        values[slot, row] = np.float64(word).view(np.int64)
    elif is_double:
        values[slot, row] = np.float64(number).view(np.int64)
    elif op == _UNSIGNED and number < 0:
        valid[slot, row] = _NULL_FIELD
    else:
        values[slot, row] = number


@bare
def _store_symbol(op, word, begin, count, symbols, literals, slot, row, values, until, valid):  # noqa: PLR0917
    """Store the name of an enum's number."""
    number = np.int64(np.int32(np.uint32(word & np.uint64(0xFFFFFFFF))))
    for i in range(begin, begin + count):
        if symbols[i, 0] == number:
            place = symbols[i, 1]
            values[slot, row], until[slot, row], valid[slot, row] = -1 - literals[place], literals[place + 1], 1
            return
    if op == _SYMBOL:
        valid[slot, row] = _NULL_FIELD


@inlined
def _store(entries, i, word, at, symbols, literals, row, values, until, valid):  # noqa: PLR0917
    """Store the value of a field. i: its entry. at: the position behind the field."""
    op, slot, argument, count = entries[i, 2], entries[i, 3], entries[i, 4], entries[i, 5]
    if op <= _ZIGZAG_32:
        _store_number(op, word, argument == 1, slot, row, values, valid)
    elif op == _FLAG:
        values[slot, row], valid[slot, row] = word != np.uint64(0), 1
    elif op == _FLOAT:
        values[slot, row] = np.float64(np.uint32(word).view(np.float32)).view(np.int64)
        valid[slot, row] = 1
    elif op == _DOUBLE:
        values[slot, row], valid[slot, row] = np.int64(word), 1
    elif op == _SPAN:
        values[slot, row], until[slot, row], valid[slot, row] = np.int64(word), at, 1
    elif op in (_SYMBOL, _CLOSED_SYMBOL):
        _store_symbol(op, word, argument, count, symbols, literals, slot, row, values, until, valid)
    elif op == _SECONDS:
        values[slot, row] = np.int64(word)
    elif op == _NANOS:
        until[slot, row] = np.int64(np.int32(np.uint32(word & np.uint64(0xFFFFFFFF))))
    elif count == 0 or _has_name(word, argument, count, symbols):
        valid[slot, row] = 0


@bare
def _has_name(word, begin, count, symbols):
    number = np.int64(np.int32(np.uint32(word & np.uint64(0xFFFFFFFF))))
    is_name = False
    for i in range(begin, begin + count):
        is_name |= symbols[i, 0] == number
    return is_name


@inlined
def _begin(level, starts, literals, begins, row, values, until, valid):  # noqa: PLR0917
    """Give the fields of a message their start values, unless they have a value already."""
    for i in range(begins[level], begins[level + 1]):
        slot, kind, value, word = starts[i, 0], starts[i, 1], starts[i, 2], starts[i, 3]
        if valid[slot, row] == 0:
            valid[slot, row] = 1
            if kind == 1:
                values[slot, row], until[slot, row] = -1 - literals[word], literals[word + 1]
            else:
                values[slot, row], until[slot, row] = value, 0


@inlined
def _end(row, valid):
    """Make fields with the mark _NULL_FIELD null."""
    for slot in range(len(valid)):
        valid[slot, row] &= _VALID


@bare
def run_messages(  # noqa: PLR0917
    data,
    start,
    stops,
    which,
    roots,
    entries,
    entry_begins,
    starts,
    start_begins,
    symbols,
    literals,
    values,
    until,
    valid,
    status,
    levels,
    ends,
    groups,
):
    """Run over each row the program number `which` (-1: none), whose root level is roots[which].

    entries, starts: those of all levels; those of level n are begins[n]:begins[n + 1]. symbols: the number and the
    literal of each name. literals: the borders between literals: number n lies in literals[n]:literals[n + 1], and its
    span has the start -1 - literals[n]. values, until, valid: (slot, row). levels, ends: room for nested messages.
    """
    for row in range(len(start)):
        if which[row] < 0:
            continue
        at, depth = np.int64(start[row]), 0
        levels[0], ends[0] = roots[which[row]], stops[row]
        _begin(levels[0], starts, literals, start_begins, row, values, until, valid)
        while True:
            while depth > 0 and at == ends[depth]:
                depth -= 1
            if at == ends[depth]:
                break
            level, stop = levels[depth], ends[depth]
            number, wire, word, at = _field(data, at, stop)
            if at >= 0 and wire == _GROUP:
                at = _past_group(data, at, stop, number, groups)
            if at < 0 or wire == _END_GROUP:
                status[row] = _CUT_OFF
                valid[:, row] = 0  # the last value counts, so no value is certain before the end
                break
            inside = np.int64(_FAILED)
            for i in range(entry_begins[level], entry_begins[level + 1]):
                if entries[i, 0] != number or entries[i, 1] != wire:
                    continue
                if entries[i, 2] == _MESSAGE:
                    inside = entries[i, 4]
                else:
                    _store(entries, i, word, at, symbols, literals, row, values, until, valid)
            if inside >= 0:
                depth += 1
                levels[depth], ends[depth] = inside, at
                at = np.int64(word)
                _begin(inside, starts, literals, start_begins, row, values, until, valid)
        _end(row, valid)


@bare
def past_indexes(data, at, stop):
    """The position behind the indexes that begin at `at`, -1 if they are cut off or too many."""
    remaining = np.int64(-1)  # indexes; -1 until their number is read
    while remaining != 0:
        value, shift = np.int64(0), np.int64(0)
        while True:
            if at >= stop or shift > 28:
                return np.int64(-1)
            byte = np.int64(data[at])
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        if remaining < 0:
            if value & 1 or value >> 1 > _MOST_INDEXES:
                return np.int64(-1)
            remaining = value >> 1
        else:
            remaining -= 1
    return np.int64(at)


@bare
def find_programs(data, start, stop, ids, faults, has_indexes, known_ids, ends, keys, which, row):  # noqa: PLR0917
    """Find the program of each value from `row` on, and move its start behind the indexes; stop at one without."""
    last = 0
    while row < len(start):
        if faults[row] != _NONE:
            row += 1
            continue
        at = start[row]
        behind = past_indexes(data, at, stop[row]) if has_indexes else at
        if behind < 0:
            faults[row] = _NO_HEAD
            row += 1
            continue
        known = -1
        for i in range(len(known_ids)):
            place = (last + i) % len(known_ids)
            if known_ids[place] == ids[row] and (not has_indexes or _same(data, at, behind, keys, ends, place)):
                known = place
                break
        if known < 0:
            return row
        last = known
        which[row], start[row] = known, behind
        row += 1
    return row


@bare
def _same(data, at, behind, keys, ends, place):  # noqa: PLR0917
    begin = ends[place]
    if ends[place + 1] - begin != behind - at:
        return False
    same = True
    for i in range(behind - at):
        same &= data[at + i] == keys[begin + i]
    return same
