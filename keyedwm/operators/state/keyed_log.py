"""Logs of small rows by key; the newest row of each key counts.

A row is a key and whole numbers. The key and some of the numbers are the row's identity: the start of a window, a
channel. The other numbers are its values.

A batch appends the rows that it changed, and no stored row is changed. So a log holds several rows of one identity, and
the newest row counts: in memory, when the log is read, and when parts of it are merged. No row is removed from a log. A
later row marks an older row as dead, and stays as long as the older row may be in another part. When most rows of a log
are old, the log is rewritten (`tidy`).

A table has keys, not their numbers, which only one instance uses: a reader of the log numbers the keys again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.results import HIDDEN_PREFIX
from keyedwm.operators.state.column_rows import ColumnRows
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import StateTable

_Rows = TypeVar("_Rows", bound="KeyedRows")


@dataclass(frozen=True, slots=True)
class KeyedRows(ColumnRows):
    """Keys by number; a subclass adds columns of whole numbers, and names the identity's columns."""

    IDENTITY: ClassVar[tuple[str, ...]] = ()
    keys: Ints

    @classmethod
    def none(cls: type[_Rows]) -> _Rows:
        """Return no rows."""
        return cls(*(np.empty(0, np.int64) for _ in fields(cls)))

    @classmethod
    def key_fields(cls, table: pa.Table) -> list[pa.Field]:
        """Return the key columns of a table of such rows."""
        return list(table.schema)[: 1 - len(fields(cls))]

    def newest(self: _Rows) -> _Rows:
        """Return the last row of each identity, in order of key and identity."""
        return self.take_rows(newest([self.keys, *(getattr(self, name) for name in self.IDENTITY)]))

    def is_alive(self) -> Flags:
        """Return which rows belong to something that still exists."""
        return np.ones(len(self), np.bool_)


@dataclass(frozen=True, slots=True)
class Pairs(KeyedRows):
    """Pairs of a key and a window; each pair counts once. bounds: the window, as its start or end in ms."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("bounds",)
    bounds: Ints


def newest(columns: Sequence[Ints]) -> Ints:
    """Return the place of the last row for each combination of numbers, in ascending order of the columns."""
    order = np.lexsort(columns[::-1])  # equal ones keep their order
    differs = np.zeros(max(len(order) - 1, 0), np.bool_)
    for column in columns:
        differs |= np.diff(column[order]) != 0
    return order[np.append(differs, True)] if len(order) else order


class KeyedTables(Generic[_Rows]):
    """The tables of such a log.

    of: the class of its rows. by: the key columns. names: the names of the other columns.
    """

    def __init__(self, of: type[_Rows], by: Sequence[pa.Field], names: Sequence[str] | None = None) -> None:
        self._of, self._by = of, by
        self._names = [f"{HIDDEN_PREFIX}{one.name}" for one in fields(of)[1:]] if names is None else list(names)
        self._schema = pa.schema([*by, *((name, pa.int64()) for name in self._names)])

    def rows(self, keys: KeyDictionary, tables: Sequence[pa.Table]) -> _Rows:
        """Return the newest row of each identity, in order. tables: oldest first."""
        if not tables:
            return self._of.none()
        table = pa.concat_tables(tables)
        return self._of(keys.numbers_of(table), *(ints(contiguous(table[name])) for name in self._names)).newest()

    def table(self, keys: KeyDictionary, rows: _Rows) -> pa.Table:
        """Return rows as a table."""
        numbers, *others = rows.columns()
        return pa.Table.from_arrays([*keys.columns(numbers), *map(pa.array, others)], schema=self._schema)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of a log: keep the newest row of each identity, even if it is not alive."""
        keys = KeyDictionary(self._by)
        return self.table(keys, self.rows(keys, tables))


class KeyedLog(Generic[_Rows]):
    """A log, and in memory the live rows that count, in order of key and identity."""

    def __init__(
        self, of: type[_Rows], by: Sequence[pa.Field], logs: TableLogs, name: str, keys: KeyDictionary | None = None
    ) -> None:
        """name: the name of the log. keys: the numbers of another log to share."""
        self._tables = KeyedTables(of, by)
        self._log = StateTable(logs, name, self._tables.merge)
        self.keys = KeyDictionary(by, logs.limits.few_keys) if keys is None else keys
        rows = self._tables.rows(self.keys, self._log.read())
        self._know(rows.take_rows(rows.is_alive()))

    def _know(self, rows: _Rows) -> None:
        self.rows = rows

    def numbers(self, rows: pa.Table) -> Ints:
        """Return the number of the key of each row; floats are equal as Spark groups them."""
        return self.keys.numbers_of(rows)

    def put_rows(self, rows: _Rows) -> None:
        """Add rows, which count from now on; the last one among equal identities."""
        both = self.rows.with_others(rows).newest()
        self._know(both.take_rows(both.is_alive()))
        self._write(rows)

    def change(self, places: Ints, rows: _Rows) -> None:
        """Replace the rows at these places by these live rows of the same identities."""
        columns = [column.copy() for column in self.rows.columns()]
        for column, changed in zip(columns, rows.columns(), strict=True):
            column[places] = changed
        self._know(type(rows)(*columns))
        self._write(rows)

    def forget(self, is_forgotten: Flags) -> None:
        """Remove rows from memory; a reader of the log must see by itself that they do not count."""
        self._know(self.rows.take_rows(~is_forgotten))

    def tidy(self) -> None:
        """Rewrite the log if most of its rows are old."""
        self._log.compact(len(self.rows), lambda: self._tables.table(self.keys, self.rows))

    def used_keys(self) -> list[Ints]:
        """Return the numbers of the keys that have rows."""
        return [self.rows.keys]

    def renumber(self, renumbered: Ints) -> None:
        """Replace the number of each key by `renumbered[number]`."""
        numbers, *others = self.rows.columns()
        self._know(type(self.rows)(renumbered[numbers], *others).newest())

    def _write(self, rows: _Rows) -> None:
        self._log.add(self._tables.table(self.keys, rows))


class PairLog:
    """A log of `Pairs` that is read as a whole and then emptied: the windows with new rows for a later pane.

    bound: the column that identifies the window. name: the name of the log.
    """

    def __init__(self, by: Sequence[pa.Field], bound: str, name: str, logs: TableLogs) -> None:
        self._tables = KeyedTables(Pairs, by, (bound,))
        self._log = StateTable(logs, name, self._tables.merge)

    def append(self, keys: KeyDictionary, pairs: Pairs) -> None:
        """Add pairs."""
        self._log.add(self._tables.table(keys, pairs))

    def pop_all(self, keys: KeyDictionary) -> Pairs:
        """Return all pairs, each once, and remove them."""
        pairs = self._tables.rows(keys, self._log.read())
        self.clear()
        return pairs

    def clear(self) -> None:
        """Remove all pairs."""
        self._log.drop()
