"""Pairs of a key and a window, in a log: which windows have news for a later pane.

Rule: the log holds keys, not their numbers, which are an instance's own; merging keeps each pair once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, contiguous, ints
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns

_NONE = np.empty(0, np.int64)


class PairTables:
    """The tables of such a log. key_fields: of the plan; bound: the column that says which window."""

    def __init__(self, key_fields: Sequence[pa.Field], bound: str) -> None:
        self._key_fields, self._bound = tuple(key_fields), bound
        self._schema = pa.schema([*self._key_fields, (bound, pa.int64())])

    def table(self, keys: KeyDictionary, numbers: Ints, bounds: Ints) -> pa.Table:
        """Return pairs as a table: keys by number, and the bounds (ms) of their windows."""
        return pa.Table.from_arrays([*keys.columns(numbers), pa.array(bounds)], schema=self._schema)

    def pairs(self, keys: KeyDictionary, tables: Sequence[pa.Table]) -> tuple[Ints, Ints]:
        """Return the numbers of keys and the bounds of the windows in tables, each pair once."""
        if not tables:
            return _NONE, _NONE
        table = pa.concat_tables(tables)
        numbers = keys.numbers(key_columns([field.name for field in self._key_fields], table), table.num_rows)
        _, bounds, found = pair_groups(ints(contiguous(table[self._bound])), numbers, keys.count)
        return found, bounds

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of the log."""
        keys = KeyDictionary(self._key_fields)
        return self.table(keys, *self.pairs(keys, tables))
