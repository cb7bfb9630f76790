# ruff: noqa: ARG002  every aggregate function has the same signatures
"""The distribution of numbers in bounded space: distinct values and their counts, with the leading bits that fit.

Rule: floats become whole numbers that sort alike. Up to `MAX_DISTINCT` distinct values are exact. Of more values the
lowest bits are dropped, until `MAX_DISTINCT` distinct values are left (at most the 52 bits of the fraction). The number
of bits follows from the set of values, and a part never drops more bits than the whole. So neither the order of the
rows nor their division into parts matters. The lowest and the highest value stay exact. NaNs are only counted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Column, Ints, as_floats, contiguous, number
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.kept_values import concatenated, expanded, lengths, lists
from keyedwm.operators.kernels import add_by_group, sorted_by_number
from keyedwm.runtime.compiled import compiled

MAX_DISTINCT = 2_048
_FRACTION_BITS = 52
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class SketchItems:
    """For each window the values in order and the count of each. borders: where windows begin. nans: counts of NaNs."""

    values: NDArray[np.float64]
    counts: Ints
    borders: Ints
    nans: Ints


class QuantileSketch(AggregateFunction):
    """Accumulators are values, counts, the number of dropped bits and the number of NaNs."""

    fields = (
        pa.field("values", pa.list_(pa.uint64())), pa.field("counts", pa.list_(pa.int64())), number("dropped_bits"),
        number("nans"),
    )  # fmt: skip

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return one entry for a number and none for a null; a NaN is only counted."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Return the sketch of each group."""
        floats = contiguous(as_floats(values))
        is_valid = pc.is_valid(floats).to_numpy(zero_copy_only=False)
        numbers, ids = floats.drop_null().to_numpy() + 0.0, groups.ids[is_valid]
        is_nan = np.isnan(numbers)
        nans = np.bincount(ids[is_nan], minlength=groups.count).astype(np.int64)
        codes, ids = _codes(numbers[~is_nan]), ids[~is_nan]
        order = sorted_by_number(ids, groups.count)
        borders = np.searchsorted(ids[order], np.arange(groups.count + 1))
        return _columns_of(codes[order], np.ones(len(order), np.int64), borders, np.zeros(groups.count, np.int64), nans)

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Return the sketch of each group."""
        order = sorted_by_number(groups.ids, groups.count)
        borders = np.searchsorted(groups.ids[order], np.arange(groups.count + 1))
        return _united(columns, order, borders)

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the sketch of each row range."""
        return _united(columns, *expanded(spans))

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the results."""
        codes, counts, dropped_bits, nans = columns
        borders = np.append(0, np.cumsum(lengths(codes)))
        values = _values(codes.flatten().to_numpy(), borders, dropped_bits)
        return self.results(SketchItems(values, counts.flatten().to_numpy(), borders, nans))

    @abstractmethod
    def results(self, entries: SketchItems) -> pa.Array:
        """Return the result of each window."""


def _united(columns: Sequence[Column], rows: Ints, borders: Ints) -> list[Column]:
    codes, counts = concatenated(columns[:2], rows, borders)
    owner = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
    dropped_bits = np.zeros(len(borders) - 1, np.int64)
    np.maximum.at(dropped_bits, owner, columns[2][rows])
    nans = add_by_group(columns[3][rows], owner, len(borders) - 1)
    entries = np.append(0, np.cumsum(lengths(codes)))
    return _columns_of(codes.flatten().to_numpy(), counts.flatten().to_numpy(), entries, dropped_bits, nans)


def _columns_of(codes: NDArray[np.uint64], counts: Ints, borders: Ints, dropped_bits: Ints, nans: Ints) -> list[Column]:
    codes, counts, offsets, dropped_bits = _rounded(codes, counts, borders, dropped_bits)
    return [lists(offsets, pa.array(codes)), lists(offsets, pa.array(counts)), dropped_bits, nans]


def _codes(floats: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return whole numbers in the order of the floats."""
    bits = floats.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _values(codes: NDArray[np.uint64], borders: Ints, dropped_bits: Ints) -> NDArray[np.float64]:
    """Return the middle of each entry's range; 0 and a window's lowest and highest value are exact."""
    halves = np.where(dropped_bits > 0, 1 << np.maximum(dropped_bits - 1, 0), 0)
    half = np.repeat(halves, np.diff(borders)).astype(np.uint64)
    some = np.diff(borders) > 0
    half[borders[:-1][some]] = half[borders[1:][some] - 1] = 0
    half[codes == _SIGN] = 0  # 0 is frequent: the middle of its range, a tiny number, would often be a result
    codes = codes | half
    return np.where(codes & _SIGN, codes ^ _SIGN, ~codes).view(np.float64)


@compiled
def _length_of(x: np.uint64) -> int:
    """The number of bits up to the highest that is set."""
    length = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> np.uint64(step):
            x >>= np.uint64(step)
            length += step
    return length + int(x)


@compiled
def _rounded(
    codes: NDArray[np.uint64], counts: Ints, borders: Ints, dropped_bits: Ints
) -> tuple[NDArray[np.uint64], Ints, Ints, Ints]:
    """Sort between borders, drop bits (at least those dropped already), and sum the counts of equal values.

    Two neighbours differ until their highest differing bit is dropped. So one pass counts the distinct values for each
    number of dropped bits.
    """
    rounded_codes, sums = np.empty(codes.shape[0], np.uint64), np.empty(codes.shape[0], np.int64)
    offsets, bits_of = np.zeros(borders.shape[0], np.int64), dropped_bits.copy()
    apart = np.zeros(65, np.int64)
    end = 0
    for group in range(borders.shape[0] - 1):
        first, behind = borders[group], borders[group + 1]
        if first < behind:
            order = first + np.argsort(codes[first:behind])
            bits = bits_of[group]
            apart[:] = 0
            for at in range(1, order.shape[0]):
                apart[_length_of((codes[order[at - 1]] ^ codes[order[at]]) >> np.uint64(bits))] += 1
            distinct, more = 1 + apart[1:].sum(), 0
            while distinct > MAX_DISTINCT and bits + more < _FRACTION_BITS:
                more += 1
                distinct -= apart[more]
            bits += more
            bits_of[group] = bits
            begin = end
            for at in order:
                code = codes[at] >> np.uint64(bits) << np.uint64(bits)
                if end > begin and rounded_codes[end - 1] == code:
                    sums[end - 1] += counts[at]
                else:
                    rounded_codes[end], sums[end] = code, counts[at]
                    end += 1
            rounded_codes[begin], rounded_codes[end - 1] = codes[order[0]], codes[order[-1]]
        offsets[group + 1] = end
    return rounded_codes[:end].copy(), sums[:end].copy(), offsets, bits_of


@dataclass(frozen=True)
class ApproximateQuantile(QuantileSketch):
    """The lowest value such that at least this share of all values is not above it, as Spark's `approx_percentile`."""

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
