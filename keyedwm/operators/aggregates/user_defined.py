# ruff: noqa: ARG002  every aggregate function has the same signatures
"""A user's own aggregate: accumulators are Python values, pickled into one column.

Rule: its functions are called once per value that is not null and once per combination. They must not change their
arguments, and `combine` must be associative and commutative. Results are converted to the declared type.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Column, Ints
from keyedwm.core.aggregate import AccumulatorFunctions
from keyedwm.core.errors import InputError
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.kept_values import Collect

_ACCUMULATOR = pa.field("accumulator", pa.binary())


@dataclass(frozen=True)
class CombinableAggregate(AggregateFunction):
    """An aggregate whose accumulators can be combined, and deducted if it has that function."""

    functions: AccumulatorFunctions
    result_type: pa.DataType
    fields = (_ACCUMULATOR,)

    @property
    def result(self) -> pa.DataType:
        """The declared type."""
        return self.result_type

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Accumulate every value alone."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Accumulate every value into the accumulator of its group."""
        accumulators = [self.functions.create() for _ in range(groups.count)]
        for group, value in zip(groups.ids.tolist(), _as_python(values, rows), strict=True):
            if value is not None:
                accumulators[group] = self.functions.accumulate(accumulators[group], value)
        return [_pickled(accumulators)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Combine the accumulators of each group."""
        accumulators: list[object] = [None] * groups.count
        has_value = [False] * groups.count
        for group, one in zip(groups.ids.tolist(), _unpickled(columns[0]), strict=True):
            accumulators[group] = self.functions.combine(accumulators[group], one) if has_value[group] else one
            has_value[group] = True
        return [_pickled(accumulators)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Combine the accumulators of each row range: deduct rows that leave if that is exact, else use two stacks."""
        entries = list(_unpickled(columns[0]))
        runs = zip(spans.first.tolist(), spans.behind.tolist(), strict=True)
        if self.functions.deduct is None or not all(map(_is_exact, entries)):
            return [_pickled(_by_two_stacks(entries, runs, self.functions.combine))]
        return [_pickled(_by_deduction(entries, runs, self.functions))]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Call `finish` on each accumulator."""
        return pa.array([self.functions.finish(one) for one in _unpickled(columns[0])], self.result_type)


@dataclass(frozen=True)
class SingleStageAggregate(Collect):
    """The single-stage form: values are kept, and accumulated in order of event time when the window is emitted."""

    functions: AccumulatorFunctions
    result_type: pa.DataType

    @property
    def result(self) -> pa.DataType:
        """The declared type."""
        return self.result_type

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Accumulate all values of each window, then call `finish`."""
        results = []
        for values in _as_python(super().finish(columns, rows)):
            accumulator = self.functions.create()
            for value in values:
                accumulator = self.functions.accumulate(accumulator, value)
            results.append(self.functions.finish(accumulator))
        return pa.array(results, self.result_type)


def _as_python(values: pa.Array, rows: RowOrder | None = None) -> list:
    """Return values as Python objects; raise InputError for a date or an instant beyond the years 1 to 9999.

    rows: the row of each value, for errors.
    """
    try:
        return values.to_pylist()
    except (OverflowError, ValueError) as error:
        raise InputError(
            f"a user's own aggregate reads values of type {values.type}, and one{_place_of(values, rows)} lies "
            f"beyond the years 1 to 9999 of Python ({error}): filter such rows, or pass a number, such as "
            "unix_micros(column)"
        ) from error


def _place_of(values: pa.Array, rows: RowOrder | None) -> str:
    """Name the row of the first value that Python cannot hold, by its order columns."""
    if rows is None or not rows.order:
        return ""
    at = next(at for at, value in enumerate(values) if not _python_holds(value))
    return f" (of the row {', '.join(str(column[at].as_py()) for column in rows.order)})"


def _python_holds(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (OverflowError, ValueError):
        return False
    return True


def _pickled(values: Iterable[object]) -> pa.Array:
    return pa.array([pickle.dumps(value, protocol=5) for value in values], pa.binary())


def _unpickled(column: pa.Array) -> Iterable[object]:
    return (pickle.loads(one) for one in column.to_pylist())  # noqa: S301  from our own partials and checkpoint


def _is_exact(accumulator: object) -> bool:
    """Return whether `deduct` exactly undoes `combine` for its values; floats, for example, are rounded."""
    if isinstance(accumulator, Mapping):
        return all(_is_exact(key) and _is_exact(value) for key, value in accumulator.items())
    if isinstance(accumulator, (tuple, list, set, frozenset)):
        return all(map(_is_exact, accumulator))
    return accumulator is None or isinstance(accumulator, (int, Fraction, str, bytes))


def _by_deduction(entries: list, runs: Iterable[tuple[int, int]], functions: AccumulatorFunctions) -> list:
    totals = []
    low = high = 0
    total = functions.create()
    for first, behind in runs:
        if first >= high:
            low = high = first
            total = functions.create()
        for entered in entries[high:behind]:
            total = functions.combine(total, entered)
        high = behind
        for left in entries[low:first]:
            total = functions.deduct(total, left)  # type: ignore[misc]  # there is one: the caller looked
        low = first
        totals.append(total)
    return totals


def _by_two_stacks(entries: list, runs: Iterable[tuple[int, int]], combine: Callable) -> list:
    """The method is that of kernels.lowest_by_span."""
    totals = []
    suffix: dict[int, object] = {}
    border = high = 0
    back: list = []  # empty, or one accumulator
    for first, behind in runs:
        if first >= high:
            border = high = first
            back = []
        for entered in entries[high:behind]:
            back = [combine(back[0], entered) if back else entered]
        high = behind
        if first >= border:
            suffix = {high - 1: entries[high - 1]}
            for row in range(high - 2, first - 1, -1):
                suffix[row] = combine(entries[row], suffix[row + 1])
            border = high
            back = []
        totals.append(combine(suffix[first], back[0]) if back else suffix[first])
    return totals
