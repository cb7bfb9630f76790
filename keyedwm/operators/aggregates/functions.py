# ruff: noqa: A001  the names are those of Spark's functions
"""The aggregates a user can ask for.

Rule: an aggregate is a value that names its input column. The column's type decides how it is computed; an unsupported
type is rejected with an error. Nulls are ignored, except by first and last; so several inputs can be aggregated
together as a union of their rows in which the other inputs' columns are null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from keyedwm.arrow.columns import contiguous
from keyedwm.config.validation import number, set_fields
from keyedwm.core import aggregate as core
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, column_type
from keyedwm.operators.aggregates.binders import DEFAULT_SIZES, collect_of
from keyedwm.operators.aggregates.spec import AggregateSpec, Spec, check_column
from keyedwm.operators.aggregates.user_defined import CombinableAggregate, SingleStageAggregate


def count(column: str | None = None, *, where: str | None = None) -> AggregateSpec:
    """The number of rows, or the number of values of a column that are not null."""
    return Spec("count", column, where=where)


def count_if(condition: str) -> AggregateSpec:
    """The number of rows for which a condition is true, such as `"price > 10 AND shop IS NOT NULL"`."""
    if not isinstance(condition, str):
        raise OptionError(f"count_if({condition!r}): the text of a condition is expected, as 'v > 0'")
    return Spec("count", where=condition)


def sum(column: str, *, where: str | None = None) -> AggregateSpec:
    """The sum; null if there is no value.

    Whole numbers give int64 (a larger sum raises InputError); floats give float64, the same bits in each order of rows;
    decimals of up to 18 digits give decimals.
    """
    return Spec("sum", column, where=where)


def avg(column: str, *, where: str | None = None) -> AggregateSpec:
    """The mean as float64: the exact sum divided by the number of values."""
    return Spec("avg", column, where=where)


def min(column: str, *, where: str | None = None) -> AggregateSpec:
    """The lowest value, of any type that can be sorted."""
    return Spec("min", column, where=where)


def max(column: str, *, where: str | None = None) -> AggregateSpec:
    """The highest value; NaN is above every number."""
    return Spec("max", column, where=where)


def first(column: str) -> AggregateSpec:
    """The value (or null) of the row with the lowest event time; see WindowPlan.order for equal times."""
    return Spec("first", column)


def last(column: str) -> AggregateSpec:
    """The value (or null) of the row with the highest event time; see WindowPlan.order for equal times."""
    return Spec("last", column)


def collect(column: str, *, where: str | None = None) -> AggregateSpec:
    """All values that are not null as a list in order of event time; the state grows with the events."""
    return Spec("collect", column, where=where)


def approx_count_distinct(column: str, *, where: str | None = None) -> AggregateSpec:
    """The approximate number of distinct values, with a relative standard error of 3.3 %."""
    return Spec("approx_count_distinct", column, where=where)


def variance(column: str, *, where: str | None = None) -> AggregateSpec:
    """The sample variance as float64; null for less than two values."""
    return Spec("variance", column, where=where)


def stddev(column: str, *, where: str | None = None) -> AggregateSpec:
    """The sample standard deviation as float64; null for less than two values."""
    return Spec("stddev", column, where=where)


def linear_trend(column: str, *, where: str | None = None) -> AggregateSpec:
    """The rise of the values per second of event time, by least squares; null without two event times."""
    return Spec("linear_trend", column, where=where)


def median(column: str, *, where: str | None = None) -> AggregateSpec:
    """The exact median as float64, halfway between two values; the state grows with the events."""
    return Spec("median", column, where=where)


def quantile(column: str, share: float, *, where: str | None = None) -> AggregateSpec:
    """The exact quantile as float64, as Spark's `percentile`; share: from 0 to 1. The state grows with the events."""
    return Spec("quantile", column, argument=_share("quantile", column, share), where=where)


def approx_quantile(column: str, share: float, *, where: str | None = None) -> AggregateSpec:
    """A quantile as float64, as Spark's `approx_percentile`; share: from 0 to 1. The state is 32 KiB at most.

    Exact for up to 2,048 distinct values; beyond, the value at the exact rank is rounded: by less than n/2048 of itself
    if the values span n powers of two.
    """
    return Spec("approx_quantile", column, argument=_share("approx_quantile", column, share), where=where)


def hll_sketch(column: str, lg_k: int = 12, *, where: str | None = None) -> AggregateSpec:
    """An HLL sketch of the distinct values, as Spark's `hll_sketch_agg`; 2**lg_k: its registers, lg_k from 4 to 21."""
    return _sketch("hll_sketch", column, lg_k, (4, 21), where)


def theta_sketch(column: str, lg_k: int = 12, *, where: str | None = None) -> AggregateSpec:
    """A theta sketch of the distinct values, as Spark's `theta_sketch_agg`; 2**lg_k: its hashes, lg_k from 5 to 26."""
    return _sketch("theta_sketch", column, lg_k, (5, 26), where)


def kll_sketch(column: str, k: int = 200, *, where: str | None = None) -> AggregateSpec:
    """A KLL sketch of the values as doubles, as Spark's `kll_sketch_agg_double`; k: the accuracy, 8 to 65535.

    Values are those of `approx_quantile`; a rank is off by at most 1/k.
    """
    return _sketch("kll_sketch", column, k, (8, 65_535), where)


def top_n(n: int, by: str, column: str | None = None, *, where: str | None = None) -> AggregateSpec:
    """The values of `column` (without it, of `by`) in the n rows with the highest `by`, as a list, the highest first.

    If `by` is equal, the earlier event time comes first; see WindowPlan.order for equal times.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise OptionError(f"top_n({n!r}, {by!r}): a number of rows from 1 is expected")
    return Spec("top_n", by if column is None else column, by, n, where)


def map_agg(key: str, value: str, *, where: str | None = None) -> AggregateSpec:
    """A map with the last value (or null) of each key, by event time; the state grows with the keys."""
    return Spec("map_agg", key, value, where=where)


def _share(function: str, column: str, share: object) -> float:
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise OptionError(f"{function}({column!r}, {share!r}): a share from 0 to 1 is expected")
    return float(share)


def _sketch(function: str, column: str, size: object, among: tuple[int, int], where: str | None) -> AggregateSpec:
    lowest, highest = among
    if isinstance(size, bool) or not isinstance(size, int) or not lowest <= size <= highest:
        called = "k" if function == "kll_sketch" else "lg_k"
        raise OptionError(
            f"{function}({column!r}): {called}={size!r}: a whole number of {lowest} to {highest} is expected"
        )
    # The text has no number for the default size, so it can be used over a source that is not loaded.
    return Spec(function, column, argument=None if size == DEFAULT_SIZES[function] else size, where=where)


def _same(accumulator: object) -> object:
    return accumulator


FUNCTIONS = ("create", "accumulate", "combine", "deduct", "finish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A user's own aggregate over the values of a column; `result` is the Arrow type of what `finish` returns.

    Without `combine` it cannot run in two stages: `single_stage=True` keeps every value and accumulates the values in
    order of event time when the window is emitted. `deduct` is used for accumulators of whole numbers, texts and
    collections of them. Other accumulators, such as floats, are combined for each window, as rounding cannot be undone.
    version: raise it when the functions compute something else; older accumulators are then rejected with an error.
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
        check_column("Aggregate", self.column)
        set_fields(self, version=version_of(f"Aggregate({self.column!r})", self.version))
        if not isinstance(self.result, pa.DataType):
            raise OptionError(
                f"Aggregate({self.column!r}): result={self.result!r}: an Arrow type such as pa.int64() is expected"
            )
        for name in FUNCTIONS:
            function = getattr(self, name)
            if not callable(function) and (function is not None or name not in ("combine", "deduct")):
                raise OptionError(f"Aggregate({self.column!r}): {name}={function!r}: a function is expected")

    def inputs(self, _names: Sequence[str]) -> tuple[str, ...]:
        """Return the name of the column."""
        return (self.column,)

    def values_of(self, batch: pa.RecordBatch | pa.Table, _schema: pa.Schema) -> pa.Array | None:
        """Return the values of the column."""
        return contiguous(batch[self.column])

    def no_values(self, schema: pa.Schema, count: int) -> pa.Array | None:
        """Return `count` nulls of the column's type."""
        return pa.nulls(count, column_type(schema, self.column))

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> AggregateFunction:
        """Return the function for the column's type; raise OptionError if it cannot run in two stages."""
        value_type = column_type(schema, self.column)
        if self.single_stage:
            functions = core.AccumulatorFunctions(self.create, self.accumulate, _cannot, None, self.finish)
            collected = collect_of(self.column, value_type, tuple(column_type(schema, name) for name in order))
            return SingleStageAggregate(collected.value, collected.order, functions, self.result)
        if self.combine is None:
            raise OptionError(
                f"the aggregate over {self.column!r} has no combine function, so it cannot run in two stages: give it "
                "one, or ask for single_stage=True, which keeps every value until the window is emitted"
            )
        functions = core.AccumulatorFunctions(self.create, self.accumulate, self.combine, self.deduct, self.finish)
        return CombinableAggregate(functions, self.result)

    def describe(self) -> str:
        """Return the column, the version and the result type, for the plan's digest."""
        return f"Aggregate({self.column}: version {self.version}; {self.result}; {self.single_stage})"


def version_of(called: str, version: object) -> int:
    """Return the version of a user's functions; raise OptionError unless it is a whole number of at least 1."""
    checked_version = number(f"{called}: version", version)
    if checked_version < 1:
        raise OptionError(f"{called}: version is {checked_version}, a whole number of at least 1 is expected")
    return checked_version


def check_aggregate(name: str, spec: object) -> None:
    """Raise OptionError unless `spec`, given for the result column `name`, is an aggregate of this module."""
    if not isinstance(spec, (Spec, Aggregate)):
        raise OptionError(
            f"the result column {name!r} is given {spec!r}: an aggregate of keyedwm.spark is expected, such as count()"
        )


def _cannot(_one: object, _other: object) -> object:
    raise OptionError("a single-stage aggregate has no accumulators to combine")
