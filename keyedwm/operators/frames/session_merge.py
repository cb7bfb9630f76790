"""Merging of intervals into sessions, whole columns at once (rule 11)."""

from __future__ import annotations

import numpy as np

from keyedwm.arrow.columns import Ints
from keyedwm.core.touching import Touching
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.kernels import sorted_by_number
from keyedwm.runtime.compiled import compiled


def joined_runs(window: SessionWindow, keys: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Return each interval's session number, and the sessions' starts and ends, ordered by start, then key."""
    by_time = np.argsort(starts)  # the order of equal starts does not matter
    order = by_time[sorted_by_number(keys[by_time], int(keys.max(initial=-1)) + 1)]
    ids, low, high = _joined(keys, starts, ends, order, window.touching is Touching.MERGE)
    by_start = np.argsort(low, kind="stable")
    place = np.empty(len(low), np.int64)
    place[by_start] = np.arange(len(low))
    return place[ids], low[by_start], high[by_start]


@compiled
def _joined(keys: Ints, starts: Ints, ends: Ints, order: Ints, touching: bool) -> tuple[Ints, Ints, Ints]:
    """`order` sorts by key, then start; sessions are numbered in that order."""
    rows = order.shape[0]
    ids = np.empty(rows, np.int64)
    low, high = np.empty(rows, np.int64), np.empty(rows, np.int64)
    count = 0
    for at in range(rows):
        row = order[at]
        joins = False
        if at and keys[row] == keys[order[at - 1]]:
            joins = starts[row] <= high[count - 1] if touching else starts[row] < high[count - 1]
        if joins:
            high[count - 1] = max(high[count - 1], ends[row])
        else:
            low[count], high[count] = starts[row], ends[row]
            count += 1
        ids[row] = count - 1
    return ids, low[:count].copy(), high[:count].copy()
