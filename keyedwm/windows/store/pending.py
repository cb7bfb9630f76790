"""What panes by the clock, or late ones by count, must show: (key, window) pairs that have news, and when it is due.

Rule: what was shown has no news, and without news nothing is due: an idle query does not spin. Early panes keep to the
beat that the first news began; late panes wait an interval from the first news that is pending. Those by count have no
interval: what was not enough waits until its window goes, which tells by its messages whether it was shown since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from keyedwm.windows.columns import Ints
from keyedwm.windows.pair_log import PairTables
from keyedwm.windows.plan import END, Early
from keyedwm.windows.state.key_dictionary import KeyDictionary
from keyedwm.windows.state.store import TableLogs
from keyedwm.windows.store.plan import StorePlan


def beat_of(early: Early | None) -> tuple[int | None, int | None]:
    """Return the facts with which a beat begins: by event time it is that of multiples of the interval."""
    return None, 0 if early is not None and early.by_event else None


class Beat:
    """When panes are due, every so often from the first news on; None: never. facts: as `facts` gave them."""

    def __init__(self, every_ms: int | None, *, keeps_beat: bool, facts: Sequence[int | None] = (None, None)) -> None:
        self._every_ms, self._keeps_beat = every_ms, keeps_beat
        self.due_ms, self._began_ms = facts

    def facts(self) -> list[int | None]:
        """Return what a later instance needs to know, ready for JSON."""
        return [self.due_ms, self._began_ms]

    def begin(self, now_ms: int) -> None:
        """There is news at this time."""
        if self.due_ms is None and self._every_ms is not None:
            if self._began_ms is None or not self._keeps_beat:
                self._began_ms = now_ms
            self.due_ms = now_ms + self._every_ms - (now_ms - self._began_ms) % self._every_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether what has news is to be shown now."""
        return self.due_ms is not None and now_ms >= self.due_ms

    def end(self) -> None:
        """All news was shown."""
        self.due_ms = None


class Pending:
    """Pairs of a key and a window's end, in a log. facts: as `facts` gave them."""

    def __init__(
        self,
        plan: StorePlan,
        log: str,
        logs: TableLogs,
        every_ms: int | None,
        *,
        keeps_beat: bool,
        facts: Sequence[int | None] = (None, None),
    ) -> None:
        self._log, self._logs, self._every_ms = log, logs, every_ms
        self._pairs = PairTables(plan.key_fields, END)
        self._beat = Beat(every_ms, keeps_beat=keeps_beat, facts=facts)

    @property
    def due_ms(self) -> int | None:
        """When panes are due, None if nothing is pending."""
        return self._beat.due_ms

    def facts(self) -> list[int | None]:
        """Return what a later instance needs to know, ready for JSON."""
        return self._beat.facts()

    def add(self, keys: KeyDictionary, changed: Mapping[int, Ints], now_ms: int) -> None:
        """Note that these keys of windows (by end) have news."""
        for end, numbers in changed.items():
            self._logs.append(self._log, self._pairs.table(keys, numbers, np.full(len(numbers), end, np.int64)))
        if changed:
            self._beat.begin(now_ms)

    def drain(self, keys: KeyDictionary, now_ms: int) -> dict[int, Ints]:
        """Return the keys of windows that are to be shown now, by end, ascending."""
        return self._all(keys) if self._beat.is_due(now_ms) else {}

    def leaving(self, keys: KeyDictionary, last: int) -> dict[int, Ints]:
        """Return the keys of windows that end by `last`, which are to be shown before they go."""
        if self.due_ms is None and self._every_ms is not None:
            return {}
        due_ms, pending = self.due_ms, self._all(keys)
        kept = {end: numbers for end, numbers in pending.items() if end > last}
        if kept:
            self.add(keys, kept, due_ms or 0)
            self._beat.due_ms = due_ms
        return {end: numbers for end, numbers in pending.items() if end <= last}

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of the log: each pair once."""
        return self._pairs.merge(tables)

    def _all(self, keys: KeyDictionary) -> dict[int, Ints]:
        found, ends = self._pairs.pairs(keys, self._logs.read(self._log))
        self._logs.drop(self._log)
        self._beat.end()
        return {end: found[ends == end] for end in np.unique(ends).tolist()}
