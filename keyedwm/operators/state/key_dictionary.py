"""Keys as small whole numbers: combinations of key columns are numbered in the order of their first row.

Rule: nulls are keys like any other. Numbers are dense and stay until `compact`; they mean nothing outside their
operator, so results and state hold the key columns themselves. Texts are known with 64-bit offsets: all keys of a
bucket together may exceed 2 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.columns import Column, Ints, as_key, contiguous, sorted_distinct
from keyedwm.operators.state.store import LIMITS

# An Arrow array of texts holds less than 2 GiB; columns of more text have several chunks.
_CHUNK_BYTES = 1 << 30
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_NONE = np.empty(0, np.int64)


class KeyHolder(Protocol):
    """A holder of keys by number."""

    def used_keys(self) -> list[Ints]:
        """The numbers that it holds."""

    def renumber(self, renumbered: Ints) -> None:
        """Replace each number by `renumbered[number]`."""


class KeyDictionary:
    """The keys one operator knows."""

    def __init__(self, fields: Sequence[pa.Field], few: int = LIMITS.few_keys) -> None:
        """few: up to this number of keys, do not compact."""
        self._fields = tuple(fields)
        self._few = self._compact_above = few
        self._clear()

    def _clear(self) -> None:
        self._columns = [pa.array([], _wide(field.type)) for field in self._fields]
        self._known = [pa.array([], _wide(field.type)) for field in self._fields]  # values by column
        # pairs (number of the columns before, number in the next column), packed into one int64
        self._pairs = [pa.array([], pa.int64()) for _ in self._fields[1:]]
        self._order: Ints | None = None
        self.count = 0

    def numbers(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """The number of each row's key; new keys get the next ones. columns: as `key_columns` gives them."""
        if not self._fields:
            self.count, self._order = 1, None  # ranks may have been requested before there was a key
            return np.zeros(rows, np.int64)
        numbers = self._number_values(self._known, 0, columns[0])
        for at, column in enumerate(columns[1:]):
            further = self._number_values(self._known, at + 1, column)
            numbers = self._number_values(self._pairs, at, pa.array(numbers << 32 | further))
        self._learn(columns, numbers)
        return numbers

    def numbers_of(self, rows: pa.Table) -> Ints:
        """Return the number of the key of each row of a table with the key columns; new keys get the next numbers."""
        return self.numbers(key_columns([field.name for field in self._fields], rows), rows.num_rows)

    def columns(self, numbers: Ints) -> list[Column]:
        """The key columns of these keys; columns with more text than one array can hold have several chunks."""
        places = pa.array(numbers)
        return [_narrow(column, places, field.type) for column, field in zip(self._columns, self._fields, strict=True)]

    def wide_columns(self, numbers: Ints) -> list[pa.Array]:
        """The key columns of these keys, texts with 64-bit offsets."""
        places = pa.array(numbers)
        return [column.take(places) for column in self._columns]

    def ranks(self, numbers: Ints) -> Ints:
        """For each of these keys a rank, below the count of all keys: ranks ascend with the key columns, nulls last."""
        if self._order is None and 2 * len(numbers) < self.count:
            used_numbers = sorted_distinct(numbers)  # a few of many: sorting all would cost more
            return _ranks(self.wide_columns(used_numbers), len(used_numbers))[np.searchsorted(used_numbers, numbers)]
        if self._order is None:
            self._order = _ranks(self._columns, self.count)
        return self._order[numbers]

    def compact(self, holders: Sequence[KeyHolder]) -> None:
        """From time to time, remove the keys that no holder uses: numbers change, their order does not."""
        if self.count <= self._compact_above:
            return
        numbers = [keys for holder in holders for keys in holder.used_keys()]
        used_numbers = sorted_distinct(np.concatenate(numbers or [_NONE]))
        columns, before = self.wide_columns(used_numbers), self.count
        self._clear()
        renumbered = np.zeros(before, np.int64)
        renumbered[used_numbers] = self.numbers(columns, len(used_numbers))
        for holder in holders:
            holder.renumber(renumbered)
        self._compact_above = max(self._few, 2 * len(used_numbers))

    @staticmethod
    def _number_values(known: list[pa.Array], at: int, values: pa.Array) -> Ints:
        """Return the places of values among the known values; add new values to them."""
        encoded = pc.dictionary_encode(values, null_encoding="encode")
        if not len(known[at]):  # always the case for a dictionary that is used for one batch only
            known[at] = encoded.dictionary
            return encoded.indices.to_numpy().astype(np.int64)
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
        """Store the key columns of new numbers."""
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
    """The `by` columns of a table: equal keys get the same representation (`as_key`), texts 64-bit offsets."""
    return [as_key(contiguous(table[name].cast(_wide(table[name].type)))) for name in by]


def _wide(kind: pa.DataType) -> pa.DataType:
    return _wide(kind.value_type) if pa.types.is_dictionary(kind) else _WIDE.get(kind, kind)


def _narrow(column: pa.Array, places: pa.Array, kind: pa.DataType) -> Column:
    """Return rows of a column as type `kind`, in several chunks if one array of that type is too small."""
    wide_rows = column.take(places)
    if wide_rows.type == kind:
        return wide_rows
    if wide_rows.nbytes <= _CHUNK_BYTES:
        return wide_rows.cast(kind)
    offsets = np.frombuffer(wide_rows.buffers()[1], np.int64)[: len(wide_rows) + 1]
    chunks, start = [], 0
    while start < len(wide_rows):
        behind = int(np.searchsorted(offsets, offsets[start] + _CHUNK_BYTES, side="right")) - 1
        behind = max(behind, start + 1)
        chunks.append(column.take(places.slice(start, behind - start)).cast(kind))
        start = behind
    return pa.chunked_array(chunks, kind)
