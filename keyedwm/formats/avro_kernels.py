"""Running programs over Avro values, in one compiled loop that stops behind the last requested field.

Rule: no byte outside of a value is read: each step first checks the bytes that are left. Skipping a value makes the
same checks as reading it, so a field never depends on the other requests. Fields that were read before a fault stay.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from keyedwm.formats.faults import Fault
from keyedwm.runtime.compiled import bare, inlined


class Op(IntEnum):
    """The steps of a program, each (op, argument, slot, extra): they skip, read a field, or choose the next step."""

    SKIP_NUMBERS = 0  # argument: how many
    SKIP_TEXT = 1  # a length, and this number of bytes
    SKIP_BYTES = 2  # argument: how many
    NUMBER = 3  # argument: the factor
    NUMBER_DOWN = 4  # argument: the divisor; the result is rounded down
    NUMBER_AS_DOUBLE = 5
    SYMBOL = 6  # argument: the number of symbols; extra: the literal of the first one
    TEXT = 7
    DECIMAL = 8
    FIXED = 9  # argument: its bytes
    FIXED_DECIMAL = 10  # argument: its bytes
    BOOLEAN = 11  # argument: its bytes
    DOUBLE = 12  # argument: its bytes
    FLOAT = 13  # argument: its bytes
    CONSTANT = 14  # extra: the number of the constant
    WORD = 15  # extra: the number of the literal
    UNION = 16  # argument: the number of branches; a JUMP for each follows
    JUMP = 17  # argument: where to
    BLOCK = 18  # argument: the place behind the items; extra: 1 if an item has no bytes
    LOOP = 19  # argument: the BLOCK
    CALL = 20  # argument: the place of a record that is skipped
    RETURN = 21
    MARK = 22  # marks the position
    REWIND = 23  # returns to the mark, to read the value again
    BEGIN = 24  # begins the span of a value with parts
    FINISH = 25  # ends it
    END = 26


_SKIP_NUMBERS, _SKIP_TEXT, _SKIP_BYTES = (int(op) for op in list(Op)[:3])
_NUMBER, _NUMBER_DOWN, _NUMBER_AS_DOUBLE, _SYMBOL, _TEXT, _DECIMAL, _FIXED = (int(op) for op in list(Op)[3:10])
_FIXED_DECIMAL, _BOOLEAN, _DOUBLE, _FLOAT, _CONSTANT, _WORD = (int(op) for op in list(Op)[10:16])
_UNION, _JUMP, _BLOCK, _LOOP, _CALL, _RETURN, _MARK, _REWIND, _BEGIN, _FINISH, _END = (int(op) for op in list(Op)[16:])
_CUT_OFF, _WRONG_BRANCH, _WRONG_SYMBOL, _TOO_DEEP = (
    int(Fault.CUT), int(Fault.WRONG_BRANCH), int(Fault.WRONG_SYMBOL), int(Fault.TOO_DEEP)
)  # fmt: skip
_FAILED = -1
_NUMBER_BYTES = 10  # bytes of the largest number
_NUMBER_BITS = 7 * _NUMBER_BYTES
_WIDE = 16  # bytes of the widest decimal
_LARGEST = 2**63 - 1


@inlined
def _number(data, at, stop):
    """The number that begins at `at`, and the position behind it (-1: the number is cut off or too long)."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < stop and shift < _NUMBER_BITS:
        byte = np.uint64(data[at])
        if shift < np.uint64(64):
            value |= (byte & np.uint64(127)) << shift
        at += 1
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(at)
        shift += np.uint64(7)
    return np.int64(0), np.int64(_FAILED)


@inlined
def _word_of(data, at, size):
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@bare
def _decimal(data, at, size, values, until, valid, slot, row):  # noqa: PLR0917
    """Store a big-endian number as two words, unless it needs more than 16 bytes."""
    negative = size > 0 and data[at] >= 128
    fill = np.uint8(255) if negative else np.uint8(0)
    low = high = np.uint64(0xFFFFFFFFFFFFFFFF) if negative else np.uint64(0)
    for i in range(size):
        if i < size - _WIDE:
            if data[at + i] != fill:
                return
        else:
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[at + i])
    if (np.int64(high) < 0) != negative:
        return
    values[slot, row], until[slot, row], valid[slot, row] = np.int64(low), np.int64(high), 1


@inlined
def _skip(data, at, stop, op, argument):
    """The position behind the skipped value, -1 if the value is cut off."""
    if op == _SKIP_NUMBERS:
        for _ in range(argument):
            last = min(at + _NUMBER_BYTES, stop)
            while at < last and data[at] >= 128:
                at += 1
            if at >= last:
                return np.int64(_FAILED)
            at += 1
        return np.int64(at)
    size = argument
    if op == _SKIP_TEXT:
        size, at = _number(data, at, stop)
    return np.int64(_FAILED) if at < 0 or size < 0 or size > stop - at else np.int64(at + size)


@inlined
def _read_number(data, at, stop, op, argument, slot, extra, literals, values, until, valid, row):  # noqa: PLR0917
    """Store a number, or the literal of a symbol; return the position behind it and a fault."""
    number, at = _number(data, at, stop)
    if at < 0:
        return at, _CUT_OFF
    if op == _NUMBER:
        if argument == 1 or -(_LARGEST // argument) <= number <= _LARGEST // argument:
            values[slot, row], valid[slot, row] = number * argument, 1
    elif op == _NUMBER_DOWN:
        values[slot, row], valid[slot, row] = number // argument, 1
    elif op == _NUMBER_AS_DOUBLE:
        values[slot, row], valid[slot, row] = np.float64(number).view(np.int64), 1
    elif number < 0 or number >= argument:
        return at, _WRONG_SYMBOL
    elif slot >= 0:
        place = extra + number
        values[slot, row], until[slot, row], valid[slot, row] = -1 - literals[place], literals[place + 1], 1
    return at, 0


@inlined
def _read_bytes(data, at, stop, op, argument, slot, values, until, valid, row):  # noqa: PLR0917
    """Store a span, a decimal, a boolean or a double; return the position behind it and a fault."""
    size = argument
    if op in (_TEXT, _DECIMAL):
        size, at = _number(data, at, stop)
    if at < 0 or size < 0 or size > stop - at:
        return at, _CUT_OFF
    if op in (_TEXT, _FIXED):
        values[slot, row], until[slot, row], valid[slot, row] = at, at + size, 1
    elif op in (_DECIMAL, _FIXED_DECIMAL):
        _decimal(data, at, size, values, until, valid, slot, row)
    elif op == _DOUBLE:
        values[slot, row], valid[slot, row] = np.int64(_word_of(data, at, 8)), 1
    elif op == _FLOAT:
        single = np.uint32(_word_of(data, at, 4)).view(np.float32)
        values[slot, row], valid[slot, row] = np.float64(single).view(np.int64), 1
    else:
        values[slot, row], valid[slot, row] = data[at] != 0, 1
    return at + size, 0


@inlined
def _block(data, at, stop):
    """The count of items of the block that begins at `at`, the bytes of the items, and the position of the first.

    The count is negative if the block has the bytes, else they are 0. The position is -1 if the block is cut off.
    """
    count, at = _number(data, at, stop)
    size = np.int64(0)
    if at >= 0 and count < 0:
        size, at = _number(data, at, stop)
    if at < 0 or size < 0 or size > stop - at:
        return count, size, np.int64(_FAILED)
    return count, size, at


@inlined
def _begin_items(data, at, stop, pc, behind, is_empty, depth, loops):  # noqa: PLR0917
    """Begin a block of items; return the next step, the position, the number of open blocks, and a fault."""
    count, size, at = _block(data, at, stop)
    if at < 0:
        return pc, at, depth, _CUT_OFF
    if count == 0:
        return behind, at, depth, 0
    if count < 0 or is_empty == 1:
        return pc - 1, at + size, depth, 0
    if count > stop - at:  # each item has a byte at least
        return pc, at, depth, _CUT_OFF
    if depth == len(loops):
        return pc, at, depth, _TOO_DEEP
    loops[depth] = count
    return pc, at, depth + 1, 0


@inlined
def _next_item(block, depth, loops):
    """Continue behind an item; return the next step and the number of open blocks."""
    loops[depth - 1] -= 1
    return (block + 1, depth) if loops[depth - 1] > 0 else (block, depth - 1)


@bare
def run_programs(  # noqa: PLR0912, PLR0917
    data, start, stops, which, begins, code, literals, constants, values, until, valid, status, loops, returns
):
    """Run over each row the program number `which` (-1: none), whose first step is code[begins[which]].

    literals: the borders between literals: number n lies in literals[n]:literals[n + 1], and its span has the start
    -1 - literals[n]. values, until, valid: (slot, row). until: the end of a span, or a high word.
    """
    for row in range(len(start)):
        if which[row] < 0:
            continue
        at, stop = start[row], stops[row]
        pc, depth, calls, fault, mark = begins[which[row]], 0, 0, 0, at
        while fault == 0:
            op, argument, slot, extra = code[pc, 0], np.int64(code[pc, 1]), code[pc, 2], np.int64(code[pc, 3])
            pc += 1
            if op == _END:
                break
            if op <= _SKIP_BYTES:
                at = _skip(data, at, stop, op, argument)
                fault = _CUT_OFF if at < 0 else 0
            elif op <= _SYMBOL:
                at, fault = _read_number(
                    data, at, stop, op, argument, slot, extra, literals, values, until, valid, row
                )  # fmt: skip
            elif op <= _FLOAT:
                at, fault = _read_bytes(data, at, stop, op, argument, slot, values, until, valid, row)
            elif op == _CONSTANT:
                values[slot, row], until[slot, row], valid[slot, row] = constants[extra, 0], constants[extra, 1], 1
            elif op == _WORD:
                values[slot, row], until[slot, row], valid[slot, row] = -1 - literals[extra], literals[extra + 1], 1
            elif op == _UNION:
                branch, at = _number(data, at, stop)
                fault = _CUT_OFF if at < 0 else _WRONG_BRANCH if branch < 0 or branch >= argument else 0
                pc += branch if fault == 0 else 0  # a JUMP for each branch follows
            elif op == _BLOCK:
                pc, at, depth, fault = _begin_items(data, at, stop, pc, argument, extra, depth, loops)
            elif op == _LOOP:
                pc, depth = _next_item(argument, depth, loops)
            elif op == _CALL:
                if calls == len(returns):
                    fault = _TOO_DEEP
                else:
                    returns[calls], calls, pc = pc, calls + 1, argument
            elif op == _RETURN:
                calls -= 1
                pc = returns[calls]
            elif op == _JUMP:
                pc = argument
            elif op == _MARK:
                mark = at
            elif op == _REWIND:
                at = mark
            elif op == _BEGIN:
                values[slot, row] = at
            else:
                until[slot, row], valid[slot, row] = at, 1
        if fault != 0:
            status[row] = fault
