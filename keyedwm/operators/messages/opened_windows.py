"""What is known of the windows that messages opened: their keys and starts, and how many panes each had; a log of rows.

Rule: a window is its key and its start, so two messages of one key and time open one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.names import HIDDEN
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns

OPENED = "opened"  # the log
FACTS = tuple(f"{HIDDEN}{name}" for name in ("start", "panes"))


@dataclass(frozen=True, slots=True)
class Opened:
    """Windows, in order of key number and start. panes: how many each had."""

    keys: Ints
    starts: Ints
    panes: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, chosen: Ints | Flags) -> Opened:
        """Return some of them."""
        return Opened(self.keys[chosen], self.starts[chosen], self.panes[chosen])


class OpenedWindows:
    """The windows that are known. Numbers of keys mean nothing outside this instance."""

    def __init__(self, fields: Sequence[pa.Field], tables: Sequence[pa.Table] = ()) -> None:
        """fields: the by columns. tables: of the log, oldest first; of equal windows the newest row counts."""
        self._fields = tuple(fields)
        self.keys = KeyDictionary(self._fields)
        self.windows = Opened(*(np.empty(0, np.int64),) * 3)
        if tables:
            table = pa.concat_tables(tables[::-1])
            starts, panes = (ints(contiguous(table[name])) for name in FACTS)
            self._put(Opened(self.numbers(table), starts, panes))

    def numbers(self, rows: pa.Table) -> Ints:
        """Return the number of the key of each row; floats are equal as Spark groups them."""
        columns = key_columns([one.name for one in self._fields], rows)
        return self.keys.numbers(columns, rows.num_rows)

    def open(self, keys: Ints, starts: Ints) -> Opened:
        """Know windows of these keys from these starts on; return those that were not known."""
        first, behind = spans(keys, starts, starts + 1, self.windows.keys, self.windows.starts)
        fresh = Opened(keys, starts, np.zeros(len(keys), np.int64)).take(first == behind)
        fresh = self._once(fresh)
        if len(fresh):
            both = (np.concatenate(pair) for pair in zip(_columns(fresh), _columns(self.windows), strict=True))
            self._put(Opened(*both))
        return fresh

    def mark_shown(self, places: Ints) -> Opened:
        """Count a pane of these windows; return them."""
        self.windows.panes[places] += 1
        return self.windows.take(places)

    def forget(self, before: int) -> None:
        """Forget the windows that start before."""
        self.windows = self.windows.take(self.windows.starts >= before)

    def table(self, windows: Opened) -> pa.Table:
        """Return windows as a table of the log."""
        schema = pa.schema([*self._fields, *((name, pa.int64()) for name in FACTS)])
        facts = [pa.array(windows.starts), pa.array(windows.panes)]
        return pa.Table.from_arrays([*self.keys.columns(windows.keys), *facts], schema=schema)

    def compact(self) -> None:
        """Forget the keys without a window, now and then."""
        self.keys.compact([self])

    def used_keys(self) -> list[Ints]:
        """See KeyHolder."""
        return [self.windows.keys]

    def renumber(self, renumbered: Ints) -> None:
        """See KeyHolder."""
        self._put(Opened(renumbered[self.windows.keys], self.windows.starts, self.windows.panes))

    def _once(self, windows: Opened) -> Opened:
        """Return each window once, the first of equal ones."""
        ids, heads, _ = pair_groups(windows.starts, windows.keys, max(1, self.keys.count))
        first = np.empty(len(heads), np.int64)
        first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
        return windows.take(first)

    def _put(self, windows: Opened) -> None:
        once = self._once(windows)
        self.windows = once.take(np.lexsort((once.starts, once.keys)))


def spans(groups: Ints, lows: Ints, highs: Ints, of: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return where the places of each group in `[low, high)` begin and end; of, at: groups and places, ascending."""
    distinct = np.unique(at)
    width = len(distinct) + 1
    codes = of * width + np.searchsorted(distinct, at)
    first, behind = (np.searchsorted(codes, groups * width + np.searchsorted(distinct, edge)) for edge in (lows, highs))
    return first, behind


def merged(fields: Sequence[pa.Field], tables: Sequence[pa.Table]) -> pa.Table:
    """Merge parts of the log: of each window the newest row."""
    windows = OpenedWindows(fields, tables)
    return windows.table(windows.windows)


def _columns(windows: Opened) -> list[Ints]:
    return [windows.keys, windows.starts, windows.panes]
