"""The stored sessions of keys with their own watermarks: each row has the hash of its owner.

Rule: a batch loads only the sessions of the owners that it asks for, by that hash. A session that the floor closes is
found by its end: the rows between the previous floor and the present one name the owners to load. The log is rewritten
when half of its rows are dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.session_table import PanedSessions, SessionTable
from keyedwm.operators.keyed.key_watermarks import KeyWatermarks
from keyedwm.operators.results import END
from keyedwm.operators.state.hashed_keys import HASH, HashedKeys
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.store import StateChanges, TableLogs

# Lower than every end of a session.
_FIRST, _LAST = -(2**62), 2**62


class OwnedSessionTable(SessionTable):
    """See `SessionTable`. is_gone: which sessions were gone (closed, with the allowed lateness) at their writing."""

    def __init__(  # noqa: PLR0917  as SessionTable, and three more
        self,
        plan: WindowPlan,
        window: SessionWindow,
        keys: HashedKeys,
        logs: TableLogs,
        gone_ms: int,
        own: KeyWatermarks,
        is_gone: Callable[[PanedSessions], Flags],
        state: Mapping[str, Any],
    ) -> None:
        super().__init__(plan, window, keys, logs, gone_ms)
        self._own, self._is_gone = own, is_gone
        self._owns_all = plan.owners == plan.by
        self._dead: int = state.get("dead_rows", 0)  # about the number of rows of closed or older sessions
        self._first_end: int = state.get("first_end", _FIRST)  # no stored session ends before
        self._loaded: Flags = np.empty(0, np.bool_)  # by owner
        self._unload()

    def state(self) -> dict[str, Any]:
        """The state beside the log, ready for JSON."""
        return {"dead_rows": self._dead, "first_end": self._first_end}

    @property
    def row_count(self) -> int:
        """The number of rows that are held, without dead rows."""
        return max(0, self._log.rows - self._dead)

    def load(self, owners: Ints) -> None:
        """Load the sessions of these owners."""
        is_asked = np.zeros(self._own.count, np.bool_)
        is_asked[owners] = True
        is_asked[: len(self._loaded)] &= ~self._loaded
        self._loaded = is_asked | _as_long(self._loaded, len(is_asked))
        tables, numbers = [], []
        for at, table in enumerate(self._log.read()):
            rows, row_owners = self._own.find(table, is_asked)
            if len(rows):
                self._loaded_rows.setdefault(at, []).append(rows)
                session_rows = (table.drop_columns(self._plan.by) if self._owns_all else table).take(pa.array(rows))
                tables.append(session_rows)
                numbers.append(row_owners if self._owns_all else self._keys.numbers_of(session_rows))
        if tables:
            self._add_loaded(
                self._newest(PanedSessions.read(self._plan, np.concatenate(numbers), pa.concat_tables(tables)))
            )

    def load_due(self, spans: Sequence[tuple[int, int]]) -> None:
        """Load the sessions that end after the first time of one of these spans, up to its second time."""
        if max(until for _, until in spans) < self._first_end:
            return
        first_until, self._first_end = min(until for _, until in spans), _LAST
        for table in self._log.read():
            ends = ints(contiguous(table[END]))
            due = np.flatnonzero(np.any([(before < ends) & (ends <= until) for before, until in spans], axis=0))
            if len(due):
                rows = table.select([*self._plan.owners, HASH]).take(pa.array(due))
                self.load(sorted_distinct(self._own.owners_of(rows)))
            self._first_end = min(self._first_end, int(ends[ends > first_until].min(initial=_LAST)))

    def load_all(self) -> None:
        """Load all sessions."""
        for table in self._log.read():
            self._own.owners_of(table)
        self.load(np.arange(self._own.count))

    def drain(self, gone_ms: int) -> StateChanges:
        """Return the changes since the last call. gone_ms: as of now."""
        self._gone_ms = max(gone_ms, self._gone_ms)
        self._dead += self._loaded_from_log - int((~self._changed).sum())
        rows = self._log.rows
        if 2 * self._dead > rows + self._logs.limits.few_rows and not self._is_mostly_loaded(rows):
            self.load_all()
        if self._is_mostly_loaded(rows):
            self._write_anew()
        else:
            self._append(self.sessions.take_rows(np.flatnonzero(self._changed)))
        self._unload()
        return self._logs.drain()

    def _merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the newest row of each session."""
        keys, table = HashedKeys(self._plan.key_fields), pa.concat_tables(tables)
        rows = PanedSessions.read(self._plan, keys.numbers_of(table, is_hashed=self._owns_all), table)
        return self._table(keys, self._newest(rows))

    def _unload(self) -> None:
        """Hold nothing in memory."""
        self._sessions, self._changed = PanedSessions.none(self._plan), np.empty(0, np.bool_)
        self._loaded = np.empty(0, np.bool_)
        self._loaded_rows: dict[int, list[Ints]] = {}  # table of the log → rows that were loaded
        self._loaded_from_log = 0  # how many of the loaded sessions have a row in the log

    def _add_loaded(self, sessions: PanedSessions) -> None:
        sessions = sessions.where(~self._is_gone(sessions))
        self._loaded_from_log += len(sessions)
        self._sessions = PanedSessions.together(self._plan, [self.sessions, sessions])
        self._changed = np.concatenate([self._changed, np.zeros(len(sessions), np.bool_)])

    def _is_mostly_loaded(self, rows: int) -> bool:
        loaded = sum(len(places) for of_table in self._loaded_rows.values() for places in of_table)
        return loaded > 0 and 2 * loaded >= rows

    def _write_anew(self) -> None:
        """Write the rows that were not loaded, and all sessions that are held."""
        rest = self._log.without(self._loaded_rows)
        self._log.replace(*rest)
        self._dead = min(max(self._dead, 0), sum(table.num_rows for table in rest))
        self._append(self.sessions)

    def _append(self, sessions: PanedSessions) -> None:
        if len(sessions):
            self._log.add(self._table(self._keys, sessions))
            self._first_end = min(self._first_end, int(sessions.ends.min()))

    def _table(self, keys: KeyDictionary, sessions: PanedSessions) -> pa.Table:
        hashes = self._own.hashes(keys, self._plan.by, sessions.entries.keys)
        return super()._table(keys, sessions).append_column(HASH, pa.array(hashes))


def _as_long(flags: Flags, size: int) -> Flags:
    return np.append(flags, np.zeros(size - len(flags), np.bool_))
