"""Keys as small whole numbers: combinations of by columns are numbered in the order in which they are first seen.

Rule: nulls are keys like any other. Numbers are dense and stay until `compact`; they mean nothing outside their
operator, so results and state hold the by columns themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.windows.columns import Ints, contiguous, ints
from keyedwm.windows.loops import dense_groups

_FEW = 4096
_NONE = np.empty(0, np.int64)


class KeyHolder(Protocol):
    """Who holds keys by number."""

    def used_keys(self) -> list[Ints]:
        """The numbers held."""

    def renumber(self, renumbered: Ints) -> None:
        """Replace each number by `renumbered[number]`."""


class Keys:
    """The keys one operator knows."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._fields = tuple(fields)
        self._compact_above = _FEW
        self._clear()

    def _clear(self) -> None:
        self._columns = [pa.array([], field.type) for field in self._fields]
        self._known = [pa.array([], field.type) for field in self._fields]  # values by column
        self._pairs = [pa.array([], pa.int64()) for _ in self._fields[1:]]  # of the columns so far and one more
        self._order: Ints | None = None
        self.count = 0

    def numbers(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """The number of each row's key; new keys get the next ones."""
        if not self._fields:
            self.count = 1
            return np.zeros(rows, np.int64)
        numbers = self._in(self._known, 0, columns[0])
        for at, column in enumerate(columns[1:]):
            further = self._in(self._known, at + 1, column)
            numbers = self._in(self._pairs, at, pa.array(numbers << 32 | further))
        self._learn(columns, numbers)
        return numbers

    def columns(self, numbers: Ints) -> list[pa.Array]:
        """The by columns of these keys."""
        places = pa.array(numbers)
        return [column.take(places) for column in self._columns]

    def ranks(self, numbers: Ints) -> Ints:
        """Numbers in ascending order of the by columns, nulls last, for these keys; below the count of all keys."""
        if self._order is None and 2 * len(numbers) < self.count:
            used = np.unique(numbers)  # a few of many: sorting all would cost more
            return _ranks(self.columns(used), len(used))[np.searchsorted(used, numbers)]
        if self._order is None:
            self._order = _ranks(self._columns, self.count)
        return self._order[numbers]

    def compact(self, holders: Sequence[KeyHolder]) -> None:
        """Forget the keys that nobody holds, now and then: numbers change, their order does not."""
        if self.count <= self._compact_above:
            return
        used = np.unique(np.concatenate([keys for holder in holders for keys in holder.used_keys()] or [_NONE]))
        columns, before = self.columns(used), self.count
        self._clear()
        renumbered = np.zeros(before, np.int64)
        renumbered[used] = self.numbers(columns, len(used))
        for holder in holders:
            holder.renumber(renumbered)
        self._compact_above = max(_FEW, 2 * len(used))

    @staticmethod
    def _in(known: list[pa.Array], at: int, values: pa.Array) -> Ints:
        """Places among the known values, which grow by those that are new."""
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        places = pc.index_in(encoded.dictionary, value_set=known[at])
        if places.null_count:
            missing = pc.is_null(places)
            fresh = encoded.dictionary.filter(missing)
            numbers = places.to_numpy(zero_copy_only=False).astype(np.float64)
            numbers[np.isnan(numbers)] = np.arange(len(known[at]), len(known[at]) + len(fresh))
            known[at] = pa.concat_arrays([known[at], fresh])
            places_of = numbers.astype(np.int64)
        else:
            places_of = places.to_numpy().astype(np.int64)
        return places_of[encoded.indices.to_numpy()]

    def _learn(self, columns: Sequence[pa.Array], numbers: Ints) -> None:
        """Hold the by columns of numbers not seen before."""
        highest = int(numbers.max(initial=-1)) + 1
        if highest <= self.count:
            return
        fresh = numbers - self.count
        where = np.flatnonzero(fresh >= 0)
        first = np.empty(highest - self.count, np.int64)
        first[fresh[where][::-1]] = where[::-1]
        places = pa.array(first)
        self._columns = [
            pa.concat_arrays([known, column.take(places)]) for known, column in zip(self._columns, columns, strict=True)
        ]
        self.count = highest
        self._order = None


def row_groups(columns: Sequence[pa.Array], rows: int) -> Ints:
    """For each row a number from 0 on that equal rows share; not every number below the highest need occur."""
    if not columns:
        return np.zeros(rows, np.int64)
    numbers, count = _encoded(columns[0])
    for column in columns[1:]:
        further, other = _encoded(column)
        numbers = numbers * other + further
        count *= other
        if count > 4 * rows + 1024:
            numbers, count = _encoded(pa.array(numbers))
    return numbers


def _encoded(column: pa.Array) -> tuple[Ints, int]:
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), max(1, len(encoded.dictionary))


def distinct_codes(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """For each code in `[0, size)` its rank among those that occur, and those codes, ascending."""
    if size <= 8 * len(codes) + 65536:
        return dense_groups(codes, size)
    encoded = pc.dictionary_encode(pa.array(codes))
    values = ints(contiguous(encoded.dictionary))
    ascending = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[ascending] = np.arange(len(values))
    return rank[encoded.indices.to_numpy()], values[ascending]


def _ranks(columns: Sequence[pa.Array], count: int) -> Ints:
    if not columns:
        return np.arange(count)
    if len(columns) == 1:
        order = pc.sort_indices(columns[0]).to_numpy()
    else:
        names = [str(at) for at in range(len(columns))]
        table = pa.table(list(columns), names=names)
        order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    ranks = np.empty(count, np.int64)
    ranks[order] = np.arange(count)
    return ranks


def key_columns(by: Sequence[str], table: pa.Table) -> list[pa.Array]:
    """The by columns of a table."""
    return [contiguous(table[name]) for name in by]
