"""The sessions of each key, a row for each session, topic and partition; and their messages.

Rule: a session is known by its key and its start. When a session begins earlier or merges with another one, its old
rows are no longer valid. A row without messages follows each old row and marks it as gone.

Messages lie in slices of event time, each a log of tables with the messages of all keys. A batch appends to the slices
that it touches and reads none. A slice is dropped as a whole when no session reaches into it. A slice that a long
session needs is rewritten without the messages of other sessions, at intervals that double each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.arrow.rows import grouped
from keyedwm.operators.kernels import add_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.messages import in_order, places
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.windows import SessionKind
from keyedwm.operators.state.column_rows import ColumnRows
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import KeyedLog, KeyedRows
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import SlicedTable

INDEX = "sessions"  # the log


@dataclass(frozen=True, slots=True)
class SessionFragments(KeyedRows):
    """The part of each session on one channel: offsets, messages and their bytes; channels by number.

    shown_messages: how many of the messages the last pane held. panes: how many panes the whole session has had.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("starts", "channels")
    channels: Ints
    starts: Ints
    ends: Ints
    first: Ints
    last: Ints
    rows: Ints
    sizes: Ints
    shown_messages: Ints
    panes: Ints

    def is_alive(self) -> Flags:
        """A part without messages marks that its session is gone."""
        return self.rows > 0

    def sessions(self) -> Sessions:
        """Return the sessions of these parts, which are in order."""
        count = len(self)
        begins = np.ones(count, np.bool_)
        begins[1:] = (np.diff(self.keys) != 0) | (np.diff(self.starts) != 0)
        heads = np.flatnonzero(begins)
        rows, sizes, shown_messages = (
            np.add.reduceat(column, heads) if count else column
            for column in (self.rows, self.sizes, self.shown_messages)
        )
        return Sessions(
            heads,
            self.keys[heads],
            self.starts[heads],
            self.ends[heads],
            rows,
            sizes,
            shown_messages,
            self.panes[heads],
        )


@dataclass(frozen=True, slots=True)
class Sessions(ColumnRows):
    """Whole sessions in order of key and start; heads: the place of the first part of each."""

    heads: Ints
    keys: Ints
    starts: Ints
    ends: Ints
    rows: Ints
    sizes: Ints
    shown_messages: Ints
    panes: Ints

    def owners(self, keys: Ints, at: Ints) -> Ints:
        """Return the place of the session of each message, -1 if there is none; at: event times."""
        count, total = len(self), len(self) + len(keys)
        order = np.lexsort(
            (np.arange(total) >= count, np.concatenate([self.starts, at]), np.concatenate([self.keys, keys]))
        )
        before = np.empty(total, np.int64)
        before[order] = np.maximum.accumulate(np.where(order < count, order, -1))
        owners = before[count:]
        if not count:
            return owners
        holds = (owners >= 0) & (self.keys[owners] == keys) & (at < self.ends[owners])
        return np.where(holds, owners, -1)


class OpenSessions(KeyedLog[SessionFragments]):
    """The held sessions."""

    def __init__(self, by: Sequence[pa.Field], logs: TableLogs, name: str, keys: KeyDictionary | None = None) -> None:
        """name: the name of the log. keys: the numbers of another log to share."""
        super().__init__(SessionFragments, by, logs, name, keys)

    @property
    def parts(self) -> SessionFragments:
        """The parts of all sessions, in order of key, start and channel."""
        return self.rows

    def _know(self, rows: SessionFragments) -> None:
        super()._know(rows)
        self.sessions = rows.sessions()

    def replace(self, is_old: Flags, new_parts: SessionFragments) -> Ints:
        """Replace old fragments by fragments of whole sessions; return the places of the new sessions, ascending."""
        left, rest = self.parts.take_rows(is_old), self.parts.take_rows(~is_old)
        none = np.zeros(len(left), np.int64)
        both = rest.with_others(new_parts)  # it has no older rows, for which `put_rows` would search
        order = np.lexsort((both.channels, both.starts, both.keys))
        self._know(both.take_rows(order))
        self._write(replace(left, rows=none, sizes=none).with_others(new_parts).newest())
        return np.flatnonzero((order >= len(rest))[self.sessions.heads])

    def parts_of(self, sessions: Ints) -> Flags:
        """Return which parts belong to these sessions, by their places."""
        is_asked = np.zeros(len(self.sessions), np.bool_)
        is_asked[sessions] = True
        return np.repeat(is_asked, np.diff(np.append(self.sessions.heads, len(self.parts))))

    def mark_shown(self, sessions: Ints) -> None:
        """Count one more pane, with all messages, of these sessions."""
        places = np.flatnonzero(self.parts_of(sessions))
        parts = self.parts.take_rows(places)
        self.change(places, replace(parts, shown_messages=parts.rows, panes=parts.panes + 1))


def joined(
    fresh: SessionFragments, old: SessionFragments, runs: tuple[Ints, Ints, Ints]
) -> tuple[SessionFragments, Flags]:
    """Return the sessions that fresh messages form with old parts, and which old parts these are.

    runs: for fresh messages, then old parts: the session of each, and the sessions' starts and ends.
    """
    ids, starts, ends = runs
    has_news = np.bincount(ids[: len(fresh)], minlength=len(starts)) > 0
    taken_in = has_news[ids[len(fresh) :]]
    changed = np.append(np.ones(len(fresh), np.bool_), taken_in)
    both, ids = fresh.with_others(old).take_rows(changed), ids[changed]
    panes = highest_by_group(both.panes, ids, len(starts))
    order = np.lexsort((both.channels, ids))
    both, ids = both.take_rows(order), ids[order]
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = (np.diff(ids) != 0) | (np.diff(both.channels) != 0)
    group, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
    count, of = len(heads), ids[heads]
    new_parts = SessionFragments(
        both.keys[heads], both.channels[heads], starts[of], ends[of], lowest_by_group(both.first, group, count),
        highest_by_group(both.last, group, count), add_by_group(both.rows, group, count),
        add_by_group(both.sizes, group, count), add_by_group(both.shown_messages, group, count), panes[of],
    )  # fmt: skip
    return new_parts, taken_in


MESSAGES = "messages-"
_SLICES = 64  # at most in the retention
# The most that is searched together in slices: each search costs as much as there are sessions.
_LOOK_ROWS, _LOOK_BYTES = 1 << 16, 1 << 26


class SessionMessages:
    """Slices by their starts. looks: for each rewritten slice, the floor at which it is examined again."""

    def __init__(
        self, plan: StorePlan, channels: Channels, logs: TableLogs, width_ms: int | None, looks: Mapping[str, int]
    ) -> None:
        """width_ms: the width of a slice, None for a new store."""
        self._plan, self._channels = plan, channels
        self._by_slice = SlicedTable(logs, MESSAGES, self._merge)
        self.width_ms = _width_ms(plan) if width_ms is None else width_ms
        self.looks = {int(start): floor for start, floor in looks.items()}

    def add(self, rows: pa.Table, at: Ints) -> None:
        """Hold messages; at: their event times."""
        order = np.argsort(at, kind="stable")
        self._by_slice.add(rows.take(pa.array(order)), (at - at % self.width_ms)[order])

    def read(self, low: int, high: int) -> Iterator[pa.Table]:
        """Yield the messages of the slices that reach into `[low, high)`, slice by slice, also of closed sessions."""
        for start in self._by_slice.between(low - self.width_ms + 1, high):
            yield self._slice(start)

    def of(self, open_: OpenSessions, sessions: Sessions) -> tuple[pa.Table, Ints]:
        """Return the messages of some sessions, in no order, and for each the place of its session among these."""
        tables, owners = [self._plan.schema.empty_table()], [np.empty(0, np.int64)]
        if len(sessions):
            slices = self.read(int(sessions.starts.min()), int(sessions.ends.max()))
            batches = (batch for rows in slices for batch in rows.to_batches())
            for rows in grouped(batches, _LOOK_ROWS, _LOOK_BYTES):
                session_places = sessions.owners(open_.numbers(rows), places(self._plan, rows))
                tables.append(rows.filter(pa.array(session_places >= 0)))
                owners.append(session_places[session_places >= 0])
        return pa.concat_tables(tables), np.concatenate(owners)

    def tidy(self, open_: OpenSessions, floor: int) -> None:
        """Drop or rewrite the slices that are due at this floor."""
        starts = sorted(self._by_slice.numbers)
        due = [start for start in starts if self.looks.get(start, start + 2 * self.width_ms) <= floor]
        if not due:
            return
        sessions = open_.sessions
        by_start = np.argsort(sessions.starts, kind="stable")
        highest_ends = np.maximum.accumulate(sessions.ends[by_start])
        before = np.searchsorted(sessions.starts[by_start], np.array(due) + self.width_ms)
        for start, count in zip(due, before.tolist(), strict=True):
            self.looks[start] = 2 * floor - start
            if not (count and highest_ends[count - 1] > start and self._rewritten(open_, start)):
                self._by_slice.drop(start)
                del self.looks[start]

    def _merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        return in_order(self._plan, self._channels, pa.concat_tables(tables))

    def _slice(self, start: int) -> pa.Table:
        return pa.concat_tables([self._plan.schema.empty_table(), *self._by_slice.read(start)])

    def _rewritten(self, open_: OpenSessions, start: int) -> bool:
        """Rewrite a slice with only the messages of open sessions; return whether there are any."""
        rows = self._slice(start)
        open_rows = rows.filter(pa.array(open_.sessions.owners(open_.numbers(rows), places(self._plan, rows)) >= 0))
        if open_rows.num_rows < rows.num_rows:
            self._by_slice.replace(start, open_rows)
        return bool(open_rows.num_rows)


def _width_ms(plan: StorePlan) -> int:
    return max(plan.kind_as(SessionKind).window.gap_ms, (plan.retention.time_ms or 0) // _SLICES)
