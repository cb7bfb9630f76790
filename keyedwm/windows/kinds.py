"""What an aggregate is once its column's type is known: accumulators as columns, and four functions over whole columns.

Rule: `merge` is associative and does not care for order, so batches, tasks and restarts cannot be seen in a result, bit
for bit. An accumulator of no values is never stored: a row of partials stands for at least one event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.windows.columns import Column, Ints


@dataclass(frozen=True, slots=True)
class Groups:
    """For each row the number of its group, 0 to `count` - 1; every group has a row."""

    ids: Ints
    count: int


@dataclass(frozen=True, slots=True)
class Spans:
    """Runs `[first, behind)` of rows, none empty; neither bound ever goes back from one run to the next."""

    first: Ints
    behind: Ints


@dataclass(frozen=True, slots=True)
class Rows:
    """What a row has beside its value: event time in ms, and the columns that order rows of the same time."""

    times: Ints
    order: tuple[pa.Array, ...]


class Kind(ABC):
    """One aggregate over one column of a known type."""

    @property
    @abstractmethod
    def fields(self) -> tuple[pa.Field, ...]:
        """The accumulator's columns; none for what the row count alone tells."""

    @property
    @abstractmethod
    def result(self) -> pa.DataType:
        """Of the finished column."""

    @abstractmethod
    def lift(self, values: pa.Array, rows: Rows) -> list[Column]:
        """One accumulator for each row; that of a null is neutral."""

    @abstractmethod
    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """One accumulator for each group."""

    @abstractmethod
    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """One accumulator for each run of rows, to be finished; the rows of a run stand in order of event time."""

    @abstractmethod
    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The results; `rows` is how many events each accumulator stands for."""

    def gather(self, values: pa.Array, rows: Rows, groups: Groups) -> list[Column]:
        """One accumulator for each group of rows."""
        return self.merge(self.lift(values, rows), groups)


def column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of an input column; OptionError if there is none."""
    at = schema.get_field_index(name)
    if at < 0:
        raise OptionError(f"the input has no column {name!r}, it has {', '.join(schema.names)}")
    return schema.field(at).type
