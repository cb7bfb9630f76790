"""Sessions, or parts of them: how intervals merge (rule 11), when a session closes, and what late rows become.

Theory. Every event of a key is an interval from its time on, as long as the gap (each row's own gap, if rows have one).
Intervals that overlap belong to one session, and with `Touching.MERGE` also those that touch. So a session is a
connected set of intervals, and its own interval is the union of its parts:

    events    [--a--)   [--b--)      [--c--)
                  [--d--)
    task 1    [--a--)                [--c--)        a and c, each a run of its own
    task 2        [--d----b---)                     d ends where b begins
    merged    [-------a-------)      [--c--)        two sessions

1. Parts are values. A union does not depend on order or grouping. So one function merges the runs of a task, the parts
   in the state and sessions, with their accumulators, at any time. Parts of one session may lie apart in the state,
   until the watermark reaches the end of the session.
2. One sweep merges them: in order of key, then start, an interval belongs to the session before it unless it starts
   beyond the highest end so far. The highest end counts, not the last: an interval may cover shorter ones after it.
3. A part may be wider than its own events, never wider than its session. So a part that was merged with others, and
   written alone, finds the rest of its session again by its interval.
4. A session is closed when the watermark is at its end, with `Touching.MERGE` when it is beyond: an event exactly at
   the end would still belong to it (`core/lateness.py`). Late is judged after merging, for the same reason: an event
   behind the watermark is not late if it hangs together with a session that is open.
5. Held sessions are never closed. So a run that closes as a whole took in no held one, and all of it is late; and a run
   that is not closed by itself is not late, whatever it meets.

Parts stand in memory and as a table, an entry and an interval each. The rules of closing and of late rows hold for
sessions with panes and without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.core.lateness import delay_ms, has_ended
from keyedwm.core.window_rules import Touching
from keyedwm.operators.aggregates.aggregate_function import Groups
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.kernels import count_by_group, sorted_by_number
from keyedwm.operators.results import END, START
from keyedwm.operators.state.entries import EntryRows, merged
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


# Version 2 and earlier versions stored sessions in slices by their ends; the name has the beginning of a slice.
SLICE = "sessions-"


@dataclass(frozen=True, slots=True)
class SessionParts(EntryRows):
    """Sessions or parts of them, row by row; every interval is `[start, end)`."""

    COLUMNS: ClassVar[tuple[str, ...]] = (START, END)
    starts: Ints
    ends: Ints

    @property
    def first_end(self) -> int | None:
        """The lowest end, None if there are no rows."""
        return int(self.ends.min()) if len(self) else None


# The most results in one output when a watermark closes many sessions.
_PIECE_ROWS = 200_000
_Parts = TypeVar("_Parts", bound=SessionParts)


def by_end(sessions: _Parts) -> Iterator[_Parts]:
    """Yield sessions by end and start, in pieces that bound an output."""
    order = np.lexsort((sessions.starts, sessions.ends))
    for at in range(0, len(order), _PIECE_ROWS):
        yield sessions.take_rows(order[at : at + _PIECE_ROWS])


class MergedSessions:
    """Parts merged into sessions: the session of each part, and the interval of each session."""

    def __init__(self, plan: WindowPlan, window: SessionWindow, parts: SessionParts) -> None:
        self._plan = plan
        self._parts = parts
        self.ids, self.starts, self.ends = joined_runs(window, parts.entries.keys, parts.starts, parts.ends)

    def merged(self, is_part: Flags) -> SessionParts:
        """Merge the chosen parts of each session into one that is as wide as the session."""
        ids = self.ids[is_part]
        is_there = count_by_group(ids, len(self.starts)) > 0
        numbers = np.cumsum(is_there) - 1
        session_numbers = np.flatnonzero(is_there)
        entries = self._parts.entries.take_rows(np.flatnonzero(is_part))
        keys = np.empty(len(session_numbers), np.int64)
        keys[numbers[ids]] = entries.keys
        if len(session_numbers) < len(ids):
            entries = merged(self._plan, entries, Groups(numbers[ids], len(session_numbers)), keys)
        else:
            order = np.empty(len(ids), np.int64)
            order[numbers[ids]] = np.arange(len(ids))
            entries = entries.take_rows(order)
        return SessionParts(entries, self.starts[session_numbers], self.ends[session_numbers])


def lowered_ms(window: SessionWindow, ends: Ints, time_ms: int, most: int | None) -> int:
    """Return the highest watermark up to `time_ms` that closes `most` of these ends, and equal ends."""
    closing = ends[has_ended(ends, window.horizon_ms(time_ms))]
    if most is None or len(closing) <= most:
        return time_ms
    return int(np.partition(closing, most - 1)[most - 1]) + delay_ms(touching=window.touching)
