"""The emitted panes of windows: for each (end, key) how many, and the row count of the last one.

Rule: the log of a window is dropped when its allowed lateness is over. Only plans with several panes a window keep it.
Rows are appended, and the newest row of a key counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import KeyedRows, KeyedTables
from keyedwm.operators.state.store import TableLogs

_PANES = "panes-"


@dataclass(frozen=True, slots=True)
class _WindowPanes(KeyedRows):
    """The panes of one window."""

    panes: Ints
    rows: Ints


class Keyed(Protocol):
    """A plan with by columns."""

    @property
    def key_fields(self) -> list[pa.Field]:
        """The by columns."""


class Numbered(Protocol):
    """Windows whose ends are numbered."""

    def frame_of(self, time_ms: int) -> int:
        """Return the number of an end."""

    def start_of(self, frame: int) -> int:
        """Return the end of this number."""


class PaneLog:
    """Logs by the window's end, counted in frames. prefix: of their names."""

    def __init__(self, plan: Keyed, window: Numbered, logs: TableLogs, prefix: str = _PANES) -> None:
        self._tables = KeyedTables(_WindowPanes, plan.key_fields)
        self._window = window
        self._logs = logs
        self._prefix = prefix
        self._ends = {window.frame_of(int(name.removeprefix(prefix))) for name in logs.names(prefix)}
        self._oldest = sorted(self._ends)  # a heap of them: forgetting looks at no others

    @staticmethod
    def owns(log: str) -> bool:
        """Return whether this is a log of panes."""
        return log.startswith(_PANES)

    def emitted(self, keys: KeyDictionary, numbers: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Return for each (key, end) how many panes were emitted, and the row count of the last one."""
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
        """Note how many panes were emitted by now, and the row counts of the last ones."""
        for end in sorted_distinct(ends).tolist():
            at_end = ends == end
            if end not in self._ends:
                self._ends.add(end)
                heappush(self._oldest, end)
            window_panes = _WindowPanes(emitted[at_end], panes[at_end], rows[at_end])
            self._logs.append(self._name(end), self._tables.table(keys, window_panes))

    def between(self, keys: KeyDictionary, low: int, high: int) -> tuple[Ints, Ints]:
        """Return the (key, end) pairs with an emitted pane and an end in `[low, high]`."""
        ends = sorted(end for end in self._ends if low <= end <= high)
        keys_by_end = [self._read(keys, end).keys for end in ends]
        return np.concatenate([np.empty(0, np.int64), *keys_by_end]), np.repeat(
            np.array(ends, np.int64), [len(one) for one in keys_by_end]
        )

    def next_end(self, low: int) -> int | None:
        """Return the first end from `low` on of a window with an emitted pane."""
        return min((end for end in self._ends if end >= low), default=None)

    def last_end(self) -> int | None:
        """Return the last end of a window with an emitted pane."""
        return max(self._ends, default=None)

    def forget(self, last: int) -> None:
        """Drop the windows that end at frame `last` or before."""
        while self._oldest and self._oldest[0] <= last:
            end = heappop(self._oldest)
            self._ends.discard(end)
            self._logs.drop(self._name(end))

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of a log: of each key the last row."""
        return self._tables.merge(tables)

    def _read(self, keys: KeyDictionary, end: int) -> _WindowPanes:
        return self._tables.rows(keys, self._logs.read(self._name(end)) if end in self._ends else [])

    def _name(self, end: int) -> str:
        return f"{self._prefix}{self._window.start_of(end)}"
