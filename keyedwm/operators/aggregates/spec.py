"""An aggregate as the user wrote it: the name of a function, its columns, a number, a condition; and its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import contiguous
from keyedwm.core.errors import OptionError
from keyedwm.expressions.condition import Condition, columns_named
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, column_type
from keyedwm.operators.aggregates.binders import BINDERS, PAIRED, numbered
from keyedwm.operators.aggregates.sums import RowCount, ValueCount

_DESCRIBED = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


class AggregateSpec(Protocol):
    """An aggregate as the user wrote it."""

    def inputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the input columns, the columns of `where=` last. names: the columns of the rows."""

    def values_of(self, batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Array | None:
        """Return the values for the function, None if it needs none; schema: the plan's."""

    def no_values(self, schema: pa.Schema, count: int) -> pa.Array | None:
        """Return `count` nulls instead of values."""

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> AggregateFunction:
        """Return the function for the column's type; raise OptionError if there is no such column or function."""

    def describe(self) -> str:
        """Return a text for the plan's digest and for messages."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A built-in aggregate, by the name of its function.

    second: a further input column. argument: a number that the function takes. where: the text of a condition.
    """

    function: str
    column: str | None = None
    second: str | None = None
    argument: float | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if self.function != "count" or self.column is not None:
            check_column(self.function, self.column)
        if self.function in PAIRED:
            check_column(self.function, self.second)
        if self.where is not None and not isinstance(self.where, str):
            raise OptionError(f"{self.function}: where={self.where!r}: the text of a condition is expected, as 'v > 0'")
        if self.where is not None and self.function in ("first", "last"):
            raise OptionError(
                f"{self.function}({self.column}): where= is for aggregates that ignore nulls, and these are values to "
                f"{self.function}: filter the rows instead, and keep their control rows"
            )

    @property
    def is_simple(self) -> bool:
        """Whether it has only a name and a column."""
        return self.second is None and self.argument is None and self.where is None

    def inputs(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return both columns, then the columns of `where=` among these names, each once."""
        condition_columns = () if self.where is None else columns_named(self.where, names, self._of)
        return tuple(dict.fromkeys(one for one in (self.column, self.second, *condition_columns) if one is not None))

    def values_of(self, batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Array | None:
        """Return the values of the columns, null where `where=` is not true; None for a count of rows."""
        values = [contiguous(batch[name]) for name in (self.column, self.second) if name is not None]
        if self.where is None:
            return _paired(values) if values else None
        condition = _condition(self.where, schema, self._of)
        holds = pa.array(condition.holds({name: contiguous(batch[name]) for name in condition.columns[0]}))
        if not values:
            return pc.if_else(holds, pa.scalar(True), pa.scalar(None, pa.bool_()))  # noqa: FBT003  a value of Arrow
        return _paired([pc.if_else(holds, one, pa.scalar(None, one.type)) for one in values])

    def no_values(self, schema: pa.Schema, count: int) -> pa.Array | None:
        """Return `count` nulls of the columns' types; None for a count of rows."""
        names = [name for name in (self.column, self.second) if name is not None]
        if names:
            return _paired([pa.nulls(count, column_type(schema, name)) for name in names])
        return None if self.where is None else pa.nulls(count, pa.bool_())

    def bind(self, schema: pa.Schema, order: tuple[str, ...]) -> AggregateFunction:
        """Return the function for the columns' types; raise OptionError if there is no such column or function."""
        if self.where is not None:
            _condition(self.where, schema, self._of)
        if self.column is None:
            return RowCount() if self.where is None else ValueCount()
        order_types = tuple(column_type(schema, name) for name in order)
        value_type = column_type(schema, self.column)
        if self.second is not None:
            second = column_type(schema, self.second)
            return PAIRED[self.function](self, value_type, second, order_types)
        if self.argument is not None:
            return numbered(self.function, self.column, value_type, self.argument)
        return BINDERS[self.function](self.column, value_type, order_types)

    def describe(self) -> str:
        """Return for example `sum(price)`, or `top_n(name, price, 3) where price > 0`."""
        arguments = ", ".join(str(one) for one in (self.column, self.second, self.argument) if one is not None)
        return f"{self.function}({arguments})" + ("" if self.where is None else f" where {self.where}")

    @property
    def _of(self) -> str:
        return f"{self.function}({self.column or ''})"


def is_simple(spec: AggregateSpec) -> bool:
    """Whether the text of an aggregate is complete, so that `aggregate_of` can build it from the text."""
    return isinstance(spec, Spec) and spec.is_simple


def aggregate_of(text: str) -> AggregateSpec:
    """Return the built-in aggregate whose `describe` returns this text; raise OptionError if there is none."""
    match = _DESCRIBED.fullmatch(text.strip())
    if match is None or match[1] not in BINDERS or not (match[2] or match[1] == "count"):
        raise OptionError(f"{text!r} is no aggregate: one such as count() or sum(offset) is expected")
    return Spec(match[1], match[2] or None)


def check_column(function: str, column: object) -> None:
    """Raise OptionError unless it can be the name of a column."""
    if not isinstance(column, str):
        raise OptionError(f"{function}({column!r}): the name of a column is expected, as text")


@lru_cache(maxsize=64)
def _condition(text: str, schema: pa.Schema, of: str) -> Condition:
    return Condition.parse(text, ("", schema), of=of)


def _paired(values: Sequence[pa.Array]) -> pa.Array:
    """Return one column as it is, two as a struct of both."""
    if len(values) == 1:
        return values[0]
    return pa.StructArray.from_arrays(list(values), names=[str(place) for place in range(len(values))])
