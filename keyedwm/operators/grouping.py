"""Groups of equal rows: numbers for rows whose columns are equal, and groups of pairs of whole numbers.

Rule: the code of a pair always fits in 64 bits, for numbers at any distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.operators.kernels import dense_groups

_SAFE = 2**62


def row_groups(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return a number from 0 up for each row, the same for equal rows; not every number below the highest occurs."""
    if not columns:
        return np.zeros(rows, np.int64)
    numbers, count = _encoded(columns[0])
    for column in columns[1:]:
        further, other = _encoded(column)
        numbers = numbers * other + further
        count *= other
        if count > 4 * rows + 1024:
            numbers, count = _encoded(pa.array(numbers))
    return numbers


def _encoded(column: pa.Array) -> tuple[Ints, int]:
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), max(1, len(encoded.dictionary))


def distinct_codes(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Return each code's rank among the distinct codes, and the distinct codes, ascending; codes are in `[0, size)`."""
    if size <= 8 * len(codes) + 65536:
        return dense_groups(codes, size)
    encoded = pc.dictionary_encode(pa.array(codes))
    values = ints(contiguous(encoded.dictionary))
    ascending = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[ascending] = np.arange(len(values))
    return rank[encoded.indices.to_numpy()], values[ascending]


def pair_groups(major: Ints, minor: Ints, width: int) -> tuple[Ints, Ints, Ints]:
    """Return each pair's group number, and the groups' pairs, ascending; the minor numbers are in `[0, width)`."""
    if not len(major):
        return major, major, minor
    at, distinct, size = _dense(major, width)
    ids, codes = distinct_codes(at * width + minor, size * width)
    return ids, distinct[codes // width] if distinct is not None else codes // width + major.min(), codes % width


def ranges(first: Ints, sizes: Ints) -> Ints:
    """Return `sizes` whole numbers from each `first` on."""
    behind = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) + np.repeat(first - (behind - sizes), sizes)


def _dense(major: Ints, width: int) -> tuple[Ints, Ints | None, int]:
    """Return small numbers in the same order, their original values (None: counted from the lowest), and a bound."""
    low, span = major.min(), int(major.max()) - int(major.min()) + 1
    if span * width < _SAFE:
        return major - low, None, span
    distinct, at = np.unique(major, return_inverse=True)
    return at, distinct, len(distinct)
