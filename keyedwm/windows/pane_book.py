"""Which panes of a window came already: for each (end, key) how many, and of how many rows the last one told.

Rule: a window's book is closed when its allowed lateness is over. Kept only by plans that can have several panes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.windows.columns import Ints, contiguous, ints
from keyedwm.windows.keys import Keys, key_columns
from keyedwm.windows.plan import HIDDEN, ROWS, Plan, Sliding
from keyedwm.windows.state import Changes, packed, unpacked

_PANES = "panes-"
_COUNT = f"{HIDDEN}panes"


@dataclass(frozen=True, slots=True)
class _Page:
    """Of one window, in order of key number."""

    keys: Ints
    panes: Ints
    rows: Ints


class PaneBook:
    """Pages by a window's end, in frames."""

    def __init__(self, plan: Plan, window: Sliding, keys: Keys, changes: Changes) -> None:
        self._plan = plan
        self._window = window
        self._keys = keys
        self._changes = changes
        self._pages: dict[int, _Page] = {}

    def told(self, keys: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """For each (key, end) how many panes came, and the rows of the last."""
        panes, rows = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        for end in np.unique(ends).tolist():
            page = self._pages.get(end)
            if page is None:
                continue
            mine = np.flatnonzero(ends == end)
            at = np.minimum(np.searchsorted(page.keys, keys[mine]), len(page.keys) - 1)
            known = page.keys[at] == keys[mine]
            panes[mine[known]] = page.panes[at[known]]
            rows[mine[known]] = page.rows[at[known]]
        return panes, rows

    def write(self, keys: Ints, ends: Ints, panes: Ints, rows: Ints) -> None:
        """Panes have come."""
        for end in np.unique(ends).tolist():
            mine = ends == end
            page = self._pages.get(end, _Page(*(np.empty(0, np.int64),) * 3))
            everything = [
                np.concatenate([new[mine], old])
                for new, old in ((keys, page.keys), (panes, page.panes), (rows, page.rows))
            ]
            _, first = np.unique(everything[0], return_index=True)  # the first of equal keys: what is new
            self._pages[end] = _Page(*(column[first] for column in everything))
            self._changes.touch([self._name(end)])

    def between(self, low: int, high: int) -> tuple[Ints, Ints]:
        """The (key, end) in the book with ends in `[low, high]`."""
        pages = [(end, page) for end, page in sorted(self._pages.items()) if low <= end <= high]
        keys = np.concatenate([np.empty(0, np.int64), *(page.keys for _, page in pages)])
        return keys, np.repeat(np.array([end for end, _ in pages], np.int64), [len(page.keys) for _, page in pages])

    def last_end(self) -> int | None:
        """Of the latest window in the book."""
        return max(self._pages, default=None)

    def forget(self, last: int) -> None:
        """Close the pages of windows that end at frame `last` or before."""
        gone = [end for end in self._pages if end <= last]
        for end in gone:
            del self._pages[end]
        self._changes.forget(map(self._name, gone))

    def clear(self) -> None:
        """Close the book."""
        self.forget(max(self._pages, default=0))

    def used_keys(self) -> list[Ints]:
        """The numbers of keys in the book."""
        return [page.keys for page in self._pages.values()]

    def renumber(self, renumbered: Ints) -> None:
        """Follow a compaction of the keys (which keeps their order)."""
        for end, page in self._pages.items():
            self._pages[end] = _Page(renumbered[page.keys], page.panes, page.rows)

    def blobs(self, names: set[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """The blobs of these names, or of all pages."""
        schema = pa.schema([*self._plan.key_fields, (_COUNT, pa.int64()), (ROWS, pa.int64())])
        for end, page in self._pages.items():
            name = self._name(end)
            if names is None or name in names:
                columns = [*self._keys.columns(page.keys), pa.array(page.panes), pa.array(page.rows)]
                yield name, packed(pa.Table.from_arrays(columns, schema=schema))

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Read the pages among these blobs."""
        for name, blob in state.items():
            if name.startswith(_PANES):
                table = unpacked(blob)
                keys = self._keys.numbers(key_columns(self._plan.by, table), table.num_rows)
                order = np.argsort(keys, kind="stable")
                panes, rows = ints(contiguous(table[_COUNT])), ints(contiguous(table[ROWS]))
                end_ms = int(name.removeprefix(_PANES))
                end = (end_ms - self._window.offset_ms) // self._window.slide_ms
                self._pages[end] = _Page(keys[order], panes[order], rows[order])

    def _name(self, end: int) -> str:
        return f"{_PANES}{self._window.offset_ms + end * self._window.slide_ms}"
