"""Finding values in many JSON texts, in compiled loops.

Rule: a text is scanned only up to the last requested value, and every read is bounds-checked. If the text up to there
is no JSON, the value is "not found". A number inside an object or a list must end before the text does: a text that is
cut off would show another number. Of members with the same name the first counts.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.text_values import escaped_character
from keyedwm.runtime.compiled import bare, inlined

_QUOTE, _BACKSLASH, _COLON, _COMMA = 34, 92, 58, 44
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_FAILED = -1
_WORD_BYTES = 8
_EACH = np.uint64(0x0101010101010101)
_QUOTES, _BACKSLASHES = _EACH * np.uint64(_QUOTE), _EACH * np.uint64(_BACKSLASH)
_HIGHEST = _EACH << np.uint64(7)
_NAME = -1  # in `Path.index`: the step is a member's name
Spans = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]


class Path:
    """A compiled path: each step is a member's name or an array index."""

    def __init__(self, steps: Sequence[str | int]) -> None:
        self.steps = tuple(steps)
        self.index = np.array([_NAME if isinstance(s, str) else s for s in steps], np.int64)
        self.ends, self.bytes = _encoded([step if isinstance(step, str) else "" for step in steps])


class _Members:
    """Compiled names of members of one object. parent: the steps to the object."""

    def __init__(self, parent: Sequence[str | int], names: Sequence[str]) -> None:
        self.parent, self.count = Path(parent), len(names)
        self.ends, self.bytes = _encoded(names)


def _encoded(names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return (ends, bytes) of names in UTF-8: name n is bytes[ends[n]:ends[n + 1]]."""
    encoded = [name.encode() for name in names]
    return np.cumsum([0, *map(len, encoded)]).astype(np.int64), np.frombuffer(b"".join(encoded) or b"\0", np.uint8)


_members = functools.lru_cache(maxsize=256)(_Members)


def find_all(texts: pa.Array, paths: Sequence[Path]) -> list[Spans]:
    """Find the values at several paths in each text, as `find` does; one pass finds all members of an object."""
    names: dict[tuple[str | int, ...], list[str]] = {}
    for parent, name in ((path.steps[:-1], path.steps[-1]) for path in paths):
        if isinstance(name, str) and name not in names.setdefault(parent, []):
            names[parent].append(name)
    together = {
        parent: _find_together(texts, _members(parent, tuple(some))) for parent, some in names.items() if len(some) > 1
    }
    spans = []
    for path in paths:
        parent, name = path.steps[:-1], path.steps[-1]
        if isinstance(name, str) and parent in together:
            data, start, end = together[parent]
            place = names[parent].index(name)
            spans.append((data, start[place], end[place]))
        else:
            spans.append(find(texts, path))
    return spans


def _find_together(texts: pa.Array, members: _Members) -> Spans:
    """Find members of one object. Returns bytes, start and end; the last two are (member, text)."""
    data, ends = buffers(texts)
    start = np.full((members.count, len(texts)), _FAILED, np.int64)
    end = np.zeros((members.count, len(texts)), np.int64)
    if len(texts):
        above = members.parent
        path = above.index, above.ends, above.bytes
        _find_members(data, ends, *path, members.ends, members.bytes, start, end)
    if texts.null_count:
        start[:, np.asarray(texts.is_null())] = _FAILED
    return data, start, end


def find(texts: pa.Array, path: Path) -> Spans:
    """Find the value at `path` in each text.

    texts: binary array. Returns the bytes of all texts, and each value's start and end in these; start -1: not found.
    A string's span is without the quotes. So a string and a number look the same to the caller, on purpose.
    """
    data, ends = buffers(texts)
    start = np.full(len(texts), _FAILED, np.int64)
    end = np.zeros(len(texts), np.int64)
    if len(texts):
        _find(data, ends, path.index, path.ends, path.bytes, start, end)
    if texts.null_count:
        start[np.asarray(texts.is_null())] = _FAILED
    return data, start, end


def buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return a binary array's bytes, and its `count + 1` offsets into the bytes."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.zeros(1, np.uint8), np.zeros(1, np.int32)
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8), ends


@bare
def _find(data, ends, index, name_ends, names, start, end):  # noqa: PLR0917
    for row in range(len(ends) - 1):
        stop = ends[row + 1]
        at = _follow(data, ends[row], stop, index, name_ends, names)
        if at == _FAILED or at >= stop:
            continue
        past = _skip(data, at, stop)
        if past == _FAILED:
            continue
        quoted = data[at] == _QUOTE
        if past >= stop and len(index) and not quoted and data[at] not in (_OPEN, _OPEN_LIST):
            continue  # the text may be cut off in the middle of the number
        start[row] = at + 1 if quoted else at
        end[row] = past - 1 if quoted else past


@bare
def _find_members(data, ends, index, name_ends, names, member_ends, members, start, end):  # noqa: PLR0917
    """Find all members of an object: the name of member m is members[member_ends[m]:member_ends[m + 1]]."""
    for row in range(len(ends) - 1):
        stop = ends[row + 1]
        at = _follow(data, ends[row], stop, index, name_ends, names)
        if at == _FAILED or at >= stop or data[at] != _OPEN:
            continue
        at = _blank(data, at + 1, stop)
        missing = len(start)
        while missing > 0 and at < stop and data[at] == _QUOTE:
            past = _string_end(data, at, stop)
            if past == _FAILED:
                break
            member = _which(data, at + 1, past - 1, member_ends, members)
            at = _blank(data, past, stop)
            if at >= stop or data[at] != _COLON:
                break
            at = _blank(data, at + 1, stop)
            past = _skip(data, at, stop)
            if past == _FAILED:
                break
            if member != _FAILED and start[member, row] == _FAILED:
                quoted = data[at] == _QUOTE
                if past < stop or quoted or data[at] in (_OPEN, _OPEN_LIST):
                    start[member, row] = at + 1 if quoted else at
                    end[member, row] = past - 1 if quoted else past
                    missing -= 1
            at = _blank(data, past, stop)
            if at >= stop or data[at] != _COMMA:
                break
            at = _blank(data, at + 1, stop)


@bare
def _which(data, at, stop, ends, members):
    """The number of the member with the name data[at:stop], -1 if there is none."""
    for member in range(len(ends) - 1):
        if _is_called(data, at, stop, members, ends[member], ends[member + 1]):
            return member
    return _FAILED


@bare
def _is_called(data, at, stop, names, begin, end):  # noqa: PLR0917
    """Whether data[at:stop], whose characters may be escaped, is names[begin:end]."""
    if stop - at < end - begin:  # an escape is longer than its character
        return False
    while at < stop and begin < end:
        if data[at] != _BACKSLASH:
            if data[at] != names[begin]:
                return False
            at += 1
            begin += 1
            continue
        at, actual = escaped_character(data, at, stop)
        begin, expected = _character(names, begin)
        if at < 0 or actual != expected:
            return False
    return at == stop and begin == end


@bare
def _character(text, at):
    """The position behind the character that begins at `at`, and the character. text: valid UTF-8."""
    first = np.int64(text[at])
    if first < 0x80:
        return at + 1, first
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    code = first & (0x7F >> size)
    for place in range(at + 1, at + size):
        code = code << 6 | (np.int64(text[place]) & 0x3F)
    return at + size, code


@bare
def _follow(data, at, stop, index, name_ends, names):  # noqa: PLR0917
    """The position of a path's value in the text at `at`, which may begin with a byte order mark; -1: not found."""
    if at + 3 <= stop and data[at] == 0xEF and data[at + 1] == 0xBB and data[at + 2] == 0xBF:
        at += 3
    at = _blank(data, at, stop)
    for step in range(len(index)):
        if index[step] == _NAME:
            at = _member(data, at, stop, names, name_ends[step], name_ends[step + 1])
        else:
            at = _element(data, at, stop, index[step])
        if at == _FAILED:
            return _FAILED
    return at


@bare
def _blank(data, at, stop):
    while at < stop and (data[at] == 32 or 9 <= data[at] <= 13):
        at += 1
    return at


@inlined
def _string_end(data, at, stop):
    """The position behind the string that begins at `at`, -1 if the string has no end."""
    at += 1
    while at < stop:
        while at + _WORD_BYTES <= stop and not _has_special(data, at):
            at += _WORD_BYTES
        last = min(at + _WORD_BYTES, stop)
        while at < last:
            if data[at] == _BACKSLASH:
                at += 2
            elif data[at] == _QUOTE:
                return at + 1
            else:
                at += 1
    return _FAILED


@inlined
def _has_special(data, at):
    """Whether the next eight bytes, which are compared at once (Mycroft), have a quote or a backslash."""
    begin, word = np.uint64(at), np.uint64(0)
    for i in range(np.uint64(_WORD_BYTES)):  # compiled to one load
        word |= np.uint64(data[begin + i]) << (np.uint64(8) * i)
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    zeros = (quotes - _EACH) & ~quotes | (backslashes - _EACH) & ~backslashes
    return zeros & _HIGHEST != np.uint64(0)


@inlined
def _skip(data, at, stop):
    """The position behind the value that begins at `at`, -1 if the value has no end."""
    if at >= stop:
        return _FAILED
    if data[at] not in (_QUOTE, _OPEN, _OPEN_LIST):
        begin = at
        while at < stop and data[at] > 32 and data[at] not in (_COMMA, _CLOSE, _CLOSE_LIST):
            at += 1
        return at if at > begin else _FAILED
    depth = 0
    while at < stop:
        if data[at] == _QUOTE:
            at = _string_end(data, at, stop)
            if at == _FAILED:
                return _FAILED
        else:
            depth += (data[at] in (_OPEN, _OPEN_LIST)) - (data[at] in (_CLOSE, _CLOSE_LIST))
            at += 1
        if depth == 0:
            return at
    return _FAILED


@bare
def _following(data, at, stop):
    """The position behind the value that begins at `at` and its comma, -1 if there is no comma."""
    at = _skip(data, at, stop)
    if at == _FAILED:
        return _FAILED
    at = _blank(data, at, stop)
    if at >= stop or data[at] != _COMMA:
        return _FAILED
    return _blank(data, at + 1, stop)


@bare
def _member(data, at, stop, names, begin, end):  # noqa: PLR0917
    """The position of the value of the member names[begin:end], -1 if the object at `at` has none."""
    if at >= stop or data[at] != _OPEN:
        return _FAILED
    at = _blank(data, at + 1, stop)
    while at < stop and data[at] == _QUOTE:
        past = _string_end(data, at, stop)
        if past == _FAILED:
            return _FAILED
        is_member = _is_called(data, at + 1, past - 1, names, begin, end)
        at = _blank(data, past, stop)
        if at >= stop or data[at] != _COLON:
            return _FAILED
        at = _blank(data, at + 1, stop)
        if is_member:
            return at
        at = _following(data, at, stop)
        if at == _FAILED:
            return _FAILED
    return _FAILED


@bare
def _element(data, at, stop, index):
    """The position of element `index` of the array that begins at `at`, -1 if it has none."""
    if at >= stop or data[at] != _OPEN_LIST:
        return _FAILED
    at = _blank(data, at + 1, stop)
    for _ in range(index):
        at = _following(data, at, stop)
        if at == _FAILED:
            return _FAILED
    if at >= stop or data[at] == _CLOSE_LIST:
        return _FAILED
    return at
