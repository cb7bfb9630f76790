"""Spans of bytes in values and in a program's literals, copied into one column by compiled loops.

Rule: the loop that stores a span has checked that it lies in the value. A start below 0 is the place -1 - start in the
literals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keyedwm.core.errors import InputError
from keyedwm.runtime.compiled import bare

_MOST_BYTES = 2**31 - 1


class Literals:
    """Constants, names and texts one behind the other, so that number n is bytes[ends[n]:ends[n + 1]]."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._literals = literals

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """The begin of each literal, and the end of the last."""
        return begins([len(word) for word in self._literals])

    @cached_property
    def bytes(self) -> NDArray[np.uint8]:
        """All literals; never empty."""
        return np.frombuffer(b"".join(self._literals) or b"\0", np.uint8)


def begins(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return the begin of each of several consecutive runs, and the end of the last. counts: the runs' lengths."""
    return np.cumsum([0, *counts]).astype(np.int64)


def copied_spans(
    data: NDArray[np.uint8],
    literals: NDArray[np.uint8],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    valid: NDArray[np.uint8],
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Copy spans one behind the other; return the begin of each, plus the end of the last, and the bytes.

    Raises InputError for 2 GiB and more: a schema's symbol or default may be far longer than the value that has it.
    """
    ends = np.zeros(len(valid) + 1, np.int32)
    total = int(_text_sizes(start, stop, valid, ends))
    if total > _MOST_BYTES:
        raise InputError(
            f"a field of {len(valid)} values has {total} bytes of text, at most {_MOST_BYTES} can be in one column: "
            "lower kafka.fetch.max.bytes, or leave the field out"
        )
    out = np.empty(total, np.uint8)
    _gather_texts(data, literals, start, valid, ends, out)
    return ends, out


@bare
def _text_sizes(start, end, valid, ends):
    """Write the running sum of the spans' sizes into `ends`, which is valid below 2 GiB; return the total."""
    total = np.int64(0)
    for row in range(len(start)):
        if valid[row]:
            total += end[row] - (start[row] if start[row] >= 0 else -1 - start[row])
        ends[row + 1] = total
    return total


@bare
def _gather_texts(data, literals, start, valid, ends, out):  # noqa: PLR0917
    """Copy the spans one behind the other."""
    for row in range(len(start)):
        if valid[row]:
            to, size = np.uint64(ends[row]), np.uint64(ends[row + 1] - ends[row])
            if start[row] >= 0:
                begin = np.uint64(start[row])
                for i in range(size):
                    out[to + i] = data[begin + i]
            else:
                begin = np.uint64(-1 - start[row])
                for i in range(size):
                    out[to + i] = literals[begin + i]
