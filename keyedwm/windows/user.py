# ruff: noqa: ARG002  an aggregate is given what every aggregate is given
"""A user's own aggregate: accumulators are Python values, pickled into one column.

Rule: its functions are called once per value that is not null and once per combination; they change no argument, and
`combine` is associative and does not care for order. Results are converted to the declared type, never guessed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.core.aggregate import Aggregate
from keyedwm.windows.columns import Column, Ints
from keyedwm.windows.kinds import Groups, Kind, Rows, Spans
from keyedwm.windows.lists import Collect

_ACCUMULATOR = pa.field("accumulator", pa.binary())


@dataclass(frozen=True)
class Combined(Kind):
    """Accumulators that combine, and deduct if the aggregate can."""

    functions: Aggregate
    shown: pa.DataType
    fields = (_ACCUMULATOR,)

    @property
    def result(self) -> pa.DataType:
        """As declared."""
        return self.shown

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """Every value accumulated alone."""
        return self.gather(values, rows, Groups(np.arange(len(values)), len(values)))

    def gather(self, values: pa.Array, rows: Rows, groups: Groups) -> list[Column]:
        """Every value accumulated into its group's."""
        held = [self.functions.create() for _ in range(groups.count)]
        for group, value in zip(groups.ids.tolist(), values.to_pylist(), strict=True):
            if value is not None:
                held[group] = self.functions.accumulate(held[group], value)
        return [_pickled(held)]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Combine."""
        held: list[object] = [None] * groups.count
        seen = [False] * groups.count
        for group, one in zip(groups.ids.tolist(), _unpickled(columns[0]), strict=True):
            held[group] = self.functions.combine(held[group], one) if seen[group] else one
            seen[group] = True
        return [_pickled(held)]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Deduct what leaves, or two stacks."""
        entries = list(_unpickled(columns[0]))
        runs = zip(spans.first.tolist(), spans.behind.tolist(), strict=True)
        if self.functions.deduct is None:
            return [_pickled(_by_two_stacks(entries, runs, self.functions.combine))]
        return [_pickled(_by_deduction(entries, runs, self.functions))]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """`finish`."""
        return pa.array([self.functions.finish(one) for one in _unpickled(columns[0])], self.shown)


@dataclass(frozen=True)
class Kept(Collect):
    """The single-stage form: values are kept, and accumulated in order of time when the window is shown."""

    functions: Aggregate
    shown: pa.DataType

    @property
    def result(self) -> pa.DataType:
        """As declared."""
        return self.shown

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Accumulate all values of a window, then `finish`."""
        results = []
        for values in super().finish(columns, rows).to_pylist():
            accumulator = self.functions.create()
            for value in values:
                accumulator = self.functions.accumulate(accumulator, value)
            results.append(self.functions.finish(accumulator))
        return pa.array(results, self.shown)


def _pickled(values: Iterable[object]) -> pa.Array:
    return pa.array([pickle.dumps(value, protocol=5) for value in values], pa.binary())


def _unpickled(column: pa.Array) -> Iterable[object]:
    return (pickle.loads(one) for one in column.to_pylist())  # noqa: S301  from our own partials and checkpoint


def _by_deduction(entries: list, runs: Iterable[tuple[int, int]], functions: Aggregate) -> list:
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
    """See loops.lowest_by_span."""
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
