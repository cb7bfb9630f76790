# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Aggregates that keep values: all of them as a list, quantiles, the highest few, and maps.

Rule: an accumulator is parallel lists. They are sorted when they are read: by event time, then by the plan's order
columns, then by the value. So the order of arrival never matters. Lists, quantiles and maps keep every value: their
state grows with the events. A list has no nulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints, as_floats, contiguous
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.extremes import is_sortable, ordered
from keyedwm.operators.grouping import ranges
from keyedwm.operators.kernels import sorted_by_number


class ListAggregate(AggregateFunction):
    """Accumulators are parallel lists, which are concatenated."""

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Concatenate the lists of each group."""
        order = sorted_by_number(groups.ids, groups.count)
        borders = np.searchsorted(groups.ids[order], np.arange(groups.count + 1))
        return self.trim(concatenated(columns, order, borders))

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Concatenate the lists of each row range."""
        return self.trim(concatenated(columns, *expanded(spans)))

    def trim(self, columns: list[Column]) -> list[Column]:
        """Return the part of concatenated lists that must be kept."""
        return columns


def ordered_fields(order: Sequence[pa.DataType], value: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields of lists of event times, order columns and values."""
    columns = (pa.field(f"order{number}", pa.list_(kind)) for number, kind in enumerate(order))
    return (pa.field("times", pa.list_(pa.int64())), *columns, pa.field("values", pa.list_(value)))


def single(columns: Sequence[pa.Array], valid: pa.Array) -> list[Column]:
    """Return lists of one element, empty for rows that are not valid."""
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


def expanded(spans: Spans) -> tuple[Ints, Ints]:
    """Return the rows of all ranges, concatenated, and the offset of each range (and of the end)."""
    borders = np.append(0, np.cumsum(spans.behind - spans.first))
    return ranges(spans.first, np.diff(borders)), borders


def concatenated(columns: Sequence[pa.Array], rows: Ints, borders: Ints) -> list[Column]:
    """Return one list for each range of `rows` between two borders: the lists of its rows, joined."""
    offsets = np.append(0, np.cumsum(lengths(columns[0])[rows]))[borders]
    places = pa.array(rows)
    return [lists(offsets, column.take(places).flatten()) for column in columns]


def lists(offsets: Ints, values: pa.Array) -> pa.Array:
    """Return the lists of values between offsets."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


@dataclass(frozen=True)
class Quantile(ListAggregate):
    """The value at a share of the sorted values, interpolated between two values as Spark's `percentile` does."""

    share: float
    result = pa.float64()
    fields = (pa.field("values", pa.list_(pa.float64())),)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return a list of one element for a value and an empty list for a null."""
        return [single([as_floats(values)], pc.is_valid(values))[0]]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Sort the values of each list and return the one at the share; null for an empty list."""
        counts = lengths(columns[0])
        # -0.0 becomes 0.0, so the result does not depend on which of the two came first.
        values = contiguous(columns[0].flatten()).to_numpy() + 0.0
        if not len(values):
            return pa.nulls(len(counts), self.result)
        # NaN is sorted to the end of its list, as Spark does it.
        ordered = values[np.lexsort((values, np.repeat(np.arange(len(counts)), counts)))]
        place = np.maximum(counts - 1, 0) * self.share
        lower, higher = np.floor(place), np.ceil(place)
        first = np.minimum(np.cumsum(counts) - counts, len(values) - 1)
        low = ordered[np.minimum(first + lower.astype(np.int64), len(values) - 1)]
        high = ordered[np.minimum(first + higher.astype(np.int64), len(values) - 1)]
        with np.errstate(all="ignore"):
            between = (higher - place) * low + (place - lower) * high
        return pa.array(np.where((lower == higher) | (low == high), low, between), mask=counts == 0)


@dataclass(frozen=True)
class TopN(ListAggregate):
    """The values of the rows with the highest `by`, the highest first; the earlier row if `by` is equal.

    Input values are structs of the value and its `by`; rows with a null `by` are ignored.
    """

    value: pa.DataType
    by: pa.DataType
    order: tuple[pa.DataType, ...]
    most: int

    @property
    def result(self) -> pa.DataType:
        """A list of the column's type."""
        return pa.list_(self.value)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Lists of `by`, event times, order columns and values."""
        return (pa.field("by", pa.list_(self.by)), *ordered_fields(self.order, self.value))

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return lists of one element, empty if `by` is null."""
        value, by = _parts(values)
        return single([by, pa.array(rows.times), *rows.order, value], pc.is_valid(by))

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Keep the highest of each group."""
        return self.merge(self.lift(values, rows), groups)

    def trim(self, columns: list[Column]) -> list[Column]:
        """Keep the highest of each list."""
        counts = lengths(columns[0])
        owner = np.repeat(np.arange(len(counts)), counts)
        flat = [column.flatten() for column in columns]
        # Sorted as `max` sees them: NaN is above every number.
        by = pa.array(ordered(flat[0])) if pa.types.is_floating(self.by) else flat[0]
        decide = [by, *(flat[1:] if is_sortable(self.value) else flat[1:-1])]
        order = order_within(owner, decide, "descending")
        first = np.cumsum(counts) - counts
        best = order[np.arange(len(order)) - first[owner] < self.most]
        borders = np.append(0, np.cumsum(np.minimum(counts, self.most)))
        return [lists(borders, column.take(pa.array(best))) for column in flat]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the lists of values."""
        return self.trim(list(columns))[-1]


@dataclass(frozen=True)
class MapOf(ListAggregate):
    """A map: for each key the value (or null) of its last row; keys are sorted.

    Input values are structs of key and value; a null key is ignored.
    """

    key: pa.DataType
    value: pa.DataType
    order: tuple[pa.DataType, ...]

    @property
    def result(self) -> pa.DataType:
        """A map of the columns' types."""
        return pa.map_(self.key, self.value)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Lists of keys, event times, order columns and values."""
        return (pa.field("keys", pa.list_(self.key)), *ordered_fields(self.order, self.value))

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return lists of one element, empty ones for a null key."""
        key, value = _parts(values)
        return single([key, pa.array(rows.times), *rows.order, value], pc.is_valid(key))

    def trim(self, columns: list[Column]) -> list[Column]:
        """Keep the last row of each key, in order of keys."""
        counts = lengths(columns[0])
        owner = np.repeat(np.arange(len(counts)), counts)
        flat = [column.flatten() for column in columns]
        decide = flat if is_sortable(self.value) else flat[:-1]
        order = order_within(owner, decide)
        codes = contiguous(pc.dictionary_encode(flat[0]).indices).to_numpy().astype(np.int64)[order]
        owners = owner[order]
        changes = np.append((owners[1:] != owners[:-1]) | (codes[1:] != codes[:-1]), np.ones(min(1, len(order)), bool))
        last = order[changes]
        borders = np.searchsorted(owner[last], np.arange(len(counts) + 1))
        return [lists(borders, column.take(pa.array(last))) for column in flat]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the maps."""
        keys, *_, values = self.trim(list(columns))
        return pa.MapArray.from_arrays(keys.offsets, keys.flatten(), values.flatten(), type=self.result)


def _parts(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return both columns of a struct, null if the struct is null."""
    first, second = (pc.struct_field(values, [place]) for place in (0, 1))
    return first, second


@dataclass(frozen=True)
class Collect(ListAggregate):
    """Accumulators are parallel lists of event times, order columns and values."""

    value: pa.DataType
    order: tuple[pa.DataType, ...]

    @property
    def result(self) -> pa.DataType:
        """A list of the column's type."""
        return pa.list_(self.value)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """One list column for the event times, for each order column and for the values."""
        return ordered_fields(self.order, self.value)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return a list of one element for a value and an empty list for a null."""
        return single([pa.array(rows.times), *rows.order, values], pc.is_valid(values))

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the lists of values, each sorted."""
        offsets = np.append(0, np.cumsum(lengths(columns[-1])))
        decide = [column.flatten() for column in columns]
        values = decide[-1]
        decide = decide if is_sortable(self.value) else decide[:-1]
        owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return lists(offsets, values.take(pa.array(order_within(owner, decide))))
