"""Sums of whole numbers, and counts: accumulators that add up, so a window deducts the frame that leaves.

Rule: a sum that leaves 64 bits is refused, never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.core.errors import InputError
from keyedwm.windows.columns import Column, Ints, contiguous, ints
from keyedwm.windows.kinds import Groups, Rows, Spans
from keyedwm.windows.loops import add_by_group, add_by_span

_TOTAL, _VALUES = pa.field("total", pa.int64()), pa.field("values", pa.int64())


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows: the count that every accumulator row carries anyway."""

    result: pa.DataType = pa.int64()
    fields: tuple[pa.Field, ...] = ()

    def lift(self, values: pa.Array | None, rows: Rows) -> list[Column]:
        """Nothing."""
        return []

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Nothing."""
        return []

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Nothing."""
        return []

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The row counts."""
        return pa.array(rows)


@dataclass(frozen=True, slots=True)
class _Added:
    """Columns that add up."""

    name: str

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Add."""
        return [self._checked(*add_by_group(column, groups.ids, groups.count)) for column in columns]

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Add what enters, deduct what leaves."""
        return [self._checked(*add_by_span(column, spans.first, spans.behind)) for column in columns]

    def _checked(self, sums: Ints, overflow: bool) -> Ints:
        if overflow:
            raise InputError(f"the sum of {self.name!r} leaves 64 bits in one window; cast the column to double")
        return sums


@dataclass(frozen=True, slots=True)
class ValueCount(_Added):
    """How many values that are not null."""

    result: pa.DataType = pa.int64()
    fields: tuple[pa.Field, ...] = (_VALUES,)

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """1, or 0 for null."""
        return [present(values)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The counts."""
        return pa.array(columns[0])


@dataclass(frozen=True, slots=True)
class IntegerSum(_Added):
    """A sum of whole numbers; null if there was no value."""

    result: pa.DataType = pa.int64()
    fields: tuple[pa.Field, ...] = (_TOTAL, _VALUES)

    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """The value and 1, or 0 and 0 for null."""
        return [whole_numbers(values), present(values)]

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The sums."""
        return pa.array(columns[0], mask=columns[1] == 0)


def present(values: pa.Array) -> Ints:
    """1 where there is a value."""
    if not values.null_count:
        return np.ones(len(values), np.int64)
    return ints(contiguous(pc.cast(pc.is_valid(values), pa.int64())))


def whole_numbers(values: pa.Array) -> Ints:
    """Int64, with 0 for null."""
    filled = pc.fill_null(values, 0) if values.null_count else values
    return ints(contiguous(pc.cast(filled, pa.int64())))
