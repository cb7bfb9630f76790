# ruff: noqa: A001  the names are those of Spark's functions
"""The aggregates a user can ask for.

Rule: each is a value that knows its input column by name; the column's type decides how it is computed, and a type that
does not fit is refused by name. Nulls take no part, but for first and last; so several inputs are grouped together by a
union of their rows in which the other inputs' columns are null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from keyedwm.core import aggregate as core
from keyedwm.core.errors import OptionError
from keyedwm.windows.additive import DecimalSum, IntegerAverage, IntegerSum, RowCount, ValueCount
from keyedwm.windows.distinct import ApproximateDistinct
from keyedwm.windows.edges import Edge
from keyedwm.windows.exact import ExactAverage, ExactSum
from keyedwm.windows.extremes import extreme, is_sortable
from keyedwm.windows.kinds import Kind, column_type
from keyedwm.windows.lists import Collect
from keyedwm.windows.user import Combined, Kept

_DESCRIBED = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


class AggregateSpec(Protocol):
    """An aggregate as it was asked for."""

    @property
    def column(self) -> str | None:
        """The input column, None if it needs none."""

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> Kind:
        """The aggregate over the column's type; OptionError if the column or its type does not fit."""

    def describe(self) -> str:
        """For a plan's digest and for messages."""


@dataclass(frozen=True, slots=True)
class _Spec:
    """An aggregate of the package, by its function's name."""

    function: str
    column: str | None = None

    def __post_init__(self) -> None:
        if self.function != "count" or self.column is not None:
            _check_column(self.function, self.column)

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> Kind:
        """See AggregateSpec."""
        if self.column is None:
            return RowCount()
        order_types = tuple(column_type(schema, name) for name in order)
        return _BINDERS[self.function](self.column, column_type(schema, self.column), order_types)

    def describe(self) -> str:
        """`sum(price)`."""
        return f"{self.function}({self.column or ''})"


def aggregate_of(text: str) -> AggregateSpec:
    """The reverse of `describe`; OptionError if it is no aggregate of the package."""
    match = _DESCRIBED.fullmatch(text.strip())
    if match is None or match[1] not in _BINDERS or not (match[2] or match[1] == "count"):
        raise OptionError(f"{text!r} is no aggregate: one such as count() or sum(offset) is wanted")
    return _Spec(match[1], match[2] or None)


def count(column: str | None = None) -> AggregateSpec:
    """How many rows, or how many values of a column that are not null."""
    return _Spec("count", column)


def sum(column: str) -> AggregateSpec:
    """The sum, null without a value.

    Whole numbers give int64 (a sum beyond is an InputError); floats give float64, the same bits in whatever order they
    came; decimals of up to 18 digits give decimals.
    """
    return _Spec("sum", column)


def avg(column: str) -> AggregateSpec:
    """The mean as float64: the exact sum, divided once."""
    return _Spec("avg", column)


def min(column: str) -> AggregateSpec:
    """The lowest value, of any type that has an order."""
    return _Spec("min", column)


def max(column: str) -> AggregateSpec:
    """The highest value; NaN is above every number."""
    return _Spec("max", column)


def first(column: str) -> AggregateSpec:
    """The value of the row with the lowest event time, a null too; see Plan.order for rows of the same time."""
    return _Spec("first", column)


def last(column: str) -> AggregateSpec:
    """The value of the row with the highest event time, a null too; see Plan.order for rows of the same time."""
    return _Spec("last", column)


def collect(column: str) -> AggregateSpec:
    """All values as a list in order of event time; state grows with the events."""
    return _Spec("collect", column)


def approx_count_distinct(column: str) -> AggregateSpec:
    """How many distinct values, with a relative standard error of 3.3 %."""
    return _Spec("approx_count_distinct", column)


def _same(accumulator: object) -> object:
    return accumulator


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A user's own aggregate over a column's values; `result` is the Arrow type of what `finish` gives.

    Without `combine` it cannot run in two stages: `single_stage=True` keeps every value and accumulates
    them in order of event time when the window is shown.
    """

    column: str
    result: pa.DataType
    create: Callable[[], object]
    accumulate: Callable[[object, object], object]
    combine: Callable[[object, object], object] | None = None
    deduct: Callable[[object, object], object] | None = None
    finish: Callable[[object], object] = _same
    single_stage: bool = False

    def __post_init__(self) -> None:
        _check_column("Aggregate", self.column)
        if not isinstance(self.result, pa.DataType):
            raise OptionError(
                f"Aggregate({self.column!r}): result={self.result!r}: an Arrow type such as pa.int64() is wanted"
            )
        for name in ("create", "accumulate", "combine", "deduct", "finish"):
            function = getattr(self, name)
            if not callable(function) and (function is not None or name not in ("combine", "deduct")):
                raise OptionError(f"Aggregate({self.column!r}): {name}={function!r}: a function is wanted")

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> Kind:
        """See AggregateSpec."""
        found = column_type(schema, self.column)
        if self.single_stage:
            functions = core.Aggregate(self.create, self.accumulate, _cannot, None, self.finish)
            kept = _collect(self.column, found, tuple(column_type(schema, name) for name in order))
            return Kept(kept.value, kept.order, functions, self.result)
        if self.combine is None:
            raise OptionError(
                f"the aggregate over {self.column!r} has no combine function, so it cannot run in two stages: give it "
                "one, or ask for single_stage=True, which keeps every value until the window is shown"
            )
        functions = core.Aggregate(self.create, self.accumulate, self.combine, self.deduct, self.finish)
        return Combined(functions, self.result)

    def describe(self) -> str:
        """The functions by name: two processes must agree on it."""
        functions = (self.create, self.accumulate, self.combine, self.deduct, self.finish)
        names = ", ".join(getattr(function, "__qualname__", "none") for function in functions)
        return f"Aggregate({self.column}: {names}; {self.single_stage})"


def check_aggregate(name: str, spec: object) -> None:
    """Raise OptionError unless the result column `name` is given an aggregate of this module."""
    if not isinstance(spec, (_Spec, Aggregate)):
        raise OptionError(
            f"the result column {name!r} is given {spec!r}: an aggregate of keyedwm.spark is wanted, such as count()"
        )


def _check_column(function: str, column: object) -> None:
    if not isinstance(column, str):
        raise OptionError(f"{function}({column!r}): the name of a column is wanted, as text")


def _cannot(_one: object, _other: object) -> object:
    raise OptionError("a single-stage aggregate combines nothing")


def _approx_count_distinct(name: str, found: pa.DataType, _order: tuple[pa.DataType, ...]) -> Kind:
    if not is_sortable(found):
        raise OptionError(
            f"approx_count_distinct({name}) needs plain values, not {found}; take its parts, or a text of it"
        )
    return ApproximateDistinct()


def _sum(name: str, found: pa.DataType, _order: tuple[pa.DataType, ...]) -> Kind:
    if pa.types.is_integer(found) and not pa.types.is_uint64(found):
        return IntegerSum(name)
    if pa.types.is_floating(found):
        return ExactSum()
    if pa.types.is_decimal(found) and found.precision <= 18 and found.scale >= 0:
        return DecimalSum(name, found.scale)
    raise OptionError(f"sum({name}) needs numbers (decimals of up to 18 digits), not {found}; cast the column")


def _avg(name: str, found: pa.DataType, _order: tuple[pa.DataType, ...]) -> Kind:
    if pa.types.is_integer(found) and not pa.types.is_uint64(found):
        return IntegerAverage(name)
    if pa.types.is_floating(found):
        return ExactAverage()
    raise OptionError(f"avg({name}) needs whole numbers or floats, not {found}; cast the column to double")


def _edge(name: str, found: pa.DataType, order: tuple[pa.DataType, ...], *, is_last: bool) -> Kind:
    _check_ties(name, found, order)
    return Edge(found, order, is_last)


def _collect(name: str, found: pa.DataType, order: tuple[pa.DataType, ...]) -> Collect:
    _check_ties(name, found, order)
    return Collect(found, order)


def _check_ties(name: str, found: pa.DataType, order: tuple[pa.DataType, ...]) -> None:
    if not is_sortable(found) and not order:
        raise OptionError(
            f"values of {name!r} are of type {found}, which has no order, so rows of the same event time need order "
            "columns (for example topic, partition, offset)"
        )


_BINDERS: dict[str, Callable[[str, pa.DataType, tuple[pa.DataType, ...]], Kind]] = {
    "count": lambda name, _found, _order: ValueCount(name),
    "sum": _sum,
    "avg": _avg,
    "min": lambda name, found, _order: extreme(name, found, highest=False),
    "max": lambda name, found, _order: extreme(name, found, highest=True),
    "first": lambda name, found, order: _edge(name, found, order, is_last=False),
    "last": lambda name, found, order: _edge(name, found, order, is_last=True),
    "collect": _collect,
    "approx_count_distinct": _approx_count_distinct,
}
