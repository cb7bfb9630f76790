# ruff: noqa: ARG002  an aggregate is given what every aggregate is given
"""Lowest and highest values: numbers and times as whole numbers of the same order, anything else by rank.

Rule: NaN is above every number and -0.0 equals 0.0, as in Spark; nulls take no part; text is ordered by its bytes. The
highest value is the lowest of the inverted order, so there is one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import OptionError
from keyedwm.windows.additive import present
from keyedwm.windows.columns import Column, Ints, contiguous, ints, number
from keyedwm.windows.kinds import Groups, Kind, Rows, Spans
from keyedwm.windows.loops import lowest_by_group, lowest_by_span

_NOTHING = np.int64(2**63 - 1)
_ORDER, _MISSING = number("order"), number("missing")


def extreme(name: str, found: pa.DataType, *, highest: bool) -> Kind:
    """min or max over a column of this type; OptionError if the type has no order."""
    types = pa.types
    if not is_sortable(found):
        raise OptionError(f"{'max' if highest else 'min'}({name}): values of type {found} have no order")
    is_small = types.is_integer(found) and not types.is_uint64(found)
    if is_small or types.is_temporal(found) or types.is_float32(found) or types.is_float64(found):
        return NumberExtreme(found, highest)
    return RankedExtreme(found, highest)


def is_sortable(found: pa.DataType) -> bool:
    """Whether Arrow orders values of this type."""
    return not (pa.types.is_nested(found) or pa.types.is_null(found) or pa.types.is_interval(found))


@dataclass(frozen=True)
class NumberExtreme(Kind):
    """Of values that whole numbers can stand for."""

    found: pa.DataType
    highest: bool
    fields = (_ORDER, _MISSING)

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.found

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """The place in the order and 0, or the last place and 1 for null."""
        missing = 1 - present(values)
        order = _ordered(values)
        order = ~order if self.highest else order
        return [np.where(missing, _NOTHING, order) if values.null_count else order, missing]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """The lowest of each."""
        return [lowest_by_group(column, groups.ids, groups.count) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """The lowest of each, by two stacks."""
        return [lowest_by_span(column, spans.first, spans.behind) for column in columns]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The values."""
        order, missing = columns
        valid = np.where(missing, 0, ~order if self.highest else order)
        return pc.if_else(pa.array(missing == 0), _values(valid, self.result), pa.scalar(None, self.result))


@dataclass(frozen=True)
class RankedExtreme(Kind):
    """Of values that Arrow can sort."""

    found: pa.DataType
    highest: bool

    @property
    def result(self) -> pa.DataType:
        """The column's type."""
        return self.found

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The value so far, null for none."""
        return (pa.field("value", self.found),)

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """The values."""
        return [values]

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """The value of the lowest rank."""
        return self._lowest(columns[0], lambda ranks: lowest_by_group(ranks, groups.ids, groups.count))

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """The value of the lowest rank, by two stacks."""
        return self._lowest(columns[0], lambda ranks: lowest_by_span(ranks, spans.first, spans.behind))

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The values."""
        return columns[0]

    def _lowest(self, values: pa.Array, lowest: Callable[[Ints], Ints]) -> list[Column]:
        encoded = pc.dictionary_encode(values)
        direction = "descending" if self.highest else "ascending"
        order = pc.sort_indices(encoded.dictionary, sort_keys=[("", direction)]).to_numpy().astype(np.int64)
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        rank[-1] = len(order)  # null
        found = lowest(rank[pc.fill_null(encoded.indices, len(order)).to_numpy()])
        places = pa.array(np.append(order, 0)[found], mask=found == len(order))
        return [encoded.dictionary.take(places)]


def _ordered(values: pa.Array) -> Ints:
    """Whole numbers in the order of the values, anything for null."""
    found = values.type
    if pa.types.is_floating(found):
        numbers = contiguous(pc.fill_null(pc.cast(values, pa.float64()), 0.0)).to_numpy() + 0.0  # -0.0 becomes 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        return np.where(bits < 0, bits ^ _NOTHING, bits)
    if pa.types.is_temporal(found):
        values = values.view(pa.int32() if found.bit_width == 32 else pa.int64())
    return ints(contiguous(pc.cast(pc.fill_null(values, 0), pa.int64())))


def _values(order: Ints, found: pa.DataType) -> pa.Array:
    """The reverse of `_ordered`."""
    if pa.types.is_floating(found):
        return pc.cast(pa.array(np.where(order < 0, order ^ _NOTHING, order).view(np.float64)), found)
    if pa.types.is_temporal(found):
        return pc.cast(pa.array(order), pa.int32() if found.bit_width == 32 else pa.int64()).view(found)
    return pc.cast(pa.array(order), found)
