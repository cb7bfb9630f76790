"""Writing Avro values as JSON text, in one compiled loop over the spans of one field.

Rule: no byte outside of a span is read, and none is written outside of `out`: each step first checks both. A row
without enough room is written again once there is more. Floats and doubles leave a gap, which `fill_gaps` fills.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from keyedwm.formats.faults import Fault
from keyedwm.formats.json_texts import (
    FALSE,
    NULL,
    TRUE,
    put_base64,
    put_decimal,
    put_duration,
    put_escaped,
    put_instant,
    put_number,
    put_uuid,
    put_word,
)
from keyedwm.runtime.compiled import bare, inlined


class Op(IntEnum):
    """The steps of a program, each (op, argument, extra): they write a text or a value, or choose the next step."""

    LITERAL = 0  # argument: its number
    NEXT = 1  # a comma, except behind an opening bracket
    NUMBER = 2
    BOOLEAN = 3
    FLOAT = 4
    DOUBLE = 5
    STRING = 6
    BYTES = 7
    FIXED = 8  # argument: its bytes
    SYMBOL = 9  # argument: the number of symbols; extra: the literal of the first one
    DECIMAL = 10  # extra: its scale
    FIXED_DECIMAL = 11  # argument: its bytes; extra: its scale
    DATE = 12
    TIME = 13  # argument: parts of a second
    TIMESTAMP = 14  # argument: parts of a second; extra: 1 for a local one
    UUID = 15
    DURATION = 16
    UNION = 17  # argument: the number of branches; a JUMP for each follows
    JUMP = 18  # argument: where to
    BLOCK = 19  # argument: the place behind the items; extra: 1 if an item has no bytes
    LOOP = 20  # argument: the BLOCK
    CALL = 21  # argument: the place of a record
    RETURN = 22
    END = 23


(_LITERAL, _NEXT, _NUMBER, _BOOLEAN, _FLOAT, _DOUBLE, _STRING, _BYTES, _FIXED, _SYMBOL, _DECIMAL, _FIXED_DECIMAL,
 _DATE, _TIME, _TIMESTAMP, _UUID, _DURATION, _UNION, _JUMP, _BLOCK, _LOOP, _CALL, _RETURN, _END) = (
    int(op) for op in Op)  # fmt: skip
_CUT_OFF, _WRONG_BRANCH, _WRONG_SYMBOL, _TOO_DEEP, _TOO_LONG = (
    int(one) for one in (Fault.CUT, Fault.WRONG_BRANCH, Fault.WRONG_SYMBOL, Fault.TOO_DEEP, Fault.TOO_LONG)
)
MOST_BYTES = 16 << 20  # of one text
_FULL = -1
_FAILED = -1
_SMALL = 64  # bytes of the longest number, time or identifier
_ESCAPED = 6  # bytes of the longest escaped character
_NUMBER_BITS = 70
_COMMA, _OPEN, _OPEN_LIST = 44, 123, 91


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
def _put_sized(data, at, stop, op, argument, extra, out, to):  # noqa: PLR0917
    """Write a value with a size; return the positions behind it in `data` and `out` (-1: no room), and a fault."""
    size = argument
    if op in (_STRING, _BYTES, _DECIMAL):
        size, at = _number(data, at, stop)
    if at < 0 or size < 0 or size > stop - at:
        return at, to, _CUT_OFF
    if len(out) - to < _SMALL + _ESCAPED * size:
        return at, np.int64(_FULL), 0
    if op == _STRING:
        to = put_escaped(data, at, size, out, to)
    elif op in (_BYTES, _FIXED):
        to = put_base64(data, at, size, out, to)
    elif op in (_DECIMAL, _FIXED_DECIMAL):
        to = put_decimal(data, at, size, extra, out, to)
    elif op == _UUID:
        to = put_uuid(data, at, out, to)
    elif op == _DURATION:
        to = put_duration(data, at, out, to)
    else:
        to = put_word(out, to, TRUE) if data[at] != 0 else put_word(out, to, FALSE)
    return at + size, to, 0


@bare
def _put_literal(texts, text_ends, word, out, to):
    """Write a literal; return the position behind it, -1 for no room."""
    begin, size = text_ends[word], text_ends[word + 1] - text_ends[word]
    if len(out) - to < size:
        return np.int64(_FULL)
    for i in range(size):
        out[to + i] = texts[begin + i]
    return to + size


@bare
def _put_value(data, at, stop, op, argument, extra, texts, text_ends, out, to, gaps, gap):  # noqa: PLR0911, PLR0917
    """Write a value, or a float's gap (number `gap`); return the positions behind it in both buffers, and a fault."""
    if op in (_FLOAT, _DOUBLE):
        size = 4 if op == _FLOAT else 8
        if stop - at < size:
            return at, to, _CUT_OFF
        gaps[gap, 0], gaps[gap, 1], gaps[gap, 2] = to, size, np.int64(_word_of(data, at, size))
        return at + size, to, 0
    if op not in (_NUMBER, _SYMBOL, _DATE, _TIME, _TIMESTAMP):
        return _put_sized(data, at, stop, op, argument, extra, out, to)
    number, at = _number(data, at, stop)
    if at < 0:
        return at, to, _CUT_OFF
    if op == _SYMBOL:
        if number < 0 or number >= argument:
            return at, to, _WRONG_SYMBOL
        return at, _put_literal(texts, text_ends, extra + number, out, to), 0
    if op == _NUMBER:
        return at, put_number(out, to, number), 0
    return at, put_instant(op - _DATE, number, max(argument, 1), extra, out, to), 0


@inlined
def _begin_items(data, at, stop, pc, behind, is_empty, depth, loops):  # noqa: PLR0917
    """Begin a block of items; return the next step, the position, the number of open blocks, and a fault."""
    count, at = _number(data, at, stop)
    if at >= 0 and count < 0:
        _, at = _number(data, at, stop)  # the bytes of the block
        count = -count
    if at < 0 or count < 0 or (is_empty == 0 and count > stop - at):  # an item has at least one byte
        return pc, at, depth, _CUT_OFF
    if count == 0:
        return behind, at, depth, 0
    if depth == len(loops):
        return pc, at, depth, _TOO_DEEP
    loops[depth] = count
    return pc, at, depth + 1, 0


@bare
def _write_row(data, at, stop, pc, code, texts, text_ends, out, to, gaps, gap, loops, returns):  # noqa: PLR0912, PLR0917
    """Write one value; return the position behind it in `out` (-1: no room), the number of gaps, and a fault."""
    depth, calls, begin, fault = 0, 0, to, 0
    while fault == 0:
        op, argument, extra = code[pc, 0], np.int64(code[pc, 1]), np.int64(code[pc, 2])
        pc += 1
        if op == _END:
            break
        if len(out) - to < _SMALL or gap == len(gaps):
            return np.int64(_FULL), gap, 0
        if to - begin > MOST_BYTES:
            fault = _TOO_LONG
        elif op == _LITERAL:
            to = _put_literal(texts, text_ends, argument, out, to)
        elif op == _NEXT:
            is_behind_gap = gap > 0 and gaps[gap - 1, 0] == to
            if is_behind_gap or (out[to - 1] != _OPEN and out[to - 1] != _OPEN_LIST):
                out[to] = _COMMA
                to += 1
        elif op <= _DURATION:
            at, to, fault = _put_value(
                data, at, stop, op, argument, extra, texts, text_ends, out, to, gaps, gap
            )  # fmt: skip
            gap += 1 if fault == 0 and (op in (_FLOAT, _DOUBLE)) else 0
        elif op == _UNION:
            branch, at = _number(data, at, stop)
            fault = _CUT_OFF if at < 0 else _WRONG_BRANCH if branch < 0 or branch >= argument else 0
            pc += branch if fault == 0 else 0  # a JUMP for each branch follows
        elif op == _BLOCK:
            pc, at, depth, fault = _begin_items(data, at, stop, pc, argument, extra, depth, loops)
        elif op == _LOOP:
            loops[depth - 1] -= 1
            pc, depth = (argument + 1, depth) if loops[depth - 1] > 0 else (argument, depth - 1)
        elif op == _CALL:
            if calls == len(returns):
                fault = _TOO_DEEP
            else:
                returns[calls], calls, pc = pc, calls + 1, argument
        elif op == _RETURN:
            calls -= 1
            pc = returns[calls]
        else:
            pc = argument
        if to < 0:
            return to, gap, 0
    return to, gap, fault


@bare
def write_texts(  # noqa: PLR0917
    data, start, stop, valid, root, code, texts, text_ends, out, ends, gaps, state, faults, loops, returns
):
    """Write the value of each valid row as JSON text, from row state[0] on, until there is no more room.

    ends: where each text ends in `out`. gaps: (position in `out`, bytes, bits) of a float or a double. state: the next
    row, its position, its first gap, and 1 if `gaps` is full. A row with a fault or the text `null` becomes invalid.
    """
    to, gap = state[1], state[2]
    for row in range(state[0], len(start)):
        begin, first = to, gap
        if valid[row]:
            to, gap, fault = _write_row(
                data, start[row], stop[row], root, code, texts, text_ends, out, to, gaps, gap, loops, returns
            )
            if to < 0:
                state[0], state[1], state[2], state[3] = row, begin, first, gap == len(gaps)
                return
            is_null = to - begin == len(NULL) and gap == first
            for i in range(len(NULL)):
                is_null = is_null and out[begin + i] == NULL[i]
            if fault != 0:
                faults[row] = fault
            if fault != 0 or is_null:
                to, gap, valid[row] = begin, first, 0
        ends[row + 1] = to
    state[0], state[1], state[2] = len(start), to, gap


@bare
def fill_gaps(out, ends, gaps, texts, text_ends, result):  # noqa: PLR0917
    """Copy `out` to `result`, with the gaps' texts in the gaps, and move `ends`."""
    at, to, gap = np.int64(0), np.int64(0), 0
    for row in range(1, len(ends)):
        while gap < len(gaps) and gaps[gap, 0] < ends[row]:
            while at < gaps[gap, 0]:
                result[to] = out[at]
                at, to = at + 1, to + 1
            for i in range(text_ends[gap], text_ends[gap + 1]):
                result[to] = texts[i]
                to += 1
            gap += 1
        while at < ends[row]:
            result[to] = out[at]
            at, to = at + 1, to + 1
        ends[row] = to
