"""A side of a join as stage one needs it: whole rows with the hash of their keys, divided by that hash.

Rule: a row with a null key matches nothing, so it has no hash, and such rows are spread by their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous
from keyedwm.operators.join.keys import HASH, bucket_numbers, key_hashes


@dataclass(frozen=True, kw_only=True, slots=True)
class ShippedSide:
    """One input. schema: of its rows, which end with their event times in ms. by: key columns. times: the columns with
    the event times, one for each axis.
    """

    schema: pa.Schema
    by: tuple[str, ...]
    times: Sequence[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are shipped."""
        return tuple(self.schema.names)

    def null_event_times(self, rows: pa.Table) -> int:
        """Return how many rows lack the event time of some axis."""
        first, *others = (rows[name] for name in self.times)
        if not any(other.null_count for other in others):
            return first.null_count
        timeless = pc.is_null(first)
        for other in others:
            timeless = pc.or_(timeless, pc.is_null(other))
        return pc.sum(timeless).as_py() or 0

    def staged(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are shipped: all, with the hash of their keys before the event times."""
        keys = [contiguous(rows[name]) for name in self.by]
        known = np.ones(rows.num_rows, bool)
        for key in keys:
            if key.null_count:
                known &= key.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.zeros(rows.num_rows, np.int64)
        kept = keys if known.all() else [key.filter(pa.array(known)) for key in keys]
        hashes[known] = key_hashes(kept, int(known.sum()))
        return rows.add_column(len(self.schema) - len(self.times), HASH, pa.array(hashes, mask=~known))

    def buckets(self, staged: pa.Table, count: int) -> Ints:
        """Return the number of the bucket of each row, out of `count`."""
        hashes = contiguous(staged[HASH])
        if hashes.null_count:
            times = pc.fill_null(contiguous(staged[self.times[0]]), 0)
            hashes = pc.fill_null(hashes, pc.shift_left_checked(pc.bit_wise_and(times, 2**30 - 1), 32))
        return bucket_numbers(hashes.to_numpy(), count)
