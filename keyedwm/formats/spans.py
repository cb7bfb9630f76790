"""Spans of bytes in values and in a program's words, copied into one column by compiled loops.

Rule: the loop that stores a span has checked that it lies in the value. A start below 0 lies in the words, at
-1 - start.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keyedwm.runtime.compiled import bare


class Words:
    """Words one behind the other, so that word n is bytes[ends[n]:ends[n + 1]]."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._words = words

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Where each word begins, and the end of the last."""
        return begins([len(word) for word in self._words])

    @cached_property
    def bytes(self) -> NDArray[np.uint8]:
        """All words; never empty."""
        return np.frombuffer(b"".join(self._words) or b"\0", np.uint8)


def begins(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return where each of some runs begins that lie one behind the other, and the end of the last."""
    return np.cumsum([0, *counts]).astype(np.int64)


@bare
def text_sizes(start, end, valid, ends):
    """Sum up the sizes of spans into `ends`."""
    total = np.int64(0)
    for row in range(len(start)):
        if valid[row]:
            total += end[row] - (start[row] if start[row] >= 0 else -1 - start[row])
        ends[row + 1] = total


@bare
def gather_texts(data, words, start, valid, ends, out):  # noqa: PLR0917
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
                    out[to + i] = words[begin + i]
