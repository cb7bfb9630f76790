"""What panes by the clock, or late ones by count, must show: (key, window) pairs that have news, and when it is due.

Rule: what was shown has no news, and without news nothing is due: an idle query does not spin. Early panes keep to the
beat that the first news began. Late panes of a window wait an interval from the first news of it that is pending,
whatever is pending of other windows. Those by count have no interval: what was not enough waits until its window goes,
which tells by its messages whether it was shown since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.names import END
from keyedwm.operators.panes import Early
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import KeyedTables, Pairs
from keyedwm.operators.state.store import TableLogs


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


class WindowTimes:
    """When each window's late panes are due. facts: as `facts` gave them; an earlier keyedwm knew one time of all."""

    def __init__(self, every_ms: int | None, facts: Sequence[Any] = (None, None)) -> None:
        self._every_ms = every_ms
        together_ms, _, *found = facts
        self._due_ms: dict[int, int] = dict(found[0]) if found else {}  # by the window's end
        self._together_ms: int | None = None if found else together_ms

    def facts(self) -> list[Any]:
        """Return what a later instance needs to know, ready for JSON."""
        if self._together_ms is not None:
            return [self._together_ms, None]
        return [self.due_ms, None, *([sorted(map(list, self._due_ms.items()))] if self._due_ms else [])]

    @property
    def due_ms(self) -> int | None:
        """When something is due, None if nothing is pending."""
        together = [] if self._together_ms is None else [self._together_ms]
        return min([*together, *self._due_ms.values()], default=None)

    def begin(self, now_ms: int, ends: Iterable[int]) -> None:
        """There is news of these windows at this time."""
        if self._every_ms is not None and self._together_ms is None:
            for end in ends:
                self._due_ms.setdefault(end, now_ms + self._every_ms)

    def is_due(self, end: int, now_ms: int) -> bool:
        """Whether a window's late panes are to be shown now."""
        due_ms = self._together_ms if self._together_ms is not None else self._due_ms.get(end)
        return due_ms is not None and due_ms <= now_ms

    def keep(self, ends: Iterable[int]) -> None:
        """There is news of these windows only, the others were shown."""
        kept = set(ends)
        self._due_ms = {end: due_ms for end, due_ms in self._due_ms.items() if end in kept}
        if not kept:
            self._together_ms = None


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
        facts: Sequence[Any] = (None, None),
    ) -> None:
        self._log, self._logs, self._every_ms = log, logs, every_ms
        self._pairs = KeyedTables(Pairs, plan.key_fields, (END,))
        self._beat = Beat(every_ms, keeps_beat=True, facts=facts) if keeps_beat else None
        self._times = WindowTimes(every_ms, (None, None) if keeps_beat else facts)

    @property
    def due_ms(self) -> int | None:
        """When panes are due, None if nothing is pending."""
        return self._times.due_ms if self._beat is None else self._beat.due_ms

    def facts(self) -> list[Any]:
        """Return what a later instance needs to know, ready for JSON."""
        return self._times.facts() if self._beat is None else self._beat.facts()

    def add(self, keys: KeyDictionary, changed: Mapping[int, Ints], now_ms: int) -> None:
        """Note that these keys of windows (by end) have news."""
        self._write(keys, changed)
        if self._beat is None:
            self._times.begin(now_ms, changed)
        elif changed:
            self._beat.begin(now_ms)

    def drain(self, keys: KeyDictionary, now_ms: int) -> dict[int, Ints]:
        """Return the keys of windows that are to be shown now, by end, ascending."""
        if self.due_ms is None or now_ms < self.due_ms:
            return {}
        if self._beat is not None:
            self._beat.end()
            return self._all(keys)
        return self._taken(keys, lambda end: self._times.is_due(end, now_ms))

    def leaving(self, keys: KeyDictionary, last: int) -> dict[int, Ints]:
        """Return the keys of windows that end by `last`, which are to be shown before they go."""
        if self.due_ms is None and self._every_ms is not None:
            return {}
        return self._taken(keys, lambda end: end <= last)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of the log: each pair once."""
        return self._pairs.merge(tables)

    def _taken(self, keys: KeyDictionary, is_meant: Callable[[int], bool]) -> dict[int, Ints]:
        """Take what is pending of the windows that are meant, by end, ascending; the others wait on."""
        pending = self._all(keys)
        kept = {end: numbers for end, numbers in pending.items() if not is_meant(end)}
        self._write(keys, kept)
        self._times.keep(kept)
        return {end: numbers for end, numbers in pending.items() if end not in kept}

    def _write(self, keys: KeyDictionary, changed: Mapping[int, Ints]) -> None:
        for end, numbers in changed.items():
            self._logs.append(self._log, self._pairs.table(keys, Pairs(numbers, np.full(len(numbers), end, np.int64))))

    def _all(self, keys: KeyDictionary) -> dict[int, Ints]:
        found = self._pairs.rows(keys, self._logs.read(self._log))
        self._logs.drop(self._log)
        return {end: found.keys[found.bounds == end] for end in np.unique(found.bounds).tolist()}
