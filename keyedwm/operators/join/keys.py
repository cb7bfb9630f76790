"""Join keys: a hash for each row, and whether two rows of equal hash really have equal keys.

Rule: null equals nothing, as in SQL. Floats are equal as Spark compares them: -0.0 is 0.0, and NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, as_key, contiguous
from keyedwm.arrow.hashing import hashed_rows

# The column that holds the hash of a row's keys.
HASH = "__hash"
_TURN = np.uint64(32)


def can_be_key(kind: pa.DataType) -> bool:
    """Return whether columns of this type can be compared for equality here."""
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_dictionary(kind))


def plain(column: pa.Array) -> pa.Array:
    """Return a column in the form in which equal keys have equal values."""
    if pa.types.is_temporal(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else as_key(column)


def key_hashes(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return 64 bits for each row by its key columns, which hold no null; the same in every process."""
    return hashed_rows([plain(contiguous(column)) for column in columns], rows).view(np.int64)


def bucket_numbers(hashes: Ints, count: int) -> Ints:
    """Return the number of the bucket of each row; the index within a bucket uses other bits of the hash."""
    return ((hashes.view(np.uint64) >> _TURN) % np.uint64(count)).astype(np.int64)


def hash_is_key(kinds: Sequence[pa.DataType]) -> bool:
    """Return whether rows of equal hash always have equal keys: one whole number of 64 bits is mixed without loss."""
    if len(kinds) != 1:
        return not kinds
    (kind,) = kinds
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], pairs: int) -> Flags:
    """Return for each of so many pairs of rows whether all key columns are equal; without columns all are."""
    same = pa.array(np.ones(pairs, bool))
    for one, other in zip(map(plain, left), map(plain, right), strict=True):
        equal = pc.equal(one, other)
        if pa.types.is_floating(one.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
        same = pc.and_(same, equal)
    return same.to_numpy(zero_copy_only=False)
