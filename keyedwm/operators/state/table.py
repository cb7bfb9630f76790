"""Declared tables: an operator declares each table that it keeps, then adds, reads and drops rows.

Rule: a table is declared once, with its name and the function that merges parts of a log (`Reduce`). The operator
itself then needs no logs. The layer below (`store.TableLogs`) appends, merges, cuts and checks the parts. This layer
finds the logs of a table, divides rows by slice, expires slices unread, and decides when dead rows are worth a rewrite.

A `StateTable` is one log. A `SlicedTable` has a log for each slice: event times, frames, ends of windows. The name of a
log is the name of the table and the start of the slice, so an earlier version reads it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.state.store import Reduce, TableLogs


class Numbering(Protocol):
    """The numbering of slices: frames, or ends of windows."""

    def frame_of(self, time_ms: int) -> int:
        """Return the number of the slice that begins at this time."""

    def start_of(self, frame: int) -> int:
        """Return the start of the slice of this number."""


class StateTable:
    """A table in one log."""

    def __init__(
        self, logs: TableLogs, name: str, reduce: Reduce = pa.concat_tables, *, compression: str | None = None
    ) -> None:
        """compression: the compression of stored parts, see `blobs.packed`."""
        self._logs, self._name = logs, name
        logs.declare(name, reduce, compression=compression)

    @property
    def rows(self) -> int:
        """The number of rows, dead rows included."""
        return self._logs.rows.get(self._name, 0)

    def add(self, rows: pa.Table) -> None:
        """Append rows; no row is read."""
        if rows.num_rows:
            self._logs.append(self._name, rows)

    def read(self) -> list[pa.Table]:
        """Return the rows, oldest first, in several tables."""
        return self._logs.read(self._name)

    def drop(self) -> None:
        """Remove all rows."""
        self._logs.drop(self._name)

    def replace(self, *tables: pa.Table) -> None:
        """Replace all rows by these rows."""
        self.drop()
        for table in tables:
            self.add(table)

    def without(self, places: Mapping[int, Sequence[Ints]]) -> list[pa.Table]:
        """Return the tables of `read` without some rows.

        places: the places of these rows, by the number of their table.
        """
        rest = []
        for number, table in enumerate(self.read()):
            stays = np.ones(table.num_rows, np.bool_)
            for some in places.get(number, ()):
                stays[some] = False
            if stays.any():
                rest.append(table.filter(pa.array(stays)))
        return rest

    def compact(self, live_rows: int, live: Callable[[], pa.Table]) -> None:
        """Rewrite the table if most of its rows are dead. live: returns the live rows."""
        if self.rows > (2 * live_rows + self._logs.limits.few_rows if live_rows else 0):
            self.replace(live())


class SlicedTable:
    """A table with a log for each slice. numbering: the numbering of slices whose numbers are not their starts."""

    def __init__(
        self, logs: TableLogs, name: str, reduce: Reduce = pa.concat_tables, numbering: Numbering | None = None
    ) -> None:
        self._logs, self._name, self._numbering = logs, name, numbering
        logs.declare(name, reduce, is_prefix=True)
        starts = (int(log.removeprefix(name)) for log in logs.names(name))
        self.numbers = {start if numbering is None else numbering.frame_of(start) for start in starts}
        self._ascending = list(
            self.numbers
        )  # a heap: expiry examines only its lowest entries; dropped slices stay in it
        heapify(self._ascending)

    def _log_of(self, number: int) -> str:
        """Return the name of the log of a slice."""
        return f"{self._name}{number if self._numbering is None else self._numbering.start_of(number)}"

    def between(self, low: int, high: int) -> list[int]:
        """Return the slices with a number in `[low, high)`, ascending."""
        return sorted(number for number in self.numbers if low <= number < high)

    @property
    def all_rows(self) -> int:
        """The number of rows of all slices, dead rows included."""
        return sum(map(self.rows, self.numbers))

    def rows(self, number: int) -> int:
        """Return the number of rows of a slice, dead rows included."""
        return self._logs.rows.get(self._log_of(number), 0)

    def add(self, rows: pa.Table, slices: Ints) -> None:
        """Add rows to their slices; slices: the number of each row's slice. Rows of a slice keep their order."""
        if (np.diff(slices) < 0).any():
            order = np.argsort(slices, kind="stable")
            rows, slices = rows.take(pa.array(order)), slices[order]
        for number, begin, end in runs_of(slices):
            self.add_to(number, rows.slice(begin, end - begin))

    def add_to(self, number: int, rows: pa.Table) -> None:
        """Add rows to one slice."""
        if number not in self.numbers:
            self.numbers.add(number)
            heappush(self._ascending, number)
        self._logs.append(self._log_of(number), rows)

    def read(self, number: int) -> list[pa.Table]:
        """Return the rows of a slice, oldest first, in several tables."""
        return self._logs.read(self._log_of(number)) if number in self.numbers else []

    def read_all(self) -> list[pa.Table]:
        """Return the rows of all slices, in order of slice."""
        return [table for number in sorted(self.numbers) for table in self.read(number)]

    def replace(self, number: int, rows: pa.Table) -> None:
        """Replace the rows of a slice by these rows; a slice without rows is removed."""
        self.drop(number)
        if rows.num_rows:
            self.add_to(number, rows)

    def drop(self, number: int) -> None:
        """Remove a slice."""
        self.numbers.discard(number)
        self._logs.drop(self._log_of(number))

    def clear(self) -> None:
        """Remove all slices."""
        for number in list(self.numbers):
            self.drop(number)

    def drop_below(self, number: int) -> None:
        """Remove the slices with a lower number, without reading them."""
        while self._ascending and self._ascending[0] < number:
            if (expired := heappop(self._ascending)) in self.numbers:
                self.drop(expired)


def runs_of(numbers: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield each number of a column with the begin and end of its rows; equal numbers are adjacent."""
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1))
    edges = [*begins.tolist(), len(numbers)]
    yield from zip(numbers[begins].tolist(), edges[:-1], edges[1:], strict=True)
