"""Join keys, and a side of a join as stage one needs it: whole rows with the hash of their keys, divided by that hash.

Rule: null equals nothing, as in SQL: a row with a null key has no hash, and such rows are spread by their time. Floats
are compared as in Spark: -0.0 equals 0.0, and NaN equals NaN. Rows of equal hash may have different keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Flags, Ints, as_key, contiguous
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.operators.exchange_input import ExchangeInput

# The column that holds the hash of a row's keys.
HASH = "__hash"
_TURN = np.uint64(32)


def can_be_key(kind: pa.DataType) -> bool:
    """Return whether a join can compare columns of this type for equality."""
    types = pa.types
    without = (types.is_nested, types.is_null, types.is_dictionary, types.is_float16, types.is_interval)
    return not any(is_such(kind) for is_such in (*without, types.is_string_view, types.is_binary_view))


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
    """Return for each pair of rows whether all key columns are equal; true without columns. pairs: their number."""
    same = pa.array(np.ones(pairs, bool))
    for one, other in zip(map(plain, left), map(plain, right), strict=True):
        equal = pc.equal(one, other)
        if pa.types.is_floating(one.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
        same = pc.and_(same, equal)
    return same.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, kw_only=True)
class ExchangeSide(ExchangeInput):
    """One input. schema: the columns of its rows, event times in ms last. by: key columns.

    times: the columns with the event times, one for each axis.
    """

    kind = "join"
    schema: pa.Schema
    by: tuple[str, ...]
    times: Sequence[str]

    @property
    def spread_by(self) -> tuple[str, ...]:
        """The hash of the keys."""
        return (HASH,)

    def description(self) -> dict[str, Any]:
        """Return by and times; see `ExchangeInput`."""
        return {"kind": self.kind, "by": list(self.by), "times": list(self.times)}

    @classmethod
    def of(cls, description: Mapping[str, Any], schema: pa.Schema) -> ExchangeSide:
        """Return the input of a description."""
        return cls(schema=schema, by=tuple(description["by"]), times=tuple(description["times"]))

    def null_event_times(self, rows: pa.Table) -> int:
        """Return how many rows lack the event time of some axis."""
        first, *others = (rows[name] for name in self.times)
        if not any(other.null_count for other in others):
            return first.null_count
        timeless = pc.is_null(first)
        for other in others:
            timeless = pc.or_(timeless, pc.is_null(other))
        return pc.sum(timeless).as_py() or 0

    def exchange_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are shipped: all, with the hash of their keys before the event times."""
        keys = [contiguous(rows[name]) for name in self.by]
        known = np.ones(rows.num_rows, bool)
        for key in keys:
            if key.null_count:
                known &= key.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.zeros(rows.num_rows, np.int64)
        valid_keys = keys if known.all() else [key.filter(pa.array(known)) for key in keys]
        hashes[known] = key_hashes(valid_keys, int(known.sum()))
        return rows.add_column(len(self.schema) - len(self.times), HASH, pa.array(hashes, mask=~known))

    def buckets(self, rows: pa.Table, count: int) -> Ints:
        """Return the number of the bucket of each row, out of `count`."""
        hashes = contiguous(rows[HASH])
        if hashes.null_count:
            times = pc.fill_null(contiguous(rows[self.times[0]]), 0)
            hashes = pc.fill_null(hashes, pc.shift_left_checked(pc.bit_wise_and(times, 2**30 - 1), 32))
        return bucket_numbers(hashes.to_numpy(), count)
