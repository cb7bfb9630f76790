# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Variance, standard deviation and linear trend: sums of values, of squares and of products, finished once.

Rule: the sums are exact (`exact_sum`), and so are all numbers derived from them until the result is rounded. Neither
order nor grouping changes a bit. Large values with equal leading digits lose no precision.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Flags, Ints, as_floats, contiguous
from keyedwm.operators.aggregates import exact_sum
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.exact_ratio import Floats, centred, ratios, whole
from keyedwm.operators.aggregates.exact_sum import DIGITS, Numbers, Sums
from keyedwm.operators.aggregates.sums import VALUES, present
from keyedwm.operators.kernels import add_by_group, add_by_span

_MS_PER_SECOND = 1_000


class MomentSums(AggregateFunction):
    """Several exact sums and the number of values; nulls are ignored."""

    result = pa.float64()
    terms: tuple[str, ...]

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The digits of each sum, and the number of values."""
        return (*(pa.field(f"{term}_digits", DIGITS) for term in self.terms), VALUES)

    @abstractmethod
    def factors(self, values: Numbers, times: Numbers, ones: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Return for each term the two columns whose products it sums."""

    @abstractmethod
    def of_sums(self, count: Ints, sums: Sequence[Sums]) -> tuple[Floats, Flags]:
        """Return the results, and a flag for rows without a result; count is 2 or more, or the result is not used."""

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return the sums of each value alone."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Sum the products of each group."""
        valid = contiguous(pc.is_valid(values)).to_numpy(zero_copy_only=False)
        numbers = exact_sum.of_floats(contiguous(as_floats(values.filter(pa.array(valid)))).to_numpy())
        ones = exact_sum.of_ints(np.ones(len(numbers.mantissas), np.int64))
        factors = self.factors(numbers, exact_sum.of_ints(rows.times[valid]), ones)
        ids = groups.ids[valid]
        sums = [exact_sum.sums_of(one, other, ids, groups.count) for one, other in factors]
        return [*map(exact_sum.to_column, sums), add_by_group(present(values), groups.ids, groups.count)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Sum the accumulators of each group."""
        *terms, values = columns
        sums = [exact_sum.merged(exact_sum.of_column(term), groups.ids, groups.count) for term in terms]
        return [*map(exact_sum.to_column, sums), add_by_group(values, groups.ids, groups.count)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Sum the accumulators of each row range: add rows that enter, subtract rows that leave."""
        *terms, values = columns
        sums = [exact_sum.by_span(exact_sum.of_column(term), spans.first, spans.behind) for term in terms]
        return [*map(exact_sum.to_column, sums), add_by_span(values, spans.first, spans.behind)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the results; null for less than two values, and if `of_sums` has no result."""
        *terms, values = columns
        results, missing = self.of_sums(values, [exact_sum.of_column(term) for term in terms])
        return pa.array(results, mask=(values < 2) | missing)


class Variance(MomentSums):
    """The sample variance, as Spark's `variance`."""

    terms = ("sum", "squares")

    def factors(self, values: Numbers, times: Numbers, ones: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Return the values, and their squares."""
        return [(values, ones), (values, values)]

    def of_sums(self, count: Ints, sums: Sequence[Sums]) -> tuple[Floats, Flags]:
        """Return (n * squares - sum * sum) / n / (n - 1)."""
        total, squares = sums
        n, one = whole(count), whole(np.ones_like(count))
        variances = ratios(centred(n, squares, total, total), centred(n, n, n, one))
        with np.errstate(over="ignore", invalid="ignore"):
            # As in Spark and NumPy: infinite if the sum of squared distances from the mean is more than a float holds.
            is_infinite = np.isinf(variances * (count - 1))
        return np.where(is_infinite, np.inf, variances), np.zeros(len(count), np.bool_)


class Stddev(Variance):
    """The sample standard deviation, as Spark's `stddev`."""

    def of_sums(self, count: Ints, sums: Sequence[Sums]) -> tuple[Floats, Flags]:
        """Return the square root of the variance."""
        variances, missing = super().of_sums(count, sums)
        return np.sqrt(variances), missing


class LinearTrend(MomentSums):
    """The rise of the values per second of event time: the slope of the line of least squares."""

    terms = ("times", "values", "squares", "products")

    def factors(self, values: Numbers, times: Numbers, ones: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Return times, values, squares of times, and products."""
        return [(times, ones), (values, ones), (times, times), (times, values)]

    def of_sums(self, count: Ints, sums: Sequence[Sums]) -> tuple[Floats, Flags]:
        """Return (n * products - times * values) / (n * squares - times * times), per second; none for one time."""
        times, values, squares, products = sums
        n, none = whole(count), whole(np.zeros_like(count))
        rise = centred(n, products, times, values)
        run = centred(n, squares, times, times)
        a_second = whole(np.full_like(count, _MS_PER_SECOND))
        return ratios(centred(a_second, rise, none, none), run), run.offsets[1:] == run.offsets[:-1]
