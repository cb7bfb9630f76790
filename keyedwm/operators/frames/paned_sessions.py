"""Session windows of plans with early or late panes (rule 11; the scalar model stands in conformance/models).

Rule: partials are runs of events within the gap. They first join each other and the held sessions. A session that they
form is late if it is closed, allowed lateness included. A held session is never closed, so only new sessions are late.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.core.lateness import has_ended
from keyedwm.core.window_rules import LateRule
from keyedwm.operators.aggregates.aggregate_function import Groups
from keyedwm.operators.frames.frame_panes import PanedOperator, neutral
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.results import Panes, outputs
from keyedwm.operators.frames.session_parts import by_end, joined_runs, lowered_ms
from keyedwm.operators.frames.session_table import PanedSessions, SessionTable, new_sessions
from keyedwm.operators.panes import EveryBy, PaneTiming
from keyedwm.operators.results import END, START, Output
from keyedwm.operators.state.entries import Accumulators, merged, read_entries
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.store import BlobStore, StateChanges


class PanedSessionOperator(PanedOperator):
    """One instance of the operator; see `protocol.Operator`."""

    def __init__(self, plan: WindowPlan, window: SessionWindow, store: BlobStore) -> None:
        super().__init__(plan, store)
        self._window = window
        self._keys = KeyDictionary(plan.key_fields, self._logs.limits.few_keys)
        self._table = SessionTable(plan, window, self._keys, self._logs, self._gone_ms())

    @property
    def open_entries(self) -> int:
        """The number of open sessions; for sessions not read yet, the number of their rows in the state."""
        return self._table.row_count

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:  # noqa: ARG002  one input
        """Hold partials; yield their immediate outputs: expired rows, late panes, early panes by count."""
        self._policy.on_rows(now_ms)
        keys = self._numbered(rows)
        starts, ends = (ints(contiguous(rows[name])) for name in (START, END))
        new = new_sessions(read_entries(self._plan, keys, rows), starts, ends)
        if self._plan.late_rule is LateRule.EVENT:
            late = self._is_behind(rows)
            yield from self._expired(new.where(late))
            new = new.where(~late)
        if len(new):
            yield from self._join(new)

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:  # noqa: ARG002  one input and key
        """Close the sessions that accept no more rows, but not more than the plan allows."""
        if self._results_left == 0 or (self.watermark_ms is not None and time_ms <= self.watermark_ms):
            return
        sessions = self._table.sessions
        open_ends = sessions.ends[sessions.on_time == 0]
        self.watermark_ms = lowered_ms(self._window, open_ends, time_ms, self._results_left)
        yield from self._close()
        self._keys.compact([self._table])
        if self._policy.beats(EveryBy.EVENT, time_ms):
            yield from self._show_early()

    def _close(self) -> Iterator[Output]:
        """Yield the on-time panes of the sessions that are closed now, and drop those that accept no more rows."""
        sessions = self._table.sessions
        is_gone = self._closed(sessions, self._plan.lateness_ms)
        is_closing = self._policy.closed(sessions.fired_counts, self._closed(sessions, 0))
        changed = np.flatnonzero(is_closing | is_gone)
        shown_sessions = self._after_pane(sessions.where(is_closing & ~is_gone), PaneTiming.ON_TIME)
        self._table.replace(changed, shown_sessions)
        closed = sessions.where(is_closing)
        if self._results_left is not None:
            self._results_left = max(0, self._results_left - len(closed))
        for piece in by_end(closed):  # before keys get other numbers
            yield from self._emit(piece, PaneTiming.ON_TIME)

    def _show_early(self) -> Iterator[Output]:
        """Yield early panes of the open sessions with unshown rows."""
        sessions = self._table.sessions
        places = np.flatnonzero((sessions.not_fired > 0) & ~self._closed(sessions, 0))
        early = sessions.take_rows(places)
        self._table.replace(places, self._after_pane(early, PaneTiming.EARLY))
        yield from self._emit(early, PaneTiming.EARLY)

    def on_end(self) -> Iterator[Output]:
        """Close every session, and clear the state."""
        sessions = self._table.sessions
        self._table.replace(np.arange(len(sessions)), PanedSessions.none(self._plan))
        yield from self._emit(
            sessions.where(self._policy.closed(sessions.fired_counts, np.ones(len(sessions), bool))), PaneTiming.ON_TIME
        )

    def _drained(self) -> StateChanges:
        return self._table.drain(self._gone_ms())

    def _numbered(self, rows: pa.Table) -> Ints:
        """Return the number of the key of each partial."""
        return self._keys.numbers_of(rows)

    def _closed(self, sessions: PanedSessions, lateness_ms: int) -> Flags:
        """Return for each session whether it accepts no more rows."""
        return has_ended(sessions.ends, self._window.horizon_ms(self.watermark_ms, lateness_ms))

    def _gone_ms(self) -> int:
        """The time at or before which no held session ends."""
        return self._window.horizon_ms(self.watermark_ms, self._plan.lateness_ms)

    def _join(self, new: PanedSessions) -> Iterator[Output]:
        """Merge partials with each other and with the open sessions of their keys; yield the panes that this gives."""
        sessions = self._table.sessions
        has_new = np.zeros(self._keys.count, bool)
        has_new[new.entries.keys] = True
        is_mine = has_new[sessions.entries.keys]
        places = np.flatnonzero(is_mine)
        whole, is_new = self._united(sessions.take_rows(places), new)
        late = is_new & self._closed(whole, self._plan.lateness_ms)
        yield from self._expired(whole.where(late))
        self._table.replace(places, whole.where(~late))
        yield from self._immediate_panes(len(sessions) - len(places) + np.flatnonzero(is_new[~late]))

    def _united(self, before: PanedSessions, new: PanedSessions) -> tuple[PanedSessions, Flags]:
        """Return the sessions that held sessions and new runs form together, and which of them have new rows."""
        entries = before.entries.with_others(new.entries)
        starts, ends = np.concatenate([before.starts, new.starts]), np.concatenate([before.ends, new.ends])
        ids, low, high = joined_runs(self._window, entries.keys, starts, ends)
        keys = np.empty(len(low), np.int64)
        keys[ids] = entries.keys
        is_new = np.zeros(len(low), bool)
        is_new[ids[len(before) :]] = True
        fired_counts = self._policy.on_merge(before.fired_counts, ids[: len(before)], is_new)
        return PanedSessions.of(self._merged(entries, Groups(ids, len(low)), keys), low, high, fired_counts), is_new

    def _merged(self, entries: Accumulators, groups: Groups, keys: Ints) -> Accumulators:
        """Merge accumulators by group; if panes discard, ignore entries without unshown rows."""
        if self._policy.accumulating:
            return merged(self._plan, entries, groups, keys)
        full = np.flatnonzero(entries.rows)
        occurring, ids = np.unique(groups.ids[full], return_inverse=True)
        some = merged(self._plan, entries.take_rows(full), Groups(ids, len(occurring)), keys[occurring])
        missing = np.setdiff1d(np.arange(groups.count), occurring)
        order = np.argsort(np.concatenate([occurring, missing]), kind="stable")
        return some.with_others(neutral(self._plan, keys[missing])).take_rows(order)

    def _immediate_panes(self, places: Ints) -> Iterator[Output]:
        """Yield the panes of sessions with new rows: late panes, and early panes by count."""
        new = self._table.sessions.take_rows(places)
        is_late, is_early = self._policy.at_once(new.not_fired, self._closed(new, 0))
        late, early = new.where(is_late), new.where(is_early)
        shown_sessions = PanedSessions.together(
            self._plan, [self._after_pane(late, PaneTiming.LATE), self._after_pane(early, PaneTiming.EARLY)]
        )
        changed = np.concatenate([places[is_late], places[is_early]])
        self._table.replace(changed, shown_sessions)
        yield from self._emit(late, PaneTiming.LATE)
        yield from self._emit(early, PaneTiming.EARLY)

    def _after_pane(self, sessions: PanedSessions, timing: PaneTiming) -> PanedSessions:
        """Return sessions as they are held after a pane of each."""
        fired_counts = self._policy.fired(sessions.fired_counts, sessions.entries.rows, timing)
        entries = sessions.entries if self._policy.accumulating else neutral(self._plan, sessions.entries.keys)
        return PanedSessions.of(entries, sessions.starts, sessions.ends, fired_counts)

    def _expired(self, late: PanedSessions) -> Iterator[Output]:
        yield from self._late_sessions(self._keys, self._as_panes(late, PaneTiming.EXPIRED))

    def _emit(self, sessions: PanedSessions, timing: PaneTiming) -> Iterator[Output]:
        yield from outputs(self._plan, self._keys, self._as_panes(sessions, timing))

    def _as_panes(self, sessions: PanedSessions, timing: PaneTiming) -> Panes:
        last = self._policy.is_last(timing)
        return Panes(sessions.entries, sessions.starts, sessions.ends, timing, sessions.panes, last)
