"""What an aggregate is once its column's type is known: accumulators as columns, and four functions over whole columns.

Rule: `merge` is associative and does not care for order, so batches, tasks and restarts cannot be seen in a result, bit
for bit. An accumulator of no values is never stored: a row of partials stands for at least one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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


class Kind(Protocol):
    """One aggregate over one column of a known type."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The accumulator's columns; none for what the row count alone tells."""

    @property
    def result(self) -> pa.DataType:
        """Of the finished column."""

    def lift(self, values: pa.Array | None, rows: Rows) -> list[Column]:
        """One accumulator for each row."""

    def merge(self, columns: Sequence[Column], groups: Groups) -> list[Column]:
        """One accumulator for each group."""

    def spans(self, columns: Sequence[Column], spans: Spans) -> list[Column]:
        """One accumulator for each run of rows; the rows of a run stand in order of event time."""

    def finish(self, columns: Sequence[Column], rows: Ints) -> pa.Array:
        """The results; `rows` is how many events each accumulator stands for."""


def column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of an input column; OptionError if there is none."""
    at = schema.get_field_index(name)
    if at < 0:
        raise OptionError(f"the input has no column {name!r}, it has {', '.join(schema.names)}")
    return schema.field(at).type
