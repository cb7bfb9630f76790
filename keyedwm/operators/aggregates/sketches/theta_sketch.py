# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Theta sketches of Apache DataSketches, compact and ordered, as Spark's `theta_sketch_agg` makes and reads them.

Rule: a sketch stores the 2**lg_k + 1 lowest distinct hashes. If it has this number, the highest of them is theta, whose
value shows the share of all hashes below it. The lowest hashes of a union are among the lowest of its parts, so neither
order nor repetition matters. The library's union with 2**lg_k nominal entries stores the same hashes. Source: the
format of datasketches-java, `theta/PreambleUtil`, serial version 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Column, Ints
from keyedwm.arrow.hashing import Hashes
from keyedwm.arrow.murmur import SEED_HASH, murmured
from keyedwm.operators.aggregates.aggregate_function import Groups, RowOrder
from keyedwm.operators.aggregates.kept_values import ListAggregate, lengths, lists
from keyedwm.operators.aggregates.sketches.binaries import binaries, fixed, ragged
from keyedwm.operators.kernels import sorted_by_number
from keyedwm.runtime.compiled import compiled

_FAMILY, _VERSION = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED, _SINGLE = 2, 4, 8, 16, 32
_START = np.dtype([
    ("longs", "u1"), ("version", "u1"), ("family", "u1"), ("lg_k", "u1"), ("lg_size", "u1"), ("flags", "u1"),
    ("seed_hash", "<u2"),
])  # fmt: skip


@dataclass(frozen=True)
class ThetaSketch(ListAggregate):
    """Accumulators are the lowest hashes, in order."""

    lg_k: int
    result = pa.binary()
    fields = (pa.field("hashes", pa.list_(pa.uint64())),)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return one hash for a value and none for a null."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Return the lowest hashes of each group."""
        takes_part, hashes, _ = murmured(values)
        ids = groups.ids[takes_part]
        order = sorted_by_number(ids, groups.count)
        borders = np.searchsorted(ids[order], np.arange(groups.count + 1))
        return [self._lowest(hashes[order] >> np.uint64(1), borders)]

    def trim(self, columns: list[Column]) -> list[Column]:
        """Return the lowest hashes of each list."""
        borders = np.append(0, np.cumsum(lengths(columns[0])))
        return [self._lowest(columns[0].flatten().to_numpy(), borders)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the sketches, compact and ordered."""
        most = 1 << self.lg_k
        sizes = lengths(columns[0])
        counts, is_sample = np.minimum(sizes, most), sizes > most
        has_count = sizes > 1
        start = np.zeros(len(sizes), _START)
        start["longs"] = np.where(is_sample, 3, np.where(has_count, 2, 1))
        start["version"], start["family"], start["seed_hash"] = _VERSION, _FAMILY, SEED_HASH
        start["flags"] = _READ_ONLY | _COMPACT | _ORDERED | np.where(sizes == 0, _EMPTY, 0)
        start["flags"] |= np.where(sizes == 1, _SINGLE, 0).astype(np.uint8)
        hashes = columns[0].flatten().to_numpy().astype("<u8")
        ends = np.cumsum(sizes) - 1
        theta = np.zeros(len(sizes), "<u8")
        theta[is_sample] = hashes[ends[is_sample]]
        is_kept = np.ones(len(hashes), bool)
        is_kept[ends[is_sample]] = False
        return binaries(
            fixed(start, np.ones(len(sizes), bool)),
            fixed(counts.astype("<i8"), has_count),
            fixed(theta, is_sample),
            ragged(hashes[is_kept], counts),
        )

    def _lowest(self, hashes: Hashes, borders: Ints) -> pa.Array:
        lowest_hashes, offsets = _lowest(hashes, borders, (1 << self.lg_k) + 1)
        return lists(offsets, pa.array(lowest_hashes))


@compiled
def _lowest(hashes: Hashes, borders: Ints, most: int) -> tuple[Hashes, Ints]:
    """The lowest distinct hashes between borders, in order; 0 is none, as in the library."""
    lowest_hashes, offsets = np.empty(hashes.shape[0], np.uint64), np.zeros(borders.shape[0], np.int64)
    end = 0
    for group in range(borders.shape[0] - 1):
        before, first = np.uint64(0), end
        for one in np.sort(hashes[borders[group] : borders[group + 1]]):
            if one != before and end - first < most:
                lowest_hashes[end] = before = one
                end += 1
        offsets[group + 1] = end
    return lowest_hashes[:end].copy(), offsets
