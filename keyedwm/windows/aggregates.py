# ruff: noqa: A001  the names are those of Spark's functions
"""The aggregates a user can ask for.

Rule: each is a value that knows its input column by name; the column's type decides how it is computed, and a type that
does not fit is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.windows.additive import IntegerSum, RowCount, ValueCount
from keyedwm.windows.kinds import Kind, column_type


class AggregateSpec(Protocol):
    """An aggregate as it was asked for."""

    @property
    def column(self) -> str | None:
        """The input column, None if it needs none."""

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> Kind:
        """The aggregate over the column's type; OptionError if the column or its type does not fit."""

    def describe(self) -> str:
        """For a plan's digest and for messages."""


@dataclass(frozen=True, slots=True)
class _Spec:
    """An aggregate of the package, by its function's name."""

    function: str
    column: str | None = None

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> Kind:
        """See AggregateSpec."""
        if self.column is None:
            return RowCount()
        return _BINDERS[self.function](self.column, column_type(schema, self.column), order)

    def describe(self) -> str:
        """`sum(price)`."""
        return f"{self.function}({self.column or ''})"


def count(column: str | None = None) -> AggregateSpec:
    """How many rows, or how many values of a column that are not null."""
    return _Spec("count", column)


def sum(column: str) -> AggregateSpec:
    """The sum, null without a value. Whole numbers give int64 (an overflow is an InputError)."""
    return _Spec("sum", column)


def _count(name: str, _found: pa.DataType, _order: tuple[str, ...]) -> Kind:
    return ValueCount(name)


def _sum(name: str, found: pa.DataType, _order: tuple[str, ...]) -> Kind:
    if pa.types.is_integer(found):
        return IntegerSum(name)
    raise OptionError(f"sum({name}) needs numbers, the column is of type {found}")


_BINDERS = {"count": _count, "sum": _sum}
