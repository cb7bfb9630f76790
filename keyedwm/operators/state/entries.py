"""Accumulators of many keys, as columns in memory and as a table.

Rule: entries are values. A table of entries has the key columns themselves, so it can be read without the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Column, Ints, concat, contiguous, empty, from_arrow, ints, to_arrow, values_at
from keyedwm.operators.aggregates.aggregate_function import AggregateFunction, Groups, Spans
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.kernels import add_by_group, add_by_span
from keyedwm.operators.results import HIDDEN_PREFIX, ROWS
from keyedwm.operators.state.column_rows import ColumnRows
from keyedwm.operators.state.key_dictionary import KeyDictionary


class Accumulating(Protocol):
    """A plan whose keys have accumulators."""

    @property
    def functions(self) -> tuple[AggregateFunction, ...]:
        """The functions of the aggregates."""

    @property
    def key_fields(self) -> list[pa.Field]:
        """The key columns."""

    @property
    def accumulator_fields(self) -> list[pa.Field]:
        """The hidden columns that hold the accumulators, aggregate by aggregate."""


def accumulator_fields(functions: Sequence[AggregateFunction]) -> list[pa.Field]:
    """Return the hidden columns with the accumulators of aggregates, one aggregate after the other."""
    return [
        inner.with_name(f"{HIDDEN_PREFIX}{number}_{inner.name}")
        for number, function in enumerate(functions)
        for inner in function.fields
    ]


@dataclass(frozen=True, slots=True)
class Accumulators:
    """Keys by number, the number of events of each entry, and the accumulators of each aggregate."""

    keys: Ints
    rows: Ints
    accumulators: tuple[tuple[Column, ...], ...]

    def __len__(self) -> int:
        return len(self.keys)

    def take_rows(self, places: Ints) -> Accumulators:
        """The entries at these places."""
        return Accumulators(
            self.keys[places],
            self.rows[places],
            tuple(tuple(values_at(column, places) for column in columns) for columns in self.accumulators),
        )

    def with_others(self, *others: Accumulators) -> Accumulators:
        """Return these entries, followed by others."""
        pieces = (self, *others)
        return Accumulators(
            np.concatenate([piece.keys for piece in pieces]),
            np.concatenate([piece.rows for piece in pieces]),
            tuple(
                tuple(concat(list(columns)) for columns in zip(*parts, strict=True))
                for parts in zip(*(piece.accumulators for piece in pieces), strict=True)
            ),
        )

    def columns(self) -> list[Column]:
        """Rows and accumulators, as in the schema of partials."""
        return [self.rows, *(column for columns in self.accumulators for column in columns)]


def read_entries(plan: Accumulating, keys: Ints, table: pa.Table) -> Accumulators:
    """Return the entries of partials. keys: the keys of the partials."""
    outer = iter(plan.accumulator_fields)
    accumulators = tuple(
        tuple(from_arrow(field, table[field.name]) for _, field in zip(function.fields, outer, strict=False))
        for function in plan.functions
    )
    return Accumulators(keys, ints(contiguous(table[ROWS])), accumulators)


def no_entries(plan: Accumulating) -> Accumulators:
    """Return accumulators of no keys."""
    return Accumulators(
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        tuple(tuple(empty(inner) for inner in function.fields) for function in plan.functions),
    )


def merged(plan: Accumulating, entries: Accumulators, groups: Groups, keys: Ints) -> Accumulators:
    """One entry for each group; `keys` are the groups' keys."""
    accumulators = tuple(
        tuple(function.merge(columns, groups))
        for function, columns in zip(plan.functions, entries.accumulators, strict=True)
    )
    return Accumulators(keys, add_by_group(entries.rows, groups.ids, groups.count), accumulators)


def grouped(plan: Accumulating, keys: KeyDictionary, entries: Accumulators, numbers: Ints) -> tuple[Accumulators, Ints]:
    """Return one entry for each pair of a number and a key, in this order, and the numbers.

    numbers: of the frame, or the end, of each entry.
    """
    ids, distinct, occurring = pair_groups(numbers, entries.keys, keys.count)
    return merged(plan, entries, Groups(ids, len(occurring)), occurring), distinct


def over_spans(plan: Accumulating, entries: Accumulators, spans: Spans) -> Accumulators:
    """One entry for each run of entries of one key."""
    accumulators = tuple(
        tuple(function.spans(columns, spans))
        for function, columns in zip(plan.functions, entries.accumulators, strict=True)
    )
    return Accumulators(entries.keys[spans.first], add_by_span(entries.rows, spans.first, spans.behind), accumulators)


def finished(plan: Accumulating, entries: Accumulators) -> list[pa.Array]:
    """The aggregates' results."""
    return [
        function.finish(columns, entries.rows)
        for function, columns in zip(plan.functions, entries.accumulators, strict=True)
    ]


def table_of(plan: Accumulating, keys: KeyDictionary, entries: Accumulators) -> pa.Table:
    """Return accumulators as a table: key columns, rows, accumulators."""
    schema = pa.schema([*plan.key_fields, pa.field(ROWS, pa.int64()), *plan.accumulator_fields])
    columns = [*keys.columns(entries.keys), *(to_arrow(column) for column in entries.columns())]
    return pa.Table.from_arrays(columns, schema=schema)


_Rows = TypeVar("_Rows", bound="EntryRows")


@dataclass(frozen=True, slots=True)
class EntryRows(ColumnRows):
    """Accumulators of keys, each with some whole numbers; a subclass adds their columns and their names."""

    COLUMNS: ClassVar[tuple[str, ...]] = ()
    entries: Accumulators

    @classmethod
    def none(cls: type[_Rows], plan: Accumulating) -> _Rows:
        """Return no rows."""
        return cls(no_entries(plan), *(np.empty(0, np.int64) for _ in cls.COLUMNS))

    @classmethod
    def read(cls: type[_Rows], plan: Accumulating, numbers: Ints, table: pa.Table) -> _Rows:
        """Return the rows of a table, which may have other columns, too. numbers: the numbers of their keys."""
        return cls(read_entries(plan, numbers, table), *(ints(contiguous(table[name])) for name in cls.COLUMNS))

    @classmethod
    def of_tables(cls: type[_Rows], plan: Accumulating, keys: KeyDictionary, tables: Sequence[pa.Table]) -> _Rows:
        """Return the rows of some tables behind each other; keys: numbers their keys."""
        if not tables:
            return cls.none(plan)
        table = pa.concat_tables(tables)
        return cls.read(plan, keys.numbers_of(table), table)

    @classmethod
    def together(cls: type[_Rows], plan: Accumulating, pieces: Sequence[_Rows]) -> _Rows:
        """Return some rows behind each other."""
        return cls.none(plan).with_others(*pieces)

    def table(self, plan: Accumulating, keys: KeyDictionary) -> pa.Table:
        """Return the rows as a table: key columns, rows, accumulators, whole numbers (the inverse of `read`)."""
        table = table_of(plan, keys, self.entries)
        for name, column in zip(self.COLUMNS, self.columns()[1:], strict=True):
            table = table.append_column(name, pa.array(column))
        return table
