"""The (key, window) pairs that panes by the clock, or late ones by count, must show: those with news.

Rule: a pair leaves the log when its pane is shown, and an empty log has nothing due: an idle query does not spin.
`panes.PaneTimer` and `panes.LateTimes` decide when panes are due. Late panes by count have no interval: a pair with too
few new messages waits until its window goes, and the window's messages then say whether it was shown since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.names import END
from keyedwm.operators.panes import LateTimes, PaneTimer
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import PairLog, Pairs
from keyedwm.operators.state.store import TableLogs


class PendingPanes:
    """Pairs of a key and a window's end, in a log. times: a beat for all of them, or times of each window."""

    def __init__(self, plan: StorePlan, log: str, logs: TableLogs, times: PaneTimer | LateTimes) -> None:
        self._pairs, self._times = PairLog(plan.key_fields, END, log, logs), times

    @property
    def due_ms(self) -> int | None:
        """When panes are due, None if nothing is pending."""
        return self._times.due_ms

    def state(self) -> list[Any]:
        """Return what a later instance needs to know, ready for JSON."""
        return list(self._times.state())

    def add(self, keys: KeyDictionary, changed: Mapping[int, Ints], now_ms: int) -> None:
        """Note that these keys of windows (by end) have news."""
        self._write(keys, changed)
        if isinstance(self._times, LateTimes):
            self._times.begin(now_ms, changed)
        elif changed:
            self._times.begin(now_ms)

    def drain(self, keys: KeyDictionary, now_ms: int) -> dict[int, Ints]:
        """Return the keys of windows that are to be shown now, by end, ascending."""
        if isinstance(self._times, LateTimes):
            due = set(self._times.due(now_ms))
            return self._taken(keys, due.__contains__) if due else {}
        if not self._times.is_due(now_ms):
            return {}
        self._times.end()
        return self._all(keys)

    def leaving(self, keys: KeyDictionary, last: int) -> dict[int, Ints]:
        """Return the keys of windows that end by `last`, which are to be shown before they go."""
        return self._taken(keys, lambda end: end <= last)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of the log: each pair once."""
        return self._pairs.merge(tables)

    def _taken(self, keys: KeyDictionary, is_meant: Callable[[int], bool]) -> dict[int, Ints]:
        """Take what is pending of the windows that are meant, by end, ascending; the others wait on."""
        pending = self._all(keys)
        kept = {end: numbers for end, numbers in pending.items() if not is_meant(end)}
        self._write(keys, kept)
        if isinstance(self._times, LateTimes):
            self._times.keep(kept)
        return {end: numbers for end, numbers in pending.items() if end not in kept}

    def _write(self, keys: KeyDictionary, changed: Mapping[int, Ints]) -> None:
        for end, numbers in changed.items():
            self._pairs.append(keys, Pairs(numbers, np.full(len(numbers), end, np.int64)))

    def _all(self, keys: KeyDictionary) -> dict[int, Ints]:
        found = self._pairs.take(keys)
        return {end: found.keys[found.bounds == end] for end in np.unique(found.bounds).tolist()}
