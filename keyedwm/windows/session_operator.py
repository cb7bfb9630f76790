"""Session windows, whole columns at once (DESIGN rule 11; scalar reference: core.sessions).

Rule: partials are runs of events within the gap; they join each other and the held sessions first, then what came out
is judged: late if it is closed, allowed lateness included. A held session is never closed, so late is new alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from keyedwm.core.errors import InputError
from keyedwm.core.late import LateRule
from keyedwm.core.sessions import Touching
from keyedwm.windows.columns import Flags, Ints, contiguous, ints
from keyedwm.windows.entries import Entries, joined, merged, neutral, read_entries
from keyedwm.windows.keys import Keys, key_columns
from keyedwm.windows.kinds import Groups
from keyedwm.windows.loops import add_by_group, highest_by_group
from keyedwm.windows.plan import END, LAST, START, LatePolicy, Plan, Session, Timing
from keyedwm.windows.results import Panes, late_sentence, results, together
from keyedwm.windows.session_table import Held, Intervals, SessionTable, all_of, new_sessions
from keyedwm.windows.sessions import joined_runs
from keyedwm.windows.state import note, read_note


class SessionOperator:
    """One operator instance: one Jet processor. `late_rows` counts what was late since it was built."""

    def __init__(self, plan: Plan, window: Session, state: Mapping[str, bytes]) -> None:
        self._plan = plan
        self._window = window
        self._every_ms = None if plan.early is None else plan.early.every_ms
        self._accumulating = plan.accumulating or not plan.has_panes
        self._keys = Keys(plan.key_fields)
        facts = read_note(plan, state) if state else {}
        self._table = SessionTable(plan, self._keys, window.gap_ms, state)
        self._due_ms = facts.get("due_ms")
        self.watermark_ms = facts.get("watermark_ms")
        self.late_rows = 0

    @property
    def open_frames(self) -> int:
        """How many sessions are held."""
        return len(self._table.held)

    def take(self, partials: pa.Table, now_ms: int | None = None) -> pa.Table:
        """Hold partials; return the panes they give at once: expired rows, late panes, early panes by count."""
        if self._every_ms is not None and self._due_ms is None and now_ms is not None:
            self._due_ms = now_ms + self._every_ms
        keys = self._keys.numbers(key_columns(self._plan.by, partials), partials.num_rows)
        starts, ends = (ints(contiguous(partials[name])) for name in (START, END))
        new = new_sessions(read_entries(self._plan, keys, partials), starts, ends)
        shown = []
        if self._plan.late_rule is LateRule.EVENT and self.watermark_ms is not None:
            late = ints(contiguous(partials[LAST])) < self.watermark_ms
            shown.append(self._expired(new.take(np.flatnonzero(late))))
            new = new.take(np.flatnonzero(~late))
        if len(new):
            shown += self._join(new)
        return together(self._plan, shown)

    def advance(self, watermark_ms: int) -> pa.Table:
        """Close the sessions that can take nothing more."""
        if self.watermark_ms is not None and watermark_ms <= self.watermark_ms:
            return self._plan.result_schema.empty_table()
        self.watermark_ms = watermark_ms
        held = self._table.held
        is_gone = self._closed(held.intervals.ends, self._plan.lateness_ms)
        is_closing = self._closed(held.intervals.ends, 0) & (held.intervals.shown == 0)
        kept = self._after(held.take(np.flatnonzero(is_closing & ~is_gone)), shown=1)
        changed = np.flatnonzero(is_closing | is_gone)
        self._table.replace(changed, kept, _rest(len(held), changed))
        closed = self._shown(held.take(np.flatnonzero(is_closing)), Timing.ON_TIME)  # before keys get other numbers
        self._keys.compact([self._table])
        return closed

    def clock(self, now_ms: int) -> pa.Table:
        """Wall-clock time has come to `now_ms`: if due, early panes of the open sessions touched since the last."""
        if self._every_ms is None or self._due_ms is None or now_ms < self._due_ms:
            return self._plan.result_schema.empty_table()
        self._due_ms = now_ms + self._every_ms
        held = self._table.held
        places = np.flatnonzero((held.intervals.touched == 1) & ~self._closed(held.intervals.ends, 0))
        early = held.take(places)
        self._table.replace(places, self._after(early, shown=0), _rest(len(held), places))
        return self._shown(early, Timing.EARLY)

    def complete(self) -> pa.Table:
        """The input has ended: close every session, and keep nothing."""
        held = self._table.held
        left = np.flatnonzero(held.intervals.shown == 0)
        nothing = np.empty(0, np.int64)
        self._table.replace(np.arange(len(held)), held.take(nothing), nothing)
        return self._shown(held.take(left), Timing.ON_TIME)

    def snapshot(self) -> dict[str, bytes]:
        """Everything the next step depends on, as named blobs."""
        return self._table.blobs() | dict([self._note()])

    def changed(self) -> tuple[dict[str, bytes], set[str]]:
        """The blobs that are new or other than at the last question, and the names of those that are no more."""
        blobs, gone = self._table.changed()
        return blobs | dict([self._note()]), gone

    def _note(self) -> tuple[str, bytes]:
        return note(self._plan, {"watermark_ms": self.watermark_ms, "due_ms": self._due_ms})

    def _closed(self, ends: Ints, lateness_ms: int) -> Flags:
        """Which sessions take nothing more."""
        if self.watermark_ms is None:
            return np.zeros(len(ends), bool)
        limit_ms = self.watermark_ms - lateness_ms
        return ends < limit_ms if self._window.touching is Touching.MERGE else ends <= limit_ms

    def _join(self, new: Held) -> list[pa.Table]:
        """Join partials with each other and with the held sessions of their keys; return the panes this gives."""
        held = self._table.held
        mine = np.zeros(self._keys.count, bool)
        mine[new.entries.keys] = True
        is_mine = mine[held.entries.keys]
        places = np.flatnonzero(is_mine)
        whole, is_new = self._united(held.take(places), new)
        late = is_new & self._closed(whole.intervals.ends, self._plan.lateness_ms)
        shown = [self._expired(whole.take(np.flatnonzero(late)))]
        kept = np.flatnonzero(~late)
        rest = np.flatnonzero(~is_mine)
        self._table.replace(places, whole.take(kept), rest)
        if self._plan.has_panes:
            shown += self._panes_at_once(len(rest) + np.flatnonzero(is_new[kept]))
        return shown

    def _united(self, before: Held, new: Held) -> tuple[Held, Flags]:
        """The sessions that held ones and new runs make together, and which of them hold something new."""
        entries = joined([before.entries, new.entries])
        starts = np.concatenate([before.intervals.starts, new.intervals.starts])
        ends = np.concatenate([before.intervals.ends, new.intervals.ends])
        ids, low, high = joined_runs(self._window, entries.keys, starts, ends)
        groups = Groups(ids, len(low))
        keys = np.empty(len(low), np.int64)
        keys[ids] = entries.keys
        is_new = np.zeros(len(low), bool)
        is_new[ids[len(before) :]] = True
        shown = highest_by_group(before.intervals.shown, ids[: len(before)], len(low))
        panes = highest_by_group(before.intervals.panes, ids[: len(before)], len(low))
        told, _ = add_by_group(before.intervals.told_rows, ids[: len(before)], len(low))
        touched = is_new | (highest_by_group(before.intervals.touched, ids[: len(before)], len(low)) > 0)
        shown[is_new] = 0
        intervals = Intervals(low, high, shown, panes, told, touched.astype(np.int64))
        return Held(self._merged(entries, groups, keys), intervals), is_new

    def _merged(self, entries: Entries, groups: Groups, keys: Ints) -> Entries:
        """Accumulators by group; entries of which everything was told take no part."""
        if self._accumulating:
            return merged(self._plan, entries, groups, keys)
        full = np.flatnonzero(entries.rows)
        occurring, ids = np.unique(groups.ids[full], return_inverse=True)
        some = merged(self._plan, entries.take(full), Groups(ids, len(occurring)), keys[occurring])
        missing = np.setdiff1d(np.arange(groups.count), occurring)
        order = np.argsort(np.concatenate([occurring, missing]), kind="stable")
        return joined([some, neutral(self._plan, keys[missing])]).take(order)

    def _panes_at_once(self, places: Ints) -> list[pa.Table]:
        """The panes of sessions that something came to: late ones, and early ones by count."""
        new = self._table.held.take(places)
        closed = self._closed(new.intervals.ends, 0)
        full = np.zeros(len(new), bool)
        if self._plan.early is not None and self._plan.early.rows is not None:
            full = ~closed & (new.entries.rows - new.intervals.told_rows >= self._plan.early.rows)
        late, early = new.take(np.flatnonzero(closed)), new.take(np.flatnonzero(full))
        told = all_of([self._after(late, shown=1), self._after(early, shown=0)])
        changed = np.concatenate([places[closed], places[full]])
        self._table.replace(changed, told, _rest(len(self._table.held), changed))
        return [self._shown(late, Timing.LATE), self._shown(early, Timing.EARLY)]

    def _after(self, held: Held, *, shown: int) -> Held:
        """Sessions once a pane told all that they hold."""
        intervals = held.intervals
        rows = held.entries.rows if self._accumulating else np.zeros(len(held), np.int64)
        entries = held.entries if self._accumulating else neutral(self._plan, held.entries.keys)
        flags = (np.full(len(held), shown), intervals.panes + 1, rows, np.zeros(len(held), np.int64))
        return Held(entries, Intervals(intervals.starts, intervals.ends, *flags))

    def _expired(self, late: Held) -> pa.Table:
        """What becomes of late rows."""
        rows = int(late.entries.rows.sum())
        self.late_rows += rows
        if rows and self._plan.late is LatePolicy.FAIL:
            raise InputError(late_sentence(rows, int(late.intervals.starts.min()), self.watermark_ms))
        if not rows or self._plan.late is LatePolicy.DROP:
            return self._plan.result_schema.empty_table()
        return self._shown(late, Timing.EXPIRED)

    def _shown(self, held: Held, timing: Timing) -> pa.Table:
        intervals = held.intervals
        last = timing is Timing.EXPIRED or (timing is Timing.ON_TIME and not self._plan.lateness_ms)
        panes = Panes(held.entries, intervals.starts, intervals.ends, timing, intervals.panes, last)
        return results(self._plan, self._keys, panes)


def _rest(count: int, places: Ints) -> Ints:
    """The other places."""
    left = np.ones(count, bool)
    left[places] = False
    return np.flatnonzero(left)
