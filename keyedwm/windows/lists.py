# ruff: noqa: ARG002  an aggregate is given what every aggregate is given
"""All values of a window as a list, without nulls.

Rule: in order of event time, then the plan's order columns, then the value, whatever the order of arrival. State and
results grow with the events: this is the one built-in aggregate that keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.windows.columns import Column, Ints
from keyedwm.windows.extremes import is_sortable
from keyedwm.windows.kinds import Groups, Kind, Rows, Spans
from keyedwm.windows.loops import sorted_by_number


@dataclass(frozen=True)
class Collect(Kind):
    """Lists of event times, order columns and values, side by side."""

    value: pa.DataType
    order: tuple[pa.DataType, ...]

    @property
    def result(self) -> pa.DataType:
        """A list of the column's type."""
        return pa.list_(self.value)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """One list column each."""
        order = (pa.field(f"order{number}", pa.list_(found)) for number, found in enumerate(self.order))
        return (pa.field("times", pa.list_(pa.int64())), *order, pa.field("values", pa.list_(self.value)))

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """Lists of one, or of none for null."""
        valid = pc.is_valid(values)
        offsets = np.append(0, np.cumsum(valid.to_numpy(zero_copy_only=False)))
        columns = [pa.array(rows.times), *rows.order, values]
        return [_lists(offsets, column.filter(valid)) for column in columns]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """One list behind the other."""
        order = sorted_by_number(groups.ids, groups.count)
        borders = np.searchsorted(groups.ids[order], np.arange(groups.count + 1))
        return _strung(columns, order, borders)

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """One list behind the other, for each window that holds them."""
        return _strung(columns, *expanded(spans))

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The values, each list in order."""
        offsets = np.append(0, np.cumsum(lengths(columns[-1])))
        decide = [column.flatten() for column in columns]
        values = decide[-1]
        decide = decide if is_sortable(self.value) else decide[:-1]
        names = [str(number) for number in range(len(decide))]
        table = pa.table(
            [pa.array(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))), *decide], ["list", *names]
        )
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in ("list", *names)])
        return _lists(offsets, values.take(order))


def lengths(lists: pa.Array) -> Ints:
    """How long each list is."""
    return pc.list_value_length(lists).to_numpy().astype(np.int64)


def expanded(spans: Spans) -> tuple[Ints, Ints]:
    """The rows of all runs behind each other, and where each run begins (and the last one ends)."""
    borders = np.append(0, np.cumsum(spans.behind - spans.first))
    rows = np.arange(borders[-1]) + np.repeat(spans.first - borders[:-1], np.diff(borders))
    return rows, borders


def _strung(columns: Sequence[pa.Array], rows: Ints, borders: Ints) -> list[Column]:
    """The lists of these rows, joined between borders."""
    offsets = np.append(0, np.cumsum(lengths(columns[0])[rows]))[borders]
    places = pa.array(rows)
    return [_lists(offsets, column.take(places).flatten()) for column in columns]


def _lists(offsets: Ints, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
