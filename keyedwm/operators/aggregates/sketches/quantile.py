"""An approximate quantile: of the spread, the value at the rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.operators.aggregates.sketches.quantile_sketch import QuantileSketch, SketchItems


@dataclass(frozen=True)
class ApproximateQuantile(QuantileSketch):
    """The lowest value to which at least this share of all values is equal or below, as Spark's `approx_percentile`."""

    share: float
    result = pa.float64()

    def results(self, entries: SketchItems) -> pa.Array:
        """Return the values; null without any. NaN is above every number."""
        before = np.append(0, np.cumsum(entries.counts))[entries.borders]
        numbers = np.diff(before)
        total = numbers + entries.nans
        rank = np.maximum(np.ceil(self.share * total).astype(np.int64), 1)
        is_number = (rank <= numbers) & (numbers > 0)
        quantiles = np.full(len(total), np.nan)
        at = np.searchsorted(np.cumsum(entries.counts), (before[:-1] + rank)[is_number])
        quantiles[is_number] = entries.values[at]
        return pa.array(quantiles, mask=total == 0)
