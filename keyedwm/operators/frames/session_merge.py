"""Merging of intervals into sessions, whole columns at once (rule 11).

Theory. Every event of a key is an interval from its time on, as long as the gap (each row's own, where rows have one).
Intervals that overlap belong to one session, and with `Touching.MERGE` also those that touch. A session is therefore
what hangs together, and its interval is the union of its parts:

    events    [--a--)   [--b--)      [--c--)
                  [--d--)
    task 1    [--a--)                [--c--)        a and c, each a run of its own
    task 2        [--d----b---)                     d ends where b begins
    merged    [-------a-------)      [--c--)        two sessions

1. Parts are values. A union does not depend on order or grouping, so the runs of a task, the parts in the state and
   sessions themselves are merged by the same function, as often as it is convenient, and their accumulators with them.
   Parts of one session may lie apart in the state, until the watermark comes to the end that they have together.
2. One sweep merges them: in order of key, then start, an interval belongs to the session before it unless it starts
   beyond the highest end so far. It is the highest and not the last one: an interval may cover shorter ones behind it.
3. A part may be wider than its own events, never wider than its session. So a part that was merged with others, and
   written alone, finds the rest of its session again by its interval.
4. A session is closed when the watermark is at its end, with `Touching.MERGE` when it is beyond (`closed_ms`): an event
   exactly at the end would still belong to it. Late is judged after merging, for the same reason: an event behind the
   watermark is not late if it hangs together with a session that is open.
5. Held sessions are never closed. So a run that closes as a whole took in no held one, and all of it is late; and a run
   that is not closed by itself is not late, whatever it meets.
"""

from __future__ import annotations

import numpy as np

from keyedwm.arrow.columns import Ints
from keyedwm.core.window_rules import Touching
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
