# ruff: noqa: ARG002  an aggregate is given what every aggregate is given
"""The first and the last value of a window.

Rule: by event time; rows of the same time by the plan's order columns, then by the value itself (null only if there
is nothing else), so it never matters which row came first. Otherwise a null is a value like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.windows.columns import Column, Ints, number, take, to_arrow
from keyedwm.windows.extremes import is_sortable
from keyedwm.windows.kinds import Groups, Kind, Rows, Spans
from keyedwm.windows.loops import lowest_by_group


@dataclass(frozen=True)
class Edge(Kind):
    """The value at one edge of the window, with what it was chosen by."""

    found: pa.DataType
    order: tuple[pa.DataType, ...]
    is_last: bool

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.found

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Event time, order columns, value."""
        order = (pa.field(f"order{number}", found) for number, found in enumerate(self.order))
        return (number("time"), *order, pa.field("value", self.result))

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """The row itself."""
        return [rows.times, *rows.order, values]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """The row at the edge: only rows of the same time are compared any further."""
        times = ~columns[0] if self.is_last else columns[0]
        edge = lowest_by_group(times, groups.ids, groups.count)
        rows = np.flatnonzero(times == edge[groups.ids])
        if len(rows) > groups.count:
            rows = self._chosen(columns, groups.ids, rows)
        by_group = np.empty(groups.count, np.int64)
        by_group[groups.ids[rows]] = rows
        return [take(column, by_group) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Rows stand in order of time already."""
        places = spans.behind - 1 if self.is_last else spans.first
        return [take(column, places) for column in columns]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The values."""
        return to_arrow(columns[-1])

    def _chosen(self, columns: Sequence[Column], ids: Ints, rows: Ints) -> Ints:
        """Of rows of the same group and time the one at the edge."""
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
