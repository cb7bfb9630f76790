"""The interface of an aggregate function over one column of a known type; accumulators are columns, too.

Rule: `merge` is associative and commutative. A result is therefore bit-identical however the events were divided into
batches and tasks and wherever a restart fell. A row of partials stands for at least one event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from keyedwm.arrow.columns import Column, Ints
from keyedwm.core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Groups:
    """The group number of each row, from 0 to `count` - 1; every group has at least one row."""

    ids: Ints
    count: int


@dataclass(frozen=True, slots=True)
class Spans:
    """Row ranges `[first, behind)`, none of them empty; neither bound ever decreases from one range to the next."""

    first: Ints
    behind: Ints


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of rows: their event times in ms, and the columns that order rows of equal event time."""

    times: Ints
    order: tuple[pa.Array, ...]


class AggregateFunction(ABC):
    """One aggregate function over one column of a known type."""

    @property
    @abstractmethod
    def fields(self) -> tuple[pa.Field, ...]:
        """The columns of an accumulator; there are none if the row count alone gives the result."""

    @property
    @abstractmethod
    def result(self) -> pa.DataType:
        """The type of the result column."""

    @abstractmethod
    def lift(self, values: pa.Array, rows: RowOrder) -> list[Column]:
        """Return one accumulator for each row; a null gives the neutral accumulator."""

    @abstractmethod
    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """Merge the accumulators of each group into one."""

    @abstractmethod
    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """Merge the accumulators of each row range into one for `finish`; rows are in order of event time."""

    @abstractmethod
    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """Return the results; `rows` says how many events each accumulator stands for."""

    def gather(self, values: pa.Array, rows: RowOrder, groups: Groups) -> list[Column]:
        """Return one accumulator for each group of input rows."""
        return self.merge(self.lift(values, rows), groups)


def column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of an input column; raise OptionError if there is no such column."""
    if not isinstance(name, str):
        raise OptionError(f"{name!r}: the name of a column is expected, the input has {', '.join(schema.names)}")
    at = schema.get_field_index(name)
    if at < 0:
        raise OptionError(f"the input has no column {name!r}, it has {', '.join(schema.names)}")
    return schema.field(at).type
