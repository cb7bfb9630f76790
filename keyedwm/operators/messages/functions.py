"""Full-state aggregates: functions of all messages of a window, which no accumulator could replace.

Rule: rows come ordered by event time, topic, partition and offset, group after group, and each group has one or more.
Any other aggregate of the package works over the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Signature, signature
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Ints, contiguous, millis
from keyedwm.core.errors import InputError, OptionError
from keyedwm.core.text import error_text
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, column_type
from keyedwm.operators.aggregates.functions import version_of
from keyedwm.operators.aggregates.moments import LinearTrend
from keyedwm.operators.aggregates.spec import AggregateSpec
from keyedwm.operators.grouping import ranges


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The messages of one window, key after key: group i is `rows[borders[i]:borders[i + 1]]`. at: their places."""

    rows: pa.Table
    at: Ints
    borders: Ints

    @classmethod
    def of_spans(cls, rows: pa.Table, at: Ints, first: Ints, sizes: Ints) -> WindowRows:
        """Return a group for each span of messages. first: its first row. sizes: its number of messages."""
        places = ranges(first, sizes)
        return cls(rows.take(pa.array(places)), at[places], np.append(0, np.cumsum(sizes)))


class FullState(Protocol):
    """A function of all messages of a window and key."""

    @property
    def result(self) -> pa.DataType:
        """The type of the result column."""

    def over(self, window: WindowRows) -> pa.Array:
        """Return one value for each group; every group has a message."""

    def of_nothing(self, count: int) -> pa.Array:
        """Return `count` values for groups without a message."""


class FullStateSpec(Protocol):
    """A full-state aggregate as the user wrote it."""

    def inputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that it names, among the messages' columns."""

    def over_messages(self, schema: pa.Schema) -> FullState:
        """Return the function for the messages' columns; raise OptionError if they do not fit."""

    def describe(self) -> str:
        """Return a text for the plan's digest."""


@dataclass(frozen=True, slots=True)
class QuantileSpec:
    """The value below which the share `q` of a column's values lies, interpolated between two neighbours; no nulls."""

    column: str
    q: float

    def __post_init__(self) -> None:
        if isinstance(self.q, bool) or not isinstance(self.q, (int, float)) or not 0 <= self.q <= 1:
            raise OptionError(f"quantile({self.column!r}, {self.q!r}): a share from 0 to 1 is expected")

    def inputs(self, _names: Sequence[str]) -> tuple[str, ...]:
        """Return the name of the column."""
        return (self.column,)

    def over_messages(self, schema: pa.Schema) -> FullState:
        """Return the function for this column; raise OptionError unless it has whole numbers or floats."""
        kind = column_type(schema, self.column)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise OptionError(
                f"a median or quantile of {self.column!r} needs whole numbers or floats, not {kind}; cast the column"
            )
        return _QuantileState(self.column, self.q)

    def describe(self) -> str:
        """Return the column and the share, for the digest of the plan."""
        return f"quantile({self.column}, {self.q})"


def quantile(column: str, q: float) -> QuantileSpec:
    """The exact quantile of a column as float64, null if there is no value."""
    return QuantileSpec(column, q)


def median(column: str) -> QuantileSpec:
    """The exact median of a column as float64, null if there is no value."""
    return QuantileSpec(column, 0.5)


@dataclass(frozen=True, slots=True)
class _QuantileState:
    column: str
    q: float
    result = pa.float64()

    def over(self, window: WindowRows) -> pa.Array:
        """Sort the values of all groups together; nulls follow each group's values."""
        values = contiguous(window.rows[self.column])
        numbers = contiguous(pc.cast(values, pa.float64(), safe=False)).to_numpy(zero_copy_only=False)
        ids = np.repeat(np.arange(len(window.borders) - 1), np.diff(window.borders))
        missing = values.is_null().to_numpy(zero_copy_only=False)
        numbers = numbers[np.lexsort((numbers, missing, ids))]
        counts = np.bincount(ids[~missing], minlength=len(window.borders) - 1)
        place = window.borders[:-1] + self.q * np.maximum(counts - 1, 0)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, window.borders[:-1] + np.maximum(counts - 1, 0))
        share = place - low
        quantiles = np.where(share == 0, numbers[low], numbers[low] * (1 - share) + numbers[high] * share)
        return pa.array(quantiles, mask=counts == 0)

    def of_nothing(self, count: int) -> pa.Array:
        """Return `count` nulls."""
        return pa.nulls(count, self.result)


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """A user's function of a window's messages: it gets an Arrow table of them, and returns one value."""

    function: Callable[[pa.Table], Any]
    result: pa.DataType
    version: int = 1

    def inputs(self, _names: Sequence[str]) -> tuple[str, ...]:
        """Return no columns: the function reads the whole table."""
        return ()

    def over_messages(self, _schema: pa.Schema) -> FullState:
        """Return this function: it fits every schema."""
        return self

    def over(self, window: WindowRows) -> pa.Array:
        """Call the function once for each group."""
        values = [self._value(table) for table in _tables(window)]
        fraction = next((one for one in values if _is_cut(one, self.result)), None)
        if fraction is not None:
            raise InputError(
                f"{self._no_such} {fraction!r:.80} has a fraction, so round it, or take a type for fractions"
            )
        try:
            return pa.array(values, self.result)
        except Exception as error:  # Arrow passes on an error that a user's value raises when it is read
            raise InputError(f"{self._no_such} {error_text(error)}") from error

    def _value(self, table: pa.Table) -> object:
        try:
            return self.function(table)
        except Exception as error:  # whatever the user's code raises
            raise InputError(f"the window_function {self._called} raised {error_text(error)}") from error

    @property
    def _called(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def _no_such(self) -> str:
        return f"the window_function {self._called} returned what is no {self.result}:"

    def of_nothing(self, count: int) -> pa.Array:
        """Return nulls: a function is not called for a table without rows."""
        return pa.nulls(count, self.result)

    def describe(self) -> str:
        """Return the version and the result type, for the digest of the plan."""
        return f"window_function(version {self.version}; {self.result})"


def window_function(function: Callable[[pa.Table], Any], result: pa.DataType, version: int = 1) -> WindowFunction:
    """A user's own aggregate: `function` is called with the Arrow table of each window. result: the value's Arrow type.

    version: raise it when the function computes something else; state of another version is rejected with an error.
    """
    if not callable(function):
        raise OptionError(f"window_function: function={function!r}: a function of a window's Arrow table is expected")
    if not isinstance(result, pa.DataType):
        raise OptionError(
            f"window_function: result={result!r}: the Arrow type of one value is expected, such as pa.float64()"
        )
    _check_takes_one(function)
    return WindowFunction(function, result, version_of("window_function", version))


def _check_takes_one(function: Callable) -> None:
    """Raise OptionError for a function that cannot be called with a table alone, if it has a signature to check."""
    try:
        parameters: Signature = signature(function)
    except (TypeError, ValueError):
        return
    try:
        parameters.bind(None)
    except TypeError as error:
        called = getattr(function, "__name__", type(function).__name__)
        raise OptionError(
            f"window_function: {called}{parameters} cannot be called with one argument ({error}): a function of a "
            "window's Arrow table is expected"
        ) from error


def _is_cut(value: object, kind: pa.DataType) -> bool:
    """Whether a value has a fraction, which Arrow would silently cut off for a type of whole numbers."""
    if pa.types.is_integer(kind):
        return isinstance(value, (float, np.floating)) and not value.is_integer()
    if pa.types.is_list(kind) and isinstance(value, (list, tuple, np.ndarray)):
        return any(_is_cut(one, kind.value_type) for one in value)
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return any(_is_cut(value.get(one.name), one.type) for one in kind)
    return False


@dataclass(frozen=True, slots=True)
class _Recomputed:
    """An aggregate of the package, computed over all messages for each pane."""

    spec: AggregateSpec
    function: AggregateFunction
    schema: pa.Schema
    order: tuple[str, ...]
    time: str | None

    @property
    def result(self) -> pa.DataType:
        """The type of the result column."""
        return self.function.result

    def over(self, window: WindowRows) -> pa.Array:
        """Return the aggregate of each group."""
        count = len(window.borders) - 1
        rows = np.diff(window.borders)
        values, at = self.spec.values_of(window.rows, self.schema), window.at
        if self.time is not None and isinstance(self.function, LinearTrend):
            values, at = _with_times(values, contiguous(window.rows[self.time]))
        order = RowOrder(at, tuple(contiguous(window.rows[name]) for name in self.order))
        groups = Groups(np.repeat(np.arange(count), rows), count)
        return self.function.finish(self.function.gather(values, order, groups), rows)

    def of_nothing(self, count: int) -> pa.Array:
        """Return `count` results of the aggregate over no rows."""
        order = tuple(pa.nulls(count, self.schema.field(name).type) for name in self.order)
        rows, groups = RowOrder(np.zeros(count, np.int64), order), Groups(np.arange(count), count)
        accumulators = self.function.gather(self.spec.no_values(self.schema, count), rows, groups)
        return self.function.finish(accumulators, np.zeros(count, np.int64))


def _with_times(values: pa.Array, times: pa.Array) -> tuple[pa.Array, Ints]:
    """Return values with their event times in ms; null for rows without an event time."""
    there = times.is_valid()
    epoch = pa.scalar(0, pa.int64()).cast(times.type)
    return pc.if_else(there, values, pa.scalar(None, values.type)), millis(pc.fill_null(times, epoch))


def bound(
    spec: AggregateSpec | FullStateSpec, schema: pa.Schema, order: Sequence[str], time: str | None = None
) -> FullState:
    """Return the function of an aggregate; order: the columns that order rows of equal event time.

    time: the column of event times, if messages are ordered by offset.
    """
    if hasattr(spec, "over_messages"):
        return spec.over_messages(schema)
    if not hasattr(spec, "bind"):
        raise OptionError(f"{spec!r} is no aggregate: one such as count(), median(c) or window_function(f, type) is")
    return _Recomputed(spec, spec.bind(schema, tuple(order)), schema, tuple(order), time)


def _tables(window: WindowRows) -> Iterator[pa.Table]:
    for first, behind in zip(window.borders[:-1].tolist(), window.borders[1:].tolist(), strict=True):
        yield window.rows.slice(first, behind - first)


def computed(name: str, function: FullState, window: WindowRows) -> pa.Array:
    """Return the result column of one aggregate; raise InputError if it is not one value for each group."""
    some = np.diff(window.borders) > 0
    borders = np.append(window.borders[:-1][some], window.borders[-1])
    values = function.over(WindowRows(window.rows, window.at, borders)) if some.any() else function.of_nothing(0)
    if len(values) != some.sum():
        raise InputError(f"the aggregate {name!r} gave {len(values)} values for {some.sum()} windows")
    if some.all():
        return values
    value_places = np.cumsum(some) - 1
    return pa.concat_arrays([values, function.of_nothing(1)]).take(pa.array(np.where(some, value_places, len(values))))
