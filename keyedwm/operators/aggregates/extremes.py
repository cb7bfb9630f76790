# ruff: noqa: ARG002  every aggregate function has the same signatures
"""Minimum and maximum, the first and the last value.

Rule: numbers and times become integers of the same order; other types are compared by rank. NaN is above every number
and -0.0 equals 0.0, as in Spark; nulls are ignored; text is ordered by its bytes. The maximum is the minimum of the
inverted order, so both share one loop. First and last are decided by event time, then by the plan's order columns, then
by the value itself (nulls last). So the order of arrival never matters. For first and last a null is a value like any
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints, contiguous, ints, number, to_arrow, values_at
from keyedwm.core.errors import OptionError
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, RowOrder, Spans
from keyedwm.operators.aggregates.sums import present
from keyedwm.operators.kernels import lowest_by_group, lowest_by_span

_NOTHING = np.int64(2**63 - 1)
_ORDER, _MISSING = number("order"), number("missing")


def extreme(name: str, value_type: pa.DataType, *, highest: bool) -> AggregateFunction:
    """Return min or max over a column of this type; raise OptionError if the type has no order."""
    types = pa.types
    if not is_sortable(value_type):
        raise OptionError(f"{'max' if highest else 'min'}({name}): values of type {value_type} have no order")
    is_small = types.is_integer(value_type) and not types.is_uint64(value_type)
    if is_small or types.is_temporal(value_type) or types.is_float32(value_type) or types.is_float64(value_type):
        return NumberExtreme(value_type, highest)
    return RankedExtreme(value_type, highest)


def is_sortable(value_type: pa.DataType) -> bool:
    """Return whether Arrow can sort values of this type."""
    return not (pa.types.is_nested(value_type) or pa.types.is_null(value_type) or pa.types.is_interval(value_type))


@dataclass(frozen=True)
class NumberExtreme(AggregateFunction):
    """min or max of values that map to integers of the same order."""

    value_type: pa.DataType
    highest: bool
    fields = (_ORDER, _MISSING)

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.value_type

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return the ordered integer and 0, or the highest integer and 1 for a null."""
        missing = 1 - present(values)
        order = ordered(values)
        order = ~order if self.highest else order
        return [np.where(missing, _NOTHING, order) if values.null_count else order, missing]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Return the minimum of each group."""
        return [lowest_by_group(column, groups.ids, groups.count) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the minimum of each row range, with two stacks."""
        return [lowest_by_span(column, spans.first, spans.behind) for column in columns]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the values."""
        order, missing = columns
        valid = np.where(missing, 0, ~order if self.highest else order)
        return pc.if_else(pa.array(missing == 0), _values(valid, self.result), pa.scalar(None, self.result))


@dataclass(frozen=True)
class RankedExtreme(AggregateFunction):
    """min or max of other values that Arrow can sort."""

    value_type: pa.DataType
    highest: bool

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.value_type

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The minimum or maximum so far; null if there was no value."""
        return (pa.field("value", self.value_type),)

    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return the values."""
        return [values]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Return the value of the lowest rank in each group."""
        return self._lowest(columns[0], lambda ranks: lowest_by_group(ranks, groups.ids, groups.count))

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the value of the lowest rank in each row range, with two stacks."""
        return self._lowest(columns[0], lambda ranks: lowest_by_span(ranks, spans.first, spans.behind))

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the values."""
        return columns[0]

    def _lowest(self, values: pa.Array, lowest: Callable[[Ints], Ints]) -> list[Column]:
        encoded = pc.dictionary_encode(values)
        direction = "descending" if self.highest else "ascending"
        order = pc.sort_indices(encoded.dictionary, sort_keys=[("", direction)]).to_numpy().astype(np.int64)
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        rank[-1] = len(order)  # null
        lowest_ranks = lowest(rank[pc.fill_null(encoded.indices, len(order)).to_numpy()])
        places = pa.array(np.append(order, 0)[lowest_ranks], mask=lowest_ranks == len(order))
        return [encoded.dictionary.take(places)]


def ordered(values: pa.Array) -> Ints:
    """Return integers in the order of the values; nulls give an arbitrary one."""
    value_type = values.type
    if pa.types.is_floating(value_type):
        numbers = contiguous(pc.fill_null(pc.cast(values, pa.float64()), 0.0)).to_numpy() + 0.0  # -0.0 becomes 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        return np.where(bits < 0, bits ^ _NOTHING, bits)
    if pa.types.is_temporal(value_type):
        values = values.view(pa.int32() if value_type.bit_width == 32 else pa.int64())
    return ints(contiguous(pc.cast(pc.fill_null(values, 0), pa.int64())))


def _values(order: Ints, value_type: pa.DataType) -> pa.Array:
    """Return the values of ordered integers (the inverse of `ordered`)."""
    if pa.types.is_floating(value_type):
        return pc.cast(pa.array(np.where(order < 0, order ^ _NOTHING, order).view(np.float64)), value_type)
    if pa.types.is_temporal(value_type):
        return pc.cast(pa.array(order), pa.int32() if value_type.bit_width == 32 else pa.int64()).view(value_type)
    return pc.cast(pa.array(order), value_type)


@dataclass(frozen=True)
class FirstOrLast(AggregateFunction):
    """The value of the first or last row, with the columns that rows are ordered by."""

    value_type: pa.DataType
    order: tuple[pa.DataType, ...]
    is_last: bool

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.value_type

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The event time, the order columns and the value."""
        order = (pa.field(f"order{number}", kind) for number, kind in enumerate(self.order))
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
            rows = self._edge_rows(columns, groups.ids, rows)
        by_group = np.empty(groups.count, np.int64)
        by_group[groups.ids[rows]] = rows
        return [values_at(column, by_group) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Return the first or last row of each range, which is in order of event time already."""
        places = spans.behind - 1 if self.is_last else spans.first
        return [values_at(column, places) for column in columns]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the values."""
        return to_arrow(columns[-1])

    def _edge_rows(self, columns: Sequence[Column], ids: Ints, rows: Ints) -> Ints:
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
