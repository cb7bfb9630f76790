# ruff: noqa: ARG002  every aggregate function has the same signatures
"""All values of a window as a list, without nulls.

Rule: values are ordered by event time, then by the plan's order columns, then by the value, whatever the order of
arrival. State and results grow with the events: no other built-in aggregate keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints
from keyedwm.operators.aggregates.aggregate_function import RowOrder
from keyedwm.operators.aggregates.extremes import is_sortable
from keyedwm.operators.aggregates.lists import ListAggregate, lengths, lists, order_within, ordered_fields, single


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
