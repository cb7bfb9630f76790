# ruff: noqa: ARG002  every aggregate function has the same signatures
"""The first and the last value of a window.

Rule: rows are ordered by event time, then by the plan's order columns, then by the value itself (nulls last), so the
order of arrival never matters. Apart from that, a null is a value like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints, number, take, to_arrow
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.extremes import is_sortable
from keyedwm.operators.kernels import lowest_by_group


@dataclass(frozen=True)
class FirstOrLast(AggregateFunction):
    """The value of the first or last row, with the columns that rows are ordered by."""

    found: pa.DataType
    order: tuple[pa.DataType, ...]
    is_last: bool

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.found

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The event time, the order columns and the value."""
        order = (pa.field(f"order{number}", found) for number, found in enumerate(self.order))
        return (number("time"), *order, pa.field("value", self.result))

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return the rows themselves."""
        return [rows.times, *rows.order, values]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Return the first or last row of each group; only rows of equal event time are compared by other columns."""
        times = ~columns[0] if self.is_last else columns[0]
        edge = lowest_by_group(times, groups.ids, groups.count)
        rows = np.flatnonzero(times == edge[groups.ids])
        if len(rows) > groups.count:
            rows = self._chosen(columns, groups.ids, rows)
        by_group = np.empty(groups.count, np.int64)
        by_group[groups.ids[rows]] = rows
        return [take(column, by_group) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the first or last row of each range, which is in order of event time already."""
        places = spans.behind - 1 if self.is_last else spans.first
        return [take(column, places) for column in columns]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the values."""
        return to_arrow(columns[-1])

    def _chosen(self, columns: Sequence[Column], ids: Ints, rows: Ints) -> Ints:
        """Return the first or last row among rows of the same group and event time."""
        places = pa.array(rows)
        decide = [to_arrow(column) for column in columns[1:]]
        decide = decide if is_sortable(self.result) else decide[:-1]
        names = [str(number) for number in range(len(decide))]
        table = pa.table([pa.array(ids[rows]), *(column.take(places) for column in decide)], names=["group", *names])
        direction = "descending" if self.is_last else "ascending"
        keys = [("group", "ascending"), *((name, direction) for name in names)]
        order = pc.sort_indices(table, sort_keys=keys).to_numpy()
        _, first = np.unique(ids[rows][order], return_index=True)
        return rows[order][first]
