"""The (key, window) pairs with new messages, which panes by time, or late panes by count, must show.

Rule: a pair leaves the log when its pane is shown. `panes.PanePolicy` decides when panes are due. Late panes by count
have no time: a pair with too few new messages waits until its window is dropped. The window's messages then decide
whether it was shown in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.panes import WindowFilter
from keyedwm.operators.results import END
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import PairLog, Pairs
from keyedwm.operators.state.store import TableLogs

ByEnd = dict[int, Ints]  # window's end → numbers of keys; ends and numbers ascend


class PendingPanes:
    """Pairs of a key and a window's end, in a log."""

    def __init__(self, plan: StorePlan, log: str, logs: TableLogs) -> None:
        self._pairs = PairLog(plan.key_fields, END, log, logs)

    def add(self, keys: KeyDictionary, changed: Mapping[int, Ints]) -> None:
        """Add keys of windows that have new messages."""
        for end, numbers in changed.items():
            self._pairs.append(keys, Pairs(numbers, np.full(len(numbers), end, np.int64)))

    def pop_due(self, keys: KeyDictionary, is_due: WindowFilter) -> tuple[ByEnd, ByEnd]:
        """Remove the pairs of the windows that are due. Return them, and the pairs that still wait."""
        pairs = self._pairs.pop_all(keys)
        ends = sorted_distinct(pairs.bounds)
        both: tuple[ByEnd, ByEnd] = {}, {}
        for end, is_meant in zip(ends.tolist(), is_due(ends).tolist(), strict=True):
            both[not is_meant][end] = pairs.keys[pairs.bounds == end]
        self.add(keys, both[1])
        return both
