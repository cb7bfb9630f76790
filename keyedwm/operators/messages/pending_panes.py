"""The (key, window) pairs that panes by time, or late ones by count, must show: those with news.

Rule: a pair leaves the log when its pane is shown. `panes.PanePolicy` decides when panes are due. Late panes by count
have no time: a pair with too few new messages waits until its window goes, and the window's messages then say whether
it was shown since.
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

ByEnd = dict[int, Ints]  # the numbers of keys of windows, by their ends, ascending


class PendingPanes:
    """Pairs of a key and a window's end, in a log."""

    def __init__(self, plan: StorePlan, log: str, logs: TableLogs) -> None:
        self._pairs = PairLog(plan.key_fields, END, log, logs)

    def add(self, keys: KeyDictionary, changed: Mapping[int, Ints]) -> None:
        """Note that these keys of windows have news."""
        for end, numbers in changed.items():
            self._pairs.append(keys, Pairs(numbers, np.full(len(numbers), end, np.int64)))

    def pop_due(self, keys: KeyDictionary, is_due: WindowFilter) -> tuple[ByEnd, ByEnd]:
        """Take the pairs of the windows that are meant. Return them, and those that wait on."""
        pairs = self._pairs.pop_all(keys)
        ends = sorted_distinct(pairs.bounds)
        both: tuple[ByEnd, ByEnd] = {}, {}
        for end, is_meant in zip(ends.tolist(), is_due(ends).tolist(), strict=True):
            both[not is_meant][end] = pairs.keys[pairs.bounds == end]
        self.add(keys, both[1])
        return both
