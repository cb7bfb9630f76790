"""Shared by aggregates that keep values: accumulators that are parallel lists, concatenated and sorted.

Rule: lists are put into order when they are read, by event time, order columns and value, so the order of arrival never
matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.columns import Column, Ints, contiguous
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, Spans
from keyedwm.operators.kernels import sorted_by_number


class ListAggregate(AggregateFunction):
    """Accumulators are parallel lists, which are concatenated."""

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Concatenate the lists of each group."""
        order = sorted_by_number(groups.ids, groups.count)
        borders = np.searchsorted(groups.ids[order], np.arange(groups.count + 1))
        return self.kept(concatenated(columns, order, borders))

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Concatenate the lists of each row range."""
        return self.kept(concatenated(columns, *expanded(spans)))

    def kept(self, columns: list[Column]) -> list[Column]:
        """Return what of concatenated lists has to be kept."""
        return columns


def ordered_fields(order: Sequence[pa.DataType], value: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields of lists of event times, order columns and values."""
    columns = (pa.field(f"order{number}", pa.list_(found)) for number, found in enumerate(order))
    return (pa.field("times", pa.list_(pa.int64())), *columns, pa.field("values", pa.list_(value)))


def single(columns: Sequence[pa.Array], valid: pa.Array) -> list[Column]:
    """Return lists of one element, empty ones where it is not valid."""
    offsets = np.append(0, np.cumsum(contiguous(valid).to_numpy(zero_copy_only=False)))
    return [lists(offsets, column.filter(valid)) for column in columns]


def order_within(owner: Ints, decide: Sequence[pa.Array], first: str = "ascending") -> Ints:
    """Return the order of values: by list, then by the columns that decide, of which the first may be `descending`."""
    names = [str(number) for number in range(len(decide))]
    table = pa.table([pa.array(owner), *decide], ["list", *names])
    ways = [first, *["ascending"] * (len(names) - 1)]
    keys = [("list", "ascending"), *zip(names, ways, strict=True)]
    return pc.sort_indices(table, sort_keys=keys).to_numpy()


def lengths(lists: pa.Array) -> Ints:
    """Return the length of each list."""
    return pc.list_value_length(lists).to_numpy().astype(np.int64)


def sorted_distinct(numbers: NDArray) -> NDArray:
    """Return each number once, in order; `np.unique` hashes first, which takes ten times as long for distinct ones."""
    ordered = np.sort(numbers)
    return ordered[np.append(np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1])]


def expanded(spans: Spans) -> tuple[Ints, Ints]:
    """Return the rows of all ranges, concatenated, and the offset of each range (and of the end)."""
    borders = np.append(0, np.cumsum(spans.behind - spans.first))
    rows = np.arange(borders[-1]) + np.repeat(spans.first - borders[:-1], np.diff(borders))
    return rows, borders


def concatenated(columns: Sequence[pa.Array], rows: Ints, borders: Ints) -> list[Column]:
    """Return the lists of these rows, concatenated between borders of the rows."""
    offsets = np.append(0, np.cumsum(lengths(columns[0])[rows]))[borders]
    places = pa.array(rows)
    return [lists(offsets, column.take(places).flatten()) for column in columns]


def lists(offsets: Ints, values: pa.Array) -> pa.Array:
    """Return the lists of values between offsets."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
