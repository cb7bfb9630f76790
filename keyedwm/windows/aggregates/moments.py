# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Variance, standard deviation and linear trend: sums of values, of squares and of products, finished once.

Rule: the sums are those of `float_sum`, so order and grouping change no bit. A product is added as the two floats that
it is exactly, and the sums are taken as pairs of floats. Of a sum 84 bits are kept, so a variance keeps nearly all its
digits while the values are less than 10**8 times their spread apart from zero, seven up to 10**12, none beyond 10**14.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.windows.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.windows.aggregates.float_sum import PLACES, add_by_group_of, add_by_span_of, as_pairs, floats_by_group
from keyedwm.windows.aggregates.sums import VALUES, present
from keyedwm.windows.columns import Column, Flags, Ints, as_floats, contiguous, number
from keyedwm.windows.kernels import add_by_group, add_by_span

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]  # a number as the sum of two floats, the second below half a unit of the first
_WIDTH = len(PLACES)
_SPLIT = 134_217_729.0  # 2**27 + 1, see `_product`
_MS_PER_SECOND = 1_000.0


class MomentSums(AggregateFunction):
    """Several sums of floats and the number of values; a null takes no part."""

    result = pa.float64()
    terms: tuple[str, ...]

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The places of each sum, and the number of values."""
        return (*(number(f"{term}_{place}") for term in self.terms for place in PLACES), VALUES)

    @abstractmethod
    def parts(self, values: Floats, times: Floats) -> list[tuple[Floats, ...]]:
        """Return for each term the floats of which its sum is made, row by row."""

    @abstractmethod
    def of_sums(self, count: Floats, sums: Sequence[Pair]) -> Floats:
        """Return the results; count is 2 or more, or the result is not used."""

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return the sums of each value alone."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Split the products and sum them by group."""
        valid = contiguous(pc.is_valid(values)).to_numpy(zero_copy_only=False)
        floats = contiguous(as_floats(values.filter(pa.array(valid)))).to_numpy()
        ids = groups.ids[valid]
        columns: list[Column] = []
        for parts in self.parts(floats, rows.times[valid].astype(np.float64)):
            sums = [floats_by_group(np.ascontiguousarray(part).view(np.int64), ids, groups.count) for part in parts]
            total = sums[0] if len(sums) == 1 else _added(sums, groups.count)
            columns += [np.ascontiguousarray(column) for column in total.T]
        return [*columns, add_by_group(present(values), groups.ids, groups.count)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Sum the accumulators of each group, place by place."""
        sums = [add_by_group_of(term, groups.ids, groups.count) for term in _by_term(columns)]
        return [*_columns(sums), add_by_group(columns[-1], groups.ids, groups.count)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Sum the accumulators of each row range, with two stacks."""
        sums = [add_by_span_of(term, spans.first, spans.behind) for term in _by_term(columns)]
        return [*_columns(sums), add_by_span(columns[-1], spans.first, spans.behind)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the results; null for less than two values, and where `of_sums` is not defined."""
        count = columns[-1].astype(np.float64)
        with np.errstate(all="ignore"):  # infinities and NaN go their way to the result
            found = self.of_sums(count, [as_pairs(term) for term in _by_term(columns)])
        return pa.array(found, mask=(columns[-1] < 2) | self.undefined(columns))

    def undefined(self, columns: Sequence[Column]) -> Flags:
        """Return where there is no result although there are two values."""
        return np.zeros(len(columns[-1]), np.bool_)


class Variance(MomentSums):
    """The sample variance, as Spark's `variance`."""

    terms = ("sum", "squares")

    def parts(self, values: Floats, times: Floats) -> list[tuple[Floats, ...]]:
        """Return the values, and their squares."""
        return [(values,), _product(values, values)]

    def of_sums(self, count: Floats, sums: Sequence[Pair]) -> Floats:
        """Return (n * squares - sum * sum) / n / (n - 1)."""
        total, squares = sums
        spread = _minus(_times(squares, (count, np.zeros_like(count))), _times(total, total))[0]
        return np.where(spread < 0, 0.0, spread) / (count * np.maximum(count - 1, 1))


class Stddev(Variance):
    """The sample standard deviation, as Spark's `stddev`."""

    def of_sums(self, count: Floats, sums: Sequence[Pair]) -> Floats:
        """Return the square root of the variance."""
        return np.sqrt(super().of_sums(count, sums))


class LinearTrend(MomentSums):
    """By how much the values rise in a second of event time: the slope of the line of least squares."""

    terms = ("times", "values", "squares", "products")

    def parts(self, values: Floats, times: Floats) -> list[tuple[Floats, ...]]:
        """Return times, values, squares of times, and products."""
        return [(times,), (values,), _product(times, times), _product(times, values)]

    def of_sums(self, count: Floats, sums: Sequence[Pair]) -> Floats:
        """Return (n * products - times * values) / (n * squares - times * times), for seconds."""
        times, values, squares, products = sums
        many = (count, np.zeros_like(count))
        rise = _minus(_times(products, many), _times(times, values))[0]
        run = _minus(_times(squares, many), _times(times, times))[0]
        return rise / np.where(run > 0, run, 1.0) * _MS_PER_SECOND

    def undefined(self, columns: Sequence[Column]) -> Flags:
        """Without two different event times there is no line."""
        times, _, squares, _ = (as_pairs(term) for term in _by_term(columns))
        many = columns[-1].astype(np.float64)
        run = _minus(_times(squares, (many, np.zeros_like(many))), _times(times, times))[0]
        return run <= 0


def _by_term(columns: Sequence[Column]) -> list[Ints]:
    return [np.stack(columns[at : at + _WIDTH], axis=1) for at in range(0, len(columns) - 1, _WIDTH)]


def _columns(sums: Sequence[Ints]) -> list[Column]:
    return [np.ascontiguousarray(column) for term in sums for column in term.T]


def _added(sums: Sequence[Ints], count: int) -> Ints:
    return add_by_group_of(np.concatenate(sums), np.tile(np.arange(count), len(sums)), count)


def _sum(a: Floats, b: Floats) -> Pair:
    """Return the sum and what rounding took from it (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _product(a: Floats, b: Floats) -> Pair:
    """Return the product and what rounding took from it (Dekker); beyond 2**996 and far below 1 that is inexact."""
    product = a * b
    with np.errstate(all="ignore"):
        (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
        rest = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    return product, np.where(np.isfinite(rest), rest, 0.0)


def _halves(a: Floats) -> Pair:
    big = _SPLIT * a
    high = big - (big - a)
    return high, a - high


def _times(a: Pair, b: Pair) -> Pair:
    high, low = _product(a[0], b[0])
    return _sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def _minus(a: Pair, b: Pair) -> Pair:
    high, low = _sum(a[0], -b[0])
    return _sum(high, low + (a[1] - b[1]))
