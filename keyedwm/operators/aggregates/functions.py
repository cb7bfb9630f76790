# ruff: noqa: A001  the names are those of Spark's functions
"""The aggregates a user can ask for.

Rule: an aggregate is a value that names its input column. The column's type decides how it is computed; an unsupported
type is refused. Nulls are ignored, except by first and last; so several inputs can be aggregated together as a union of
their rows in which the other inputs' columns are null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import contiguous
from keyedwm.config.validation import number, settle
from keyedwm.core import aggregate as core
from keyedwm.core.errors import OptionError
from keyedwm.expressions.condition import Condition, columns_named
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, column_type
from keyedwm.operators.aggregates.binders import BINDERS, PAIRED, collect_of, quantile_of
from keyedwm.operators.aggregates.fingerprint import fingerprint
from keyedwm.operators.aggregates.sums import RowCount, ValueCount
from keyedwm.operators.aggregates.user_defined import CombinableAggregate, SingleStageAggregate

_DESCRIBED = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


class AggregateSpec(Protocol):
    """An aggregate as the user wrote it."""

    def inputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the input columns, among those that the rows have; those of `where=` last."""

    def values_of(self, batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Array | None:
        """Return the values that the function takes, None if it takes none; schema: the plan's."""

    def no_values(self, schema: pa.Schema, count: int) -> pa.Array | None:
        """Return so many nulls in place of values."""

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> AggregateFunction:
        """Return the function for the column's type; raise OptionError if there is no such column or function."""

    def describe(self) -> str:
        """Return a text for the plan's digest and for messages."""


@dataclass(frozen=True, slots=True)
class _Spec:
    """A built-in aggregate, by the name of its function.

    second: a further input column. argument: a number that the function takes. where: the text of a condition.
    """

    function: str
    column: str | None = None
    second: str | None = None
    argument: float | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.function != "count" or self.column is not None:
            _check_column(self.function, self.column)
        if self.function in PAIRED:
            _check_column(self.function, self.second)
        if self.where is not None and not isinstance(self.where, str):
            raise OptionError(f"{self.function}: where={self.where!r}: the text of a condition is expected, as 'v > 0'")
        if self.where is not None and self.function in ("first", "last"):
            raise OptionError(
                f"{self.function}({self.column}): where= is for aggregates that ignore nulls, and these are values to "
                f"{self.function}: filter the rows instead, and keep their control rows"
            )

    @property
    def is_simple(self) -> bool:
        """Whether a name and a column say it all."""
        return self.second is None and self.argument is None and self.where is None

    def inputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """See AggregateSpec."""
        named = () if self.where is None else columns_named(self.where, names, self._of)
        return tuple(dict.fromkeys(one for one in (self.column, self.second, *named) if one is not None))

    def values_of(self, batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Array | None:
        """See AggregateSpec."""
        values = [contiguous(batch[name]) for name in (self.column, self.second) if name is not None]
        if self.where is None:
            return _paired(values) if values else None
        condition = _condition(self.where, schema, self._of)
        holds = pa.array(condition.holds({name: contiguous(batch[name]) for name in condition.columns[0]}))
        if not values:
            return pc.if_else(holds, pa.scalar(True), pa.scalar(None, pa.bool_()))  # noqa: FBT003  a value of Arrow
        return _paired([pc.if_else(holds, one, pa.scalar(None, one.type)) for one in values])

    def no_values(self, schema: pa.Schema, count: int) -> pa.Array | None:
        """See AggregateSpec."""
        names = [name for name in (self.column, self.second) if name is not None]
        if names:
            return _paired([pa.nulls(count, column_type(schema, name)) for name in names])
        return None if self.where is None else pa.nulls(count, pa.bool_())

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> AggregateFunction:
        """See AggregateSpec."""
        if self.where is not None:
            _condition(self.where, schema, self._of)
        if self.column is None:
            return RowCount() if self.where is None else ValueCount()
        order_types = tuple(column_type(schema, name) for name in order)
        found = column_type(schema, self.column)
        if self.second is not None:
            second = column_type(schema, self.second)
            return PAIRED[self.function](self, found, second, order_types)
        if self.argument is not None:
            return quantile_of(self.function, self.column, found, self.argument)
        return BINDERS[self.function](self.column, found, order_types)

    def describe(self) -> str:
        """Return for example `sum(price)`, or `top_n(name, price, 3) where price > 0`."""
        arguments = ", ".join(str(one) for one in (self.column, self.second, self.argument) if one is not None)
        return f"{self.function}({arguments})" + ("" if self.where is None else f" where {self.where}")

    @property
    def _of(self) -> str:
        return f"{self.function}({self.column or ''})"


def is_simple(spec: AggregateSpec) -> bool:
    """Whether the text of an aggregate says all of it, so that `aggregate_of` can make it again."""
    return isinstance(spec, _Spec) and spec.is_simple


def aggregate_of(text: str) -> AggregateSpec:
    """Return the built-in aggregate that `describe` gave this text for; raise OptionError if there is none."""
    match = _DESCRIBED.fullmatch(text.strip())
    if match is None or match[1] not in BINDERS or not (match[2] or match[1] == "count"):
        raise OptionError(f"{text!r} is no aggregate: one such as count() or sum(offset) is expected")
    return _Spec(match[1], match[2] or None)


def count(column: str | None = None, *, where: str | None = None) -> AggregateSpec:
    """The number of rows, or the number of values of a column that are not null."""
    return _Spec("count", column, where=where)


def count_if(condition: str) -> AggregateSpec:
    """The number of rows for which a condition is true, such as `"price > 10 AND shop IS NOT NULL"`."""
    if not isinstance(condition, str):
        raise OptionError(f"count_if({condition!r}): the text of a condition is expected, as 'v > 0'")
    return _Spec("count", where=condition)


def sum(column: str, *, where: str | None = None) -> AggregateSpec:
    """The sum; null if there is no value.

    Whole numbers give int64 (a sum beyond is an InputError); floats give float64, the same bits in whatever order they
    came; decimals of up to 18 digits give decimals.
    """
    return _Spec("sum", column, where=where)


def avg(column: str, *, where: str | None = None) -> AggregateSpec:
    """The mean as float64: the exact sum divided by the number of values."""
    return _Spec("avg", column, where=where)


def min(column: str, *, where: str | None = None) -> AggregateSpec:
    """The lowest value, of any type that can be sorted."""
    return _Spec("min", column, where=where)


def max(column: str, *, where: str | None = None) -> AggregateSpec:
    """The highest value; NaN is above every number."""
    return _Spec("max", column, where=where)


def first(column: str) -> AggregateSpec:
    """The value (or null) of the row with the lowest event time; see WindowPlan.order for equal times."""
    return _Spec("first", column)


def last(column: str) -> AggregateSpec:
    """The value (or null) of the row with the highest event time; see WindowPlan.order for equal times."""
    return _Spec("last", column)


def collect(column: str, *, where: str | None = None) -> AggregateSpec:
    """All values that are not null as a list in order of event time; the state grows with the events."""
    return _Spec("collect", column, where=where)


def approx_count_distinct(column: str, *, where: str | None = None) -> AggregateSpec:
    """The approximate number of distinct values, with a relative standard error of 3.3 %."""
    return _Spec("approx_count_distinct", column, where=where)


def variance(column: str, *, where: str | None = None) -> AggregateSpec:
    """The sample variance as float64; null for less than two values."""
    return _Spec("variance", column, where=where)


def stddev(column: str, *, where: str | None = None) -> AggregateSpec:
    """The sample standard deviation as float64; null for less than two values."""
    return _Spec("stddev", column, where=where)


def linear_trend(column: str, *, where: str | None = None) -> AggregateSpec:
    """By how much the values rise in a second of event time, by least squares; null without two event times."""
    return _Spec("linear_trend", column, where=where)


def median(column: str, *, where: str | None = None) -> AggregateSpec:
    """The exact median as float64, halfway between two values; the state grows with the events."""
    return _Spec("median", column, where=where)


def quantile(column: str, share: float, *, where: str | None = None) -> AggregateSpec:
    """The exact quantile as float64, as Spark's `percentile`; share: from 0 to 1. The state grows with the events."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise OptionError(f"quantile({column!r}, {share!r}): a share from 0 to 1 is expected")
    return _Spec("quantile", column, argument=float(share), where=where)


def top_n(n: int, by: str, column: str | None = None, *, where: str | None = None) -> AggregateSpec:
    """The values of `column` (else of `by`) in the n rows with the highest `by`, as a list, the highest first.

    Of rows of equal `by` the earlier event time comes first; see WindowPlan.order for equal times.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise OptionError(f"top_n({n!r}, {by!r}): a number of rows from 1 is expected")
    return _Spec("top_n", by if column is None else column, by, n, where)


def map_agg(key: str, value: str, *, where: str | None = None) -> AggregateSpec:
    """A map with the last value (or null) of each key, by event time; the state grows with the keys."""
    return _Spec("map_agg", key, value, where=where)


def _same(accumulator: object) -> object:
    return accumulator


_FUNCTIONS = ("create", "accumulate", "combine", "deduct", "finish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A user's own aggregate over the values of a column; `result` is the Arrow type of what `finish` returns.

    Without `combine` it cannot run in two stages: `single_stage=True` keeps every value and accumulates
    the values in order of event time when the window is emitted. `deduct` is used for accumulators of whole numbers,
    texts and collections of those; others, such as floats, are combined anew for each window, as rounding cannot be
    undone. version: to be raised when the functions compute something else, so that accumulators of the functions
    before are refused.
    """

    column: str
    result: pa.DataType
    create: Callable[[], object]
    accumulate: Callable[[object, object], object]
    combine: Callable[[object, object], object] | None = None
    deduct: Callable[[object, object], object] | None = None
    finish: Callable[[object], object] = _same
    single_stage: bool = False
    version: int = 1

    def __post_init__(self) -> None:
        _check_column("Aggregate", self.column)
        settle(self, version=version_of(f"Aggregate({self.column!r})", self.version))
        if not isinstance(self.result, pa.DataType):
            raise OptionError(
                f"Aggregate({self.column!r}): result={self.result!r}: an Arrow type such as pa.int64() is expected"
            )
        for name in _FUNCTIONS:
            function = getattr(self, name)
            if not callable(function) and (function is not None or name not in ("combine", "deduct")):
                raise OptionError(f"Aggregate({self.column!r}): {name}={function!r}: a function is expected")

    def inputs(self, _names: Sequence[str]) -> tuple[str, ...]:
        """See AggregateSpec."""
        return (self.column,)

    def values_of(self, batch: pa.RecordBatch | pa.Table, _schema: pa.Schema) -> pa.Array | None:
        """See AggregateSpec."""
        return contiguous(batch[self.column])

    def no_values(self, schema: pa.Schema, count: int) -> pa.Array | None:
        """See AggregateSpec."""
        return pa.nulls(count, column_type(schema, self.column))

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> AggregateFunction:
        """See AggregateSpec."""
        found = column_type(schema, self.column)
        if self.single_stage:
            functions = core.AccumulatorFunctions(self.create, self.accumulate, _cannot, None, self.finish)
            kept = collect_of(self.column, found, tuple(column_type(schema, name) for name in order))
            return SingleStageAggregate(kept.value, kept.order, functions, self.result)
        if self.combine is None:
            raise OptionError(
                f"the aggregate over {self.column!r} has no combine function, so it cannot run in two stages: give it "
                "one, or ask for single_stage=True, which keeps every value until the window is emitted"
            )
        functions = core.AccumulatorFunctions(self.create, self.accumulate, self.combine, self.deduct, self.finish)
        return CombinableAggregate(functions, self.result)

    def describe(self) -> str:
        """See AggregateSpec."""
        return f"Aggregate({self.column}: version {self.version}; {self.result}; {self.single_stage})"

    def describe_by_code(self) -> str:
        """Return the text that keyedwm 0.2.0 put into its plan's digest; raise ValueError where it refused one."""
        arguments = [
            f"{name} {fingerprint(function)}" for name in _FUNCTIONS if (function := getattr(self, name)) is not None
        ]
        return f"Aggregate({self.column}: {', '.join(arguments)}; {self.result}; {self.single_stage})"


def described_by_code(spec: AggregateSpec) -> str:
    """Return the text of an aggregate in the digests of keyedwm 0.2.0; see `Aggregate.describe_by_code`."""
    return spec.describe_by_code() if isinstance(spec, Aggregate) else spec.describe()


def version_of(called: str, version: object) -> int:
    """Return the version of a user's functions; raise OptionError unless it is a whole number of at least 1."""
    found = number(f"{called}: version", version)
    if found < 1:
        raise OptionError(f"{called}: version is {found}, a whole number of at least 1 is expected")
    return found


def check_aggregate(name: str, spec: object) -> None:
    """Raise OptionError unless the result column `name` is given an aggregate of this module."""
    if not isinstance(spec, (_Spec, Aggregate)):
        raise OptionError(
            f"the result column {name!r} is given {spec!r}: an aggregate of keyedwm.spark is expected, such as count()"
        )


@lru_cache(maxsize=64)
def _condition(text: str, schema: pa.Schema, of: str) -> Condition:
    return Condition.parse(text, ("", schema), of=of)


def _paired(values: Sequence[pa.Array]) -> pa.Array:
    """Return one column as it is, two as a struct of both."""
    if len(values) == 1:
        return values[0]
    return pa.StructArray.from_arrays(list(values), names=[str(place) for place in range(len(values))])


def _check_column(function: str, column: object) -> None:
    if not isinstance(column, str):
        raise OptionError(f"{function}({column!r}): the name of a column is expected, as text")


def _cannot(_one: object, _other: object) -> object:
    raise OptionError("a single-stage aggregate has no accumulators to combine")
