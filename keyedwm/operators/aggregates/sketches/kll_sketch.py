"""KLL sketches of doubles of Apache DataSketches, as Spark's `kll_sketch_agg_double` makes and reads them.

Rule: an item of level h stands for 2**h values. The sorted values are cut into blocks: first all that fit of the
highest level, then at most one block of each lower level, the largest first. The middle of each block is its item. So
no rank is off by more than half a block, and nothing is random. NaNs are ignored, as in the library. Source: the format
of datasketches-java, `kll/KllPreambleUtil`, and `kll/KllHelper` for how many items a level may hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.columns import Ints
from keyedwm.operators.aggregates.sketches.binaries import binaries, fixed, ragged
from keyedwm.operators.aggregates.sketches.quantile_sketch import QuantileSketch, SketchItems
from keyedwm.runtime.compiled import compiled

_FAMILY, _LEAST = 15, 8  # the lowest capacity of a level, in items
_EMPTY, _SINGLE = 1, 4
_MOST_LEVELS = 61
_START = np.dtype([
    ("ints", "u1"), ("version", "u1"), ("family", "u1"), ("flags", "u1"), ("k", "<u2"), ("m", "u1"), ("unused", "u1"),
])  # fmt: skip
_SIZES = np.dtype([("n", "<u8"), ("least_k", "<u2"), ("levels", "u1"), ("unused", "u1")])


@dataclass(frozen=True)
class KllSketch(QuantileSketch):
    """The spread as a KLL sketch."""

    k: int
    result = pa.binary()

    def results(self, entries: SketchItems) -> pa.Array:
        """Return the sketches, compact."""
        counts = np.diff(np.append(0, np.cumsum(entries.counts))[entries.borders])
        items, item_counts, levels, level_counts = _laid_out(
            entries.values, entries.counts, entries.borders, self.k, self._capacities()
        )
        is_large = counts > 1
        start = np.zeros(len(counts), _START)
        start["ints"], start["version"] = np.where(is_large, 5, 2), np.where(counts == 1, 2, 1)
        start["family"], start["k"], start["m"] = _FAMILY, self.k, _LEAST
        start["flags"] = np.where(counts == 0, _EMPTY, np.where(counts == 1, _SINGLE, 0))
        sizes = np.zeros(len(counts), _SIZES)
        sizes["n"], sizes["least_k"], sizes["levels"] = counts, self.k, level_counts
        edges = np.zeros(len(counts), np.dtype([("lowest", "<f8"), ("highest", "<f8")]))
        edges["lowest"][is_large] = entries.values[entries.borders[:-1][is_large]]
        edges["highest"][is_large] = entries.values[entries.borders[1:][is_large] - 1]
        return binaries(
            fixed(start, np.ones(len(counts), bool)),
            fixed(sizes, is_large),
            ragged(levels.astype("<i4"), level_counts),
            fixed(edges, is_large),
            ragged(items.astype("<f8"), item_counts),
        )

    def _capacities(self) -> Ints:
        """Return the capacity in items of sketches with 0, 1, 2 ... levels."""
        per_level = [max(_LEAST, ((2 * self.k << depth) // 3**depth + 1) >> 1) for depth in range(_MOST_LEVELS)]
        return np.append(0, np.cumsum(per_level))


@compiled
def _sizes(counts: Ints, borders: Ints, k: int) -> tuple[Ints, Ints, Ints]:
    """Return how many items and levels each window has (one item has no level), and how many values."""
    rows = borders.shape[0] - 1
    item_counts, level_counts, totals = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for row in range(rows):
        total = counts[borders[row] : borders[row + 1]].sum()
        size, top = total, 0
        while size > k:
            top += 1
            size = total >> top
        level_counts[row] = top + 1 if total > 1 else 0
        for level in range(top):
            size += (total >> level) & 1
        item_counts[row], totals[row] = size, total
    return item_counts, level_counts, totals


@compiled
def _laid_out(
    values: NDArray[np.float64], counts: Ints, borders: Ints, k: int, capacities: Ints
) -> tuple[NDArray[np.float64], Ints, Ints, Ints]:
    """Return items, lowest level first, and how many each window has; where levels begin, and how many levels."""
    item_counts, level_counts, totals = _sizes(counts, borders, k)
    items, levels = np.empty(item_counts.sum()), np.empty(level_counts.sum(), np.int64)
    end = level_end = 0
    for row in range(totals.shape[0]):
        total, size, top = totals[row], item_counts[row], 0
        while total >> top > k:
            top += 1
        rest = total & ((1 << top) - 1)
        lower = size - (total >> top)
        place, rank, rank_before, last = borders[row], 0, 0, top
        lower_place = end + lower
        for number in range(size):
            if number >= total >> top:  # the lower levels, from the highest down, stand before the items so far
                last -= 1
                while not (rest >> last) & 1:
                    last -= 1
            middle = rank + ((1 << last) >> 1)
            while rank_before + counts[place] <= middle:
                rank_before += counts[place]
                place += 1
            if last == top:
                items[end + lower + number] = values[place]
            else:
                lower_place -= 1
                items[lower_place] = values[place]
            rank += 1 << last
        if total > 1:
            begin = capacities[top + 1] - size
            for level in range(top + 1):
                levels[level_end + level] = begin
                begin += (rest >> level) & 1
            level_end += top + 1
        end += size
    return items, item_counts, levels, level_counts
