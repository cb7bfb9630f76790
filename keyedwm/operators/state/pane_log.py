"""The emitted panes of windows: for each (end, key) their number, and the row count of the last pane.

Rule: the log of a window is dropped when its allowed lateness is over. Only plans with several panes a window keep it.
Rows are appended, and the newest row of a key counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import KeyedRows, KeyedTables
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import Numbering, SlicedTable

_PANES = "panes-"


@dataclass(frozen=True, slots=True)
class _WindowPanes(KeyedRows):
    """The panes of one window."""

    panes: Ints
    rows: Ints


class Keyed(Protocol):
    """A plan with key columns."""

    @property
    def key_fields(self) -> list[pa.Field]:
        """The key columns."""


class PaneLog:
    """Logs by the window's end, counted in frames. prefix: the prefix of their names."""

    def __init__(self, plan: Keyed, window: Numbering, logs: TableLogs, prefix: str = _PANES) -> None:
        self._tables = KeyedTables(_WindowPanes, plan.key_fields)
        self._by_end = SlicedTable(logs, prefix, self._tables.merge, window)

    def emitted(self, keys: KeyDictionary, numbers: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Return for each (key, end) the number of emitted panes, and the row count of the last pane."""
        panes, rows = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
        for end in sorted_distinct(ends).tolist():
            window_panes = self._read(keys, end)
            if not len(window_panes.keys):
                continue
            at_end = np.flatnonzero(ends == end)
            at = np.minimum(np.searchsorted(window_panes.keys, numbers[at_end]), len(window_panes.keys) - 1)
            known = window_panes.keys[at] == numbers[at_end]
            panes[at_end[known]] = window_panes.panes[at[known]]
            rows[at_end[known]] = window_panes.rows[at[known]]
        return panes, rows

    def append(self, keys: KeyDictionary, emitted: Ints, ends: Ints, panes: Ints, rows: Ints) -> None:
        """Store the number of panes emitted so far, and the row counts of the last panes."""
        self._by_end.add(self._tables.table(keys, _WindowPanes(emitted, panes, rows)), ends)

    def between(self, keys: KeyDictionary, low: int, high: int) -> tuple[Ints, Ints]:
        """Return the (key, end) pairs with an emitted pane and an end in `[low, high]`."""
        ends = self._by_end.between(low, high + 1)
        keys_by_end = [self._read(keys, end).keys for end in ends]
        return np.concatenate([np.empty(0, np.int64), *keys_by_end]), np.repeat(
            np.array(ends, np.int64), [len(one) for one in keys_by_end]
        )

    def next_end(self, low: int) -> int | None:
        """Return the first end from `low` on of a window with an emitted pane."""
        return min((end for end in self._by_end.numbers if end >= low), default=None)

    def last_end(self) -> int | None:
        """Return the last end of a window with an emitted pane."""
        return max(self._by_end.numbers, default=None)

    def forget(self, last: int) -> None:
        """Drop the windows that end at frame `last` or before."""
        self._by_end.drop_below(last + 1)

    def _read(self, keys: KeyDictionary, end: int) -> _WindowPanes:
        return self._tables.rows(keys, self._by_end.read(end))
