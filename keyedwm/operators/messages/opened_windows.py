"""The windows that messages opened: their keys and starts, and how many panes each had.

Rule: a window is its key and its start, so two messages of one key and time open one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.state.keyed_log import KeyedLog, KeyedRows
from keyedwm.operators.state.store import TableLogs

OPENED = "opened"  # the log


@dataclass(frozen=True, slots=True)
class Opened(KeyedRows):
    """Windows, in order of key number and start. panes: how many each had."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("starts",)
    starts: Ints
    panes: Ints


class OpenedWindows(KeyedLog[Opened]):
    """The windows that are known."""

    def __init__(self, by: Sequence[pa.Field], logs: TableLogs) -> None:
        super().__init__(Opened, by, logs, OPENED)

    def open(self, keys: Ints, starts: Ints) -> None:
        """Know windows of these keys from these starts on."""
        first, behind = spans(keys, starts, starts + 1, self.rows.keys, self.rows.starts)
        fresh = Opened(keys, starts, np.zeros(len(keys), np.int64)).take(first == behind)
        if len(fresh):
            self.put(fresh.newest())

    def mark_shown(self, places: Ints) -> None:
        """Count a pane of these windows."""
        shown = self.rows.take(places)
        self.change(places, replace(shown, panes=shown.panes + 1))


def spans(groups: Ints, lows: Ints, highs: Ints, of: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return where the places of each group in `[low, high)` begin and end; of, at: groups and places, ascending."""
    distinct = np.unique(at)
    width = len(distinct) + 1
    codes = of * width + np.searchsorted(distinct, at)
    first, behind = (np.searchsorted(codes, groups * width + np.searchsorted(distinct, edge)) for edge in (lows, highs))
    return first, behind
