"""The stored sessions of a plan with panes: a log to which a batch appends the sessions that it changed.

Rule: the newest row of a session counts, and its interval covers all earlier ones. A session that is gone is not
written again: no row before its end is accepted. Panes by count and late panes need the content of a session, so the
log is read when rows arrive. It is rewritten when more than half of its rows are replaced by newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.frames.frame_panes import FiredCounts
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.session_parts import SLICE, SessionParts, joined_runs
from keyedwm.operators.results import END, HIDDEN_PREFIX, START
from keyedwm.operators.state.entries import Accumulators
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import newest
from keyedwm.operators.state.store import StateChanges, TableLogs
from keyedwm.operators.state.table import SlicedTable, StateTable

SESSIONS = "sessions"
# The columns of `FiredCounts`: on time, panes, rows.
_FIRED = tuple(f"{HIDDEN_PREFIX}{name}" for name in ("shown", "panes", "told_rows"))
# Written for 0.2.0, which needs it; the other columns determine it.
_HAS_NEWS = f"{HIDDEN_PREFIX}touched"


@dataclass(frozen=True, slots=True)
class PanedSessions(SessionParts):
    """Sessions, row by row: an entry, an interval, the columns of `FiredCounts`.

    last_rows: the number of held rows that panes have reported.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (START, END, *_FIRED)
    on_time: Ints
    panes: Ints
    last_rows: Ints

    @classmethod
    def of(cls, entries: Accumulators, starts: Ints, ends: Ints, fired: FiredCounts) -> PanedSessions:
        """Return sessions with the rows and panes that they have shown."""
        return cls(entries, starts, ends, fired.on_time, fired.panes, fired.rows)

    @property
    def fired_counts(self) -> FiredCounts:
        """The rows and panes that each session has shown."""
        return FiredCounts(self.panes, self.last_rows, self.on_time)

    @property
    def not_fired(self) -> Ints:
        """For each session, the number of rows that no pane has reported."""
        return self.entries.rows - self.last_rows


def new_sessions(entries: Accumulators, starts: Ints, ends: Ints) -> PanedSessions:
    """Return sessions that no pane has reported."""
    return PanedSessions(entries, starts, ends, *(np.zeros(len(entries), np.int64) for _ in _FIRED))


class SessionTable:
    """The sessions that are held, and which of them changed since they were last written."""

    def __init__(
        self,
        plan: WindowPlan,
        window: SessionWindow,
        keys: KeyDictionary,
        logs: TableLogs,
        gone_ms: int,
    ) -> None:
        """gone_ms: no session that ends there or before is held."""
        self._plan = plan
        self._window = window
        self._keys = keys
        self._logs, self._log = logs, StateTable(logs, SESSIONS, self._merge)
        self._gone_ms = gone_ms
        self._old_layout = SlicedTable(logs, SLICE)
        self._sessions: PanedSessions | None = None  # not read yet
        self._changed: Flags = np.empty(0, bool)

    @property
    def sessions(self) -> PanedSessions:
        """All sessions, which are read when they are needed."""
        if self._sessions is None:
            self._sessions = self._read()
            self._changed = np.zeros(len(self._sessions), bool)
        return self._sessions

    @property
    def row_count(self) -> int:
        """The number of sessions; before they are read, of the log's rows with replaced ones."""
        if self._sessions is not None:
            return len(self._sessions)
        return self._log.rows + self._old_layout.all_rows

    def replace(self, places: Ints, new: PanedSessions) -> None:
        """Replace the sessions at these places by new ones, which become the last."""
        if not len(places) and not len(new):
            return
        rest = np.delete(np.arange(len(self.sessions)), places)
        self._sessions = PanedSessions.together(self._plan, [self.sessions.take_rows(rest), new])
        self._changed = np.concatenate([self._changed[rest], np.ones(len(new), bool)])

    def used_keys(self) -> list[Ints]:
        """The numbers of keys that have sessions."""
        return [self.sessions.entries.keys]

    def renumber(self, renumbered: Ints) -> None:
        """Follow a compaction of the keys."""
        entries = self.sessions.entries
        entries = Accumulators(renumbered[entries.keys], entries.rows, entries.accumulators)
        self._sessions = replace(self.sessions, entries=entries)

    def drain(self, gone_ms: int) -> StateChanges:
        """Return the changes since the last call. gone_ms: the new bound."""
        self._gone_ms = max(gone_ms, self._gone_ms)
        if self._sessions is not None:
            if self._old_layout.numbers or self._log.rows + int(self._changed.sum()) > 2 * len(self._sessions):
                self._old_layout.clear()
                self._log.drop()
                self._changed[:] = True
            self._log.add(self._table(self._keys, self._sessions.take_rows(np.flatnonzero(self._changed))))
            self._changed[:] = False
        return self._logs.drain()

    def _read(self) -> PanedSessions:
        tables = [*self._old_layout.read_all(), *self._log.read()]
        return self._newest(PanedSessions.of_tables(self._plan, self._keys, tables))

    def _merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        keys = KeyDictionary(self._plan.key_fields)
        return self._table(keys, self._newest(PanedSessions.of_tables(self._plan, keys, tables)))

    def _newest(self, rows: PanedSessions) -> PanedSessions:
        """Return the last row of each session that is not gone. rows: the oldest first."""
        rows = rows.where(rows.ends > self._gone_ms)
        ids, _, _ = joined_runs(self._window, rows.entries.keys, rows.starts, rows.ends)
        return rows.take_rows(newest([ids]))

    def _table(self, keys: KeyDictionary, sessions: PanedSessions) -> pa.Table:
        has_news = pa.array((sessions.not_fired > 0).astype(np.int64))
        return sessions.table(self._plan, keys).append_column(_HAS_NEWS, has_news)
