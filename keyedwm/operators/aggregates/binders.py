"""The function that computes an aggregate over a column of a known type, or the sentence of the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from keyedwm.arrow import murmur
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction
from keyedwm.operators.aggregates.distinct import ApproximateDistinct
from keyedwm.operators.aggregates.extremes import FirstOrLast, extreme, is_sortable
from keyedwm.operators.aggregates.float_sum import FloatAverage, FloatSum
from keyedwm.operators.aggregates.kept_values import Collect, MapOf, Quantile, TopN
from keyedwm.operators.aggregates.moments import LinearTrend, Stddev, Variance
from keyedwm.operators.aggregates.sketches.hll_sketch import HllSketch
from keyedwm.operators.aggregates.sketches.kll_sketch import KllSketch
from keyedwm.operators.aggregates.sketches.quantile_sketch import ApproximateQuantile
from keyedwm.operators.aggregates.sketches.theta_sketch import ThetaSketch
from keyedwm.operators.aggregates.sums import DecimalSum, IntegerAverage, IntegerSum, ValueCount


class PairedSpec(Protocol):
    """An aggregate over two columns."""

    @property
    def column(self) -> str | None:
        """The first column."""

    @property
    def second(self) -> str | None:
        """The second column."""

    @property
    def argument(self) -> float | None:
        """The number that the function takes."""

    def describe(self) -> str:
        """Return a text for messages."""


def _approx_count_distinct(name: str, kind: pa.DataType, _order: tuple[pa.DataType, ...]) -> AggregateFunction:
    if not is_sortable(kind):
        raise OptionError(f"approx_count_distinct({name}) needs plain values, not {kind}; take its parts, or its text")
    return ApproximateDistinct()


def _sum(name: str, kind: pa.DataType, _order: tuple[pa.DataType, ...]) -> AggregateFunction:
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return IntegerSum(name)
    if pa.types.is_floating(kind):
        return FloatSum()
    if pa.types.is_decimal(kind) and kind.precision <= 18 and kind.scale >= 0:
        return DecimalSum(name, kind.scale)
    raise OptionError(f"sum({name}) needs numbers (decimals of up to 18 digits), not {kind}; cast the column")


def _avg(name: str, kind: pa.DataType, _order: tuple[pa.DataType, ...]) -> AggregateFunction:
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return IntegerAverage(name)
    if pa.types.is_floating(kind):
        return FloatAverage()
    raise OptionError(f"avg({name}) needs whole numbers or floats, not {kind}; cast the column to double")


def _measured(name: str, kind: pa.DataType, function: str) -> None:
    """Raise OptionError unless values can be read as floats."""
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise OptionError(f"{function}({name}) needs numbers, not {kind}; cast the column")


def _moments(function: str) -> Callable[[str, pa.DataType, tuple[pa.DataType, ...]], AggregateFunction]:
    function_class = {"variance": Variance, "stddev": Stddev, "linear_trend": LinearTrend}[function]

    def bound(name: str, kind: pa.DataType, _order: tuple[pa.DataType, ...]) -> AggregateFunction:
        _measured(name, kind, function)
        return function_class()

    return bound


def _hashed(name: str, kind: pa.DataType, function: str) -> None:
    """Raise OptionError for values that third-party sketches do not hash."""
    if not murmur.takes(kind):
        raise OptionError(
            f"{function}({name}) needs whole numbers, floats, text or bytes, not {kind}; cast the column to bigint or "
            "string, as in the sketches that these are to be merged with"
        )


def _sized(function: str, name: str, kind: pa.DataType, size: float) -> AggregateFunction:
    """Return the function of a sketch of this size."""
    if function == "kll_sketch":
        _measured(name, kind, function)
        return KllSketch(int(size))
    _hashed(name, kind, function)
    return HllSketch(int(size)) if function == "hll_sketch" else ThetaSketch(int(size))


def numbered(function: str, name: str, kind: pa.DataType, argument: float) -> AggregateFunction:
    """Return the function with a number argument: the share of a quantile, or the size of a sketch."""
    if function in DEFAULT_SIZES:
        return _sized(function, name, kind, argument)
    _measured(name, kind, function)
    return ApproximateQuantile(argument) if function == "approx_quantile" else Quantile(argument)


def _of_default_size(function: str) -> Callable[[str, pa.DataType, tuple[pa.DataType, ...]], AggregateFunction]:
    return lambda name, kind, _order: numbered(function, name, kind, DEFAULT_SIZES[function])


def _top_n(spec: PairedSpec, kind: pa.DataType, by: pa.DataType, order: tuple[pa.DataType, ...]) -> AggregateFunction:
    if not is_sortable(by):
        raise OptionError(f"{spec.describe()}: values of {spec.second!r} are of type {by}, which has no order")
    _check_ties(str(spec.column), kind, order)
    return TopN(kind, by, order, int(spec.argument or 1))


def _map_agg(
    spec: PairedSpec, key: pa.DataType, value: pa.DataType, order: tuple[pa.DataType, ...]
) -> AggregateFunction:
    if not is_sortable(key) or pa.types.is_floating(key):
        raise OptionError(
            f"{spec.describe()}: {spec.column!r} is of type {key}, which cannot be a key of a map: take its text"
        )
    _check_ties(str(spec.second), value, order)
    return MapOf(key, value, order)


def _edge(name: str, kind: pa.DataType, order: tuple[pa.DataType, ...], *, is_last: bool) -> AggregateFunction:
    _check_ties(name, kind, order)
    return FirstOrLast(kind, order, is_last)


def collect_of(name: str, kind: pa.DataType, order: tuple[pa.DataType, ...]) -> Collect:
    """Return the function that keeps all values."""
    _check_ties(name, kind, order)
    return Collect(kind, order)


def _check_ties(name: str, kind: pa.DataType, order: tuple[pa.DataType, ...]) -> None:
    if not is_sortable(kind) and not order:
        raise OptionError(
            f"values of {name!r} are of type {kind}, which has no order: rows of the same event time need order "
            "columns (for example topic, partition, offset)"
        )


DEFAULT_SIZES = {"hll_sketch": 12, "theta_sketch": 12, "kll_sketch": 200}
BINDERS: dict[str, Callable[[str, pa.DataType, tuple[pa.DataType, ...]], AggregateFunction]] = {
    "count": lambda _name, _kind, _order: ValueCount(),
    "sum": _sum,
    "avg": _avg,
    "min": lambda name, kind, _order: extreme(name, kind, highest=False),
    "max": lambda name, kind, _order: extreme(name, kind, highest=True),
    "first": lambda name, kind, order: _edge(name, kind, order, is_last=False),
    "last": lambda name, kind, order: _edge(name, kind, order, is_last=True),
    "collect": collect_of,
    "approx_count_distinct": _approx_count_distinct,
    **{function: _moments(function) for function in ("variance", "stddev", "linear_trend")},
    "median": lambda name, kind, _order: numbered("median", name, kind, 0.5),
    **{function: _of_default_size(function) for function in DEFAULT_SIZES},
}
PAIRED: dict[str, Callable[[PairedSpec, pa.DataType, pa.DataType, tuple[pa.DataType, ...]], AggregateFunction]] = {
    "top_n": _top_n,
    "map_agg": _map_agg,
}
