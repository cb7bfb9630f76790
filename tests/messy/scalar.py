"""Every aggregate in plain Python, over the rows of a window in order of event time and record.

Rule: an `Expectation` says what a result column must hold; exact but where the documentation promises fewer digits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.operators.aggregates import functions as agg
from keyedwm.operators.aggregates.aggregate_function import Groups, RowOrder
from keyedwm.operators.aggregates.distinct import ApproximateDistinct
from tests.messy.conditions import Where, random_where
from tests.messy.feed import Column, Feed, Row
from tests.messy.kinds import NAN, array

_HUGE = 1e290


@dataclass(frozen=True)
class Expectation:
    """An aggregate: its name in the result, what the user writes, and whether a value is right over some rows."""

    name: str
    spec: Any
    fits: Callable[[Any, list[Row]], bool]
    expect: Callable[[list[Row]], Any]


def order_of(value: Any, kind: pa.DataType) -> Any:
    """What values are sorted by: NaN is above every number, text is ordered by its bytes."""
    if pa.types.is_floating(kind):
        return (1, 0.0) if value == NAN else (0, value)
    return value.encode() if isinstance(value, str) else value


def numbers(values: Sequence[Any]) -> list[float]:
    return [math.nan if one == NAN else float(one) for one in values]


def exact_sum(values: Sequence[float]) -> float:
    """Infinities and NaN by their rules, all else exactly."""
    odd = [one for one in values if not math.isfinite(one)]
    if odd:
        return sum(odd)
    return as_float(sum(map(Fraction, values), Fraction(0)))


def as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def near(actual: Any, expected: float, allowed: float = 1e-12) -> bool:
    if actual is None:
        return False
    actual = math.nan if actual == NAN else actual
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    return actual == expected or abs(actual - expected) <= allowed


def sum_fits(actual: Any, values: Sequence[float]) -> bool:
    expected = exact_sum(values)
    finite = [abs(one) for one in values if math.isfinite(one)]
    slack = len(values) * math.ulp(max(finite, default=0.0)) / 2**32
    return near(actual, expected, slack + (math.ulp(expected) if math.isfinite(expected) else 0.0))


def variance(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(one) for one in values]
    mean = sum(exact) / len(exact)
    return as_float(sum((one - mean) ** 2 for one in exact) / (len(exact) - 1))


def spread_fits(actual: Any, values: Sequence[float], *, root: bool) -> bool:
    expected = variance(values)
    if expected is None:
        return actual is None
    overflows = max(map(abs, values)) > 1e150 and actual == math.inf  # squares leave 64 bits, as NumPy's and Spark's do
    expected = math.sqrt(expected) if root else expected
    return overflows or near(actual, expected, 1e-7 * expected + _dust(values))


def _dust(values: Sequence[float]) -> float:
    """Squares below the least float."""
    return 1e-300 if all(abs(one) < 1e-100 for one in values) else 0.0


def trend_fits(actual: Any, pairs: Sequence[tuple[int, float]]) -> bool:
    pairs = [one for one in pairs if one[0] is not None]
    times = [Fraction(at, 1000) for at, _ in pairs]
    if len(set(times)) < 2:
        return actual is None
    if not all(math.isfinite(one) for _, one in pairs):
        return near(actual, math.nan)
    exact, count = [Fraction(one) for _, one in pairs], len(pairs)
    mean_t, mean_v = sum(times) / count, sum(exact) / count
    above = sum((t - mean_t) * (v - mean_v) for t, v in zip(times, exact, strict=True))
    expected = as_float(above / sum((t - mean_t) ** 2 for t in times))
    scale = max(abs(float(v)) for v in exact) / float(max(times) - min(times))
    if scale > _HUGE:
        return actual is not None
    return near(actual, expected, 1e-6 * abs(expected) + 1e-12 * scale)


def ranked(values: Sequence[float], share: float) -> float | None:
    """The lowest value to which at least this share is equal or below; NaN is above every number."""
    inside = sorted(values, key=lambda one: (math.isnan(one), 0.0 if math.isnan(one) else one))
    return inside[max(math.ceil(share * len(inside)), 1) - 1] if inside else None


def quantile_of(values: Sequence[float], share: float) -> float | None:
    if not values:
        return None
    inside = sorted(values, key=lambda one: (math.isnan(one), 0.0 if math.isnan(one) else one))
    place = share * (len(inside) - 1)
    low = math.floor(place)
    rest = place - low
    return inside[low] if not rest else inside[low] * (1 - rest) + inside[low + 1] * rest


def quantile_fits(actual: Any, values: Sequence[float], share: float) -> bool:
    expected = quantile_of(values, share)
    if expected is None:
        return actual is None
    return near(actual, expected, 1e-323 + 1e-13 * max((abs(one) for one in values if math.isfinite(one)), default=0.0))


def distinct_of(values: Sequence[Any], kind: pa.DataType) -> int:
    """The sketch of one value of each kind: NaNs of other bits and other zeros must not count apart."""
    raw = [one.encode() if isinstance(one, str) else math.nan if one == NAN else one for one in dict.fromkeys(values)]
    sketch = ApproximateDistinct()
    states = sketch.gather(
        array(kind, raw), RowOrder(np.zeros(len(raw), np.int64), ()), Groups(np.zeros(len(raw), np.int64), 1)
    )
    return sketch.finish(states, np.ones(1, np.int64))[0].as_py()


class Maker:
    """Draws aggregates over the columns of a feed."""

    def __init__(
        self, rng: random.Random, feed: Feed, *, keeps_values: bool = True, where: bool = True, simple: bool = False
    ) -> None:
        """keeps_values: draw functions that keep every value, too. where: conditions, too. simple: one column each."""
        self.rng, self.feed, self.keeps_values, self.where, self.simple = rng, feed, keeps_values, where, simple
        self.expectations: list[Expectation] = []

    def drawn(self, count: int) -> list[Expectation]:
        self._add("rows", agg.count(), lambda actual, rows: actual == len(rows), len)
        for _ in range(count):
            at = self.rng.randrange(len(self.feed.columns))
            self._one(at, self.feed.columns[at])
        return self.expectations

    def _one(self, at: int, column: Column) -> None:
        kind = column.kind
        choices = ["count", "first", "last"]
        if self.keeps_values:
            choices += ["collect", *([] if self.simple else ["map_agg"])]
        if not kind.is_("nested"):
            choices += ["min", "max", "approx_count_distinct", *([] if self.simple else ["top_n"])]
        if kind.is_("sum"):
            choices += ["sum"] + (["avg"] if not pa.types.is_decimal(kind.type) else [])
        if kind.is_("number"):
            choices += ["variance", "stddev", "linear_trend", *(["median"] if self.keeps_values else [])]
            choices += [] if self.simple else ["approx_quantile"]
            choices += ["quantile"] if self.keeps_values and not self.simple else []
        getattr(self, f"_{self.rng.choice(choices)}")(at, column)

    def _add(self, name: str, spec: Any, fits: Callable, expect: Callable) -> None:
        self.expectations.append(Expectation(f"{name} {len(self.expectations)}", spec, fits, expect))

    def _exactly(self, name: str, make: Callable, at: int, answer: Callable[[list], Any]) -> None:
        """answer: of the rows that take part, which have a value."""
        self._checked(name, make, at, lambda actual, rows: actual == answer(rows), answer)

    def _checked(self, name: str, make: Callable, at: int, fits: Callable, expect: Callable) -> None:
        where = random_where(self.rng, self.feed) if self.where and self.rng.random() < 0.3 else None
        self._add(
            name,
            make(where.text) if where else make(None),
            lambda actual, rows: fits(actual, self._taking_part(rows, at, where)),
            lambda rows: expect(self._taking_part(rows, at, where)),
        )

    def _taking_part(self, rows: list[Row], at: int | None, where: Where | None) -> list[Row]:
        passing_rows = [row for row in rows if where is None or where.holds(row) is True]
        return [row for row in passing_rows if at is None or row.values[at] is not None]

    def _of(self, rows: list[Row], at: int) -> list[Any]:
        return [self.feed.value(row, at) for row in rows]

    def _numbers(self, rows: list[Row], at: int) -> list[float]:
        return numbers(self._of(rows, at))

    def _count(self, at: int, column: Column) -> None:
        if self.rng.random() < 0.5 and self.where:
            where = random_where(self.rng, self.feed)
            answer = lambda rows: len(self._taking_part(rows, None, where))  # noqa: E731
            self._add("count_if", agg.count_if(where.text), lambda actual, rows: actual == answer(rows), answer)
            return
        self._exactly("count", lambda where: agg.count(column.name, where=where), at, len)

    def _sum(self, at: int, column: Column) -> None:
        make = lambda where: agg.sum(column.name, where=where)  # noqa: E731
        if column.kind.is_("float"):
            fits = lambda actual, rows: sum_fits(actual, self._numbers(rows, at)) if rows else actual is None  # noqa: E731
            self._checked("sum", make, at, fits, lambda rows: exact_sum(self._numbers(rows, at)))
            return
        self._exactly("sum", make, at, lambda rows: sum(self._of(rows, at)) if rows else None)

    def _avg(self, at: int, column: Column) -> None:
        def answer(rows: list[Row]) -> float | None:
            values = self._of(rows, at)
            if not values:
                return None
            if column.kind.is_("float"):
                return exact_sum(numbers(values)) / len(values)
            return as_float(Fraction(sum(values), len(values)))

        def fits(actual: Any, rows: list[Row]) -> bool:
            if not rows:
                return actual is None
            if not column.kind.is_("float"):
                expected = answer(rows)
                return near(actual, expected, 2 * math.ulp(expected))
            if math.isinf(exact_sum(self._numbers(rows, at))) and all(map(math.isfinite, self._numbers(rows, at))):
                return actual is not None  # whether a sum beyond all floats has a mean is not promised
            values = [one / len(rows) for one in self._numbers(rows, at)]
            return sum_fits(actual, values) or near(actual, answer(rows), 1e-15 * max(map(abs, values)))

        self._checked("avg", lambda where: agg.avg(column.name, where=where), at, fits, answer)

    def _extreme(self, at: int, column: Column, name: str, pick: Callable) -> None:
        make = lambda where: getattr(agg, name)(column.name, where=where)  # noqa: E731
        key = lambda one: order_of(one, column.kind.type)  # noqa: E731
        self._exactly(name, make, at, lambda rows: pick(self._of(rows, at), key=key, default=None))

    def _min(self, at: int, column: Column) -> None:
        self._extreme(at, column, "min", min)

    def _max(self, at: int, column: Column) -> None:
        self._extreme(at, column, "max", max)

    def _first(self, at: int, column: Column) -> None:
        answer = lambda rows: self._of(rows[:1], at)[0]  # noqa: E731
        self._add("first", agg.first(column.name), lambda actual, rows: actual == answer(rows), answer)

    def _last(self, at: int, column: Column) -> None:
        answer = lambda rows: self._of(rows[-1:], at)[0]  # noqa: E731
        self._add("last", agg.last(column.name), lambda actual, rows: actual == answer(rows), answer)

    def _collect(self, at: int, column: Column) -> None:
        make = lambda where: agg.collect(column.name, where=where)  # noqa: E731
        self._exactly("collect", make, at, lambda rows: tuple(self._of(rows, at)))

    def _approx_count_distinct(self, at: int, column: Column) -> None:
        make = lambda where: agg.approx_count_distinct(column.name, where=where)  # noqa: E731
        answer = lambda rows: distinct_of(self._of(rows, at), column.kind.type)  # noqa: E731
        self._exactly("approx_count_distinct", make, at, answer)

    def _variance(self, at: int, column: Column, *, root: bool = False) -> None:
        name = "stddev" if root else "variance"
        fits = lambda actual, rows: spread_fits(actual, self._numbers(rows, at), root=root)  # noqa: E731
        make = lambda where: getattr(agg, name)(column.name, where=where)  # noqa: E731
        self._checked(name, make, at, fits, lambda rows: variance(self._numbers(rows, at)))

    def _stddev(self, at: int, column: Column) -> None:
        self._variance(at, column, root=True)

    def _linear_trend(self, at: int, column: Column) -> None:
        pairs = lambda rows: list(zip([row.time for row in rows], self._numbers(rows, at), strict=True))  # noqa: E731
        make = lambda where: agg.linear_trend(column.name, where=where)  # noqa: E731
        self._checked("linear_trend", make, at, lambda actual, rows: trend_fits(actual, pairs(rows)), pairs)

    def _median(self, at: int, column: Column) -> None:
        self._share(at, 0.5, lambda where: agg.median(column.name, where=where), "median")

    def _quantile(self, at: int, column: Column) -> None:
        share = self.rng.choice([0, 0.25, 0.9, 1])
        self._share(at, share, lambda where: agg.quantile(column.name, share, where=where), "quantile")

    def _approx_quantile(self, at: int, column: Column) -> None:
        """Exact, as windows hold few values."""
        share = self.rng.choice([0, 0.25, 0.9, 1])
        make = lambda where: agg.approx_quantile(column.name, share, where=where)  # noqa: E731
        answer = lambda rows: ranked(self._numbers(rows, at), share)  # noqa: E731
        fits = lambda actual, rows: actual is None if not rows else near(actual, answer(rows), 0.0)  # noqa: E731
        self._checked("approx_quantile", make, at, fits, answer)

    def _share(self, at: int, share: float, make: Callable, name: str) -> None:
        fits = lambda actual, rows: quantile_fits(actual, self._numbers(rows, at), share)  # noqa: E731
        self._checked(name, make, at, fits, lambda rows: quantile_of(self._numbers(rows, at), share))

    def _top_n(self, at: int, column: Column) -> None:
        other = self.rng.randrange(len(self.feed.columns))
        n, output_column = self.rng.choice([1, 2, 5]), self.feed.columns[other]

        def answer(rows: list[Row]) -> tuple:
            highest = sorted(
                rows, key=lambda row: order_of(self.feed.value(row, at), column.kind.type), reverse=True
            )  # of equal ones the first stays first
            return tuple(self._of(highest[:n], other))

        make = lambda where: agg.top_n(n, column.name, output_column.name, where=where)  # noqa: E731
        self._exactly("top_n", make, at, answer)

    def _map_agg(self, at: int, column: Column) -> None:
        other = self.rng.randrange(len(self.feed.columns))
        if column.kind.is_("float") or column.kind.is_("nested"):
            return
        value = self.feed.columns[other]
        answer = lambda rows: {self.feed.value(row, at): self.feed.value(row, other) for row in rows}  # noqa: E731
        make = lambda where: agg.map_agg(column.name, value.name, where=where)  # noqa: E731
        fits = lambda actual, rows: dict(actual) == answer(rows) and len(actual) == len(dict(actual))  # noqa: E731
        self._checked("map_agg", make, at, fits, answer)
