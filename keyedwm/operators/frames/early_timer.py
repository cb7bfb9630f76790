"""What early panes every so often must show: what changed since the last ones, and when the next ones are due.

Rule: the clock starts with the first batch, with or without rows, so that all buckets fire together: a batch that only
the clock makes must have the barriers of all. It fires when `due_ms` has come and is then due an interval later. By
event time the same happens with the watermark in place of the clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.names import START
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import KeyedTables, Pairs
from keyedwm.operators.state.store import TableLogs

_CHANGED = "touched"


class EarlyTimer:
    """The (key, frame) pairs changed since the last early panes; none unless the plan has early panes by time."""

    def __init__(self, plan: WindowPlan, due_ms: int | None, logs: TableLogs) -> None:
        self._pairs = KeyedTables(Pairs, plan.key_fields, (START,))
        self._logs = logs
        self._early = plan.early if plan.early is not None and plan.early.every_ms is not None else None
        self.due_ms = due_ms

    @staticmethod
    def owns(log: str) -> bool:
        """Return whether this is the log of changes."""
        return log == _CHANGED

    def append(self, keys: KeyDictionary, changed: Ints, frames: Ints) -> None:
        """Note that these have changed."""
        if self._early is not None and len(changed):
            self._logs.append(_CHANGED, self._pairs.table(keys, Pairs(changed, frames)))

    def start(self, now_ms: int | None) -> None:
        """Start the clock, if it does not run yet."""
        if self._early is not None and self.due_ms is None and now_ms is not None:
            self.due_ms = self._early.next_ms(now_ms)

    def drain(self, keys: KeyDictionary, now_ms: int) -> tuple[Ints, Ints]:
        """Return what is to be shown now, if panes are due; it counts as unchanged from then on."""
        if self._early is None or self.due_ms is None or now_ms < self.due_ms:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self.due_ms = self._early.next_ms(now_ms)
        found = self._pairs.rows(keys, self._logs.read(_CHANGED))
        self.clear()
        return found.keys, found.bounds

    def clear(self) -> None:
        """Count everything as unchanged."""
        self._logs.drop(_CHANGED)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of the log: each pair once."""
        return self._pairs.merge(tables)
