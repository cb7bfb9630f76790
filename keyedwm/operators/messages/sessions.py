"""The sessions of each key: a row for each session, topic and partition.

Rule: a session is known by its key and its start. When a session begins earlier or merges with another one, a
row of no messages follows each row of the old sessions and marks it as gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.kernels import add_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import KeyedLog, KeyedRows
from keyedwm.operators.state.store import TableLogs

INDEX = "sessions"  # the log


@dataclass(frozen=True, slots=True)
class Parts(KeyedRows):
    """Of each session what lies on one channel: offsets, messages and their bytes; channels by number.

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
        """A part of no messages says that its session is gone."""
        return self.rows > 0

    def sessions(self) -> Sessions:
        """Return the sessions of these, which are in order."""
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
class Sessions:
    """Whole sessions in order of key and start; heads: the place of the first part of each."""

    heads: Ints
    keys: Ints
    starts: Ints
    ends: Ints
    rows: Ints
    sizes: Ints
    shown_messages: Ints
    panes: Ints

    def __len__(self) -> int:
        return len(self.heads)

    def take(self, chosen: Ints | Flags) -> Sessions:
        """Return some of them."""
        return Sessions(*(getattr(self, one.name)[chosen] for one in fields(self)))

    def owners(self, keys: Ints, at: Ints) -> Ints:
        """Return the place of the session that holds each message, -1 if none does; at: event times."""
        count, total = len(self), len(self) + len(keys)
        order = np.lexsort(
            (np.arange(total) >= count, np.concatenate([self.starts, at]), np.concatenate([self.keys, keys]))
        )
        before = np.empty(total, np.int64)
        before[order] = np.maximum.accumulate(np.where(order < count, order, -1))
        found = before[count:]
        if not count:
            return found
        holds = (found >= 0) & (self.keys[found] == keys) & (at < self.ends[found])
        return np.where(holds, found, -1)


class OpenSessions(KeyedLog[Parts]):
    """The sessions that are held."""

    def __init__(self, by: Sequence[pa.Field], logs: TableLogs, name: str, keys: KeyDictionary | None = None) -> None:
        """name: of the log. keys: the numbers of another log to share."""
        super().__init__(Parts, by, logs, name, keys)

    @property
    def parts(self) -> Parts:
        """The parts of all sessions, in order of key, start and channel."""
        return self.rows

    def _know(self, rows: Parts) -> None:
        super()._know(rows)
        self.sessions = rows.sessions()

    def replace(self, gone: Flags, made: Parts) -> Ints:
        """Hold these parts of whole sessions in the place of others; return the places of their sessions, ascending."""
        left, kept = self.parts.take(gone), self.parts.take(~gone)
        none = np.zeros(len(left), np.int64)
        both = kept.with_others(made)  # no older rows are left in it, which `put` would look for
        order = np.lexsort((both.channels, both.starts, both.keys))
        self._know(both.take(order))
        self._write(replace(left, rows=none, sizes=none).with_others(made).newest())
        return np.flatnonzero((order >= len(kept))[self.sessions.heads])

    def parts_of(self, sessions: Ints) -> Flags:
        """Return which parts belong to these sessions, by their places."""
        chosen = np.zeros(len(self.sessions), np.bool_)
        chosen[sessions] = True
        return np.repeat(chosen, np.diff(np.append(self.sessions.heads, len(self.parts))))

    def mark_shown(self, sessions: Ints) -> None:
        """Count one more pane, with all messages, of these sessions."""
        places = np.flatnonzero(self.parts_of(sessions))
        shown = self.parts.take(places)
        self.change(places, replace(shown, shown_messages=shown.rows, panes=shown.panes + 1))


def joined(fresh: Parts, old: Parts, runs: tuple[Ints, Ints, Ints]) -> tuple[Parts, Flags]:
    """Return the sessions that fresh messages make with old ones, and which old parts they take in.

    runs: of both together, fresh ones first: the session of each, and the sessions' starts and ends.
    """
    ids, starts, ends = runs
    has_news = np.bincount(ids[: len(fresh)], minlength=len(starts)) > 0
    taken_in = has_news[ids[len(fresh) :]]
    changed = np.append(np.ones(len(fresh), np.bool_), taken_in)
    both, ids = fresh.with_others(old).take(changed), ids[changed]
    panes = highest_by_group(both.panes, ids, len(starts))
    order = np.lexsort((both.channels, ids))
    both, ids = both.take(order), ids[order]
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = (np.diff(ids) != 0) | (np.diff(both.channels) != 0)
    group, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
    count, of = len(heads), ids[heads]
    made = Parts(
        both.keys[heads], both.channels[heads], starts[of], ends[of], lowest_by_group(both.first, group, count),
        highest_by_group(both.last, group, count), add_by_group(both.rows, group, count),
        add_by_group(both.sizes, group, count), add_by_group(both.shown_messages, group, count), panes[of],
    )  # fmt: skip
    return made, taken_in
