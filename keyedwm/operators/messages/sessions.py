"""What is known of the sessions of each key: a log of small rows, one for each session, topic and partition.

Rule: a session is told by its key and its start, and of equal rows the newest counts. When a session begins earlier or
joins another one, the rows of those that were are followed by rows of no messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.operators.kernels import add_by_group, highest_by_group, lowest_by_group
from keyedwm.operators.names import HIDDEN
from keyedwm.operators.state.key_dictionary import KeyDictionary, key_columns


@dataclass(frozen=True, slots=True)
class Parts:
    """Of each session what lies on one channel: offsets, messages and their bytes; keys and channels by number.

    told: how many of the messages the last pane held. panes: how many panes the whole session has had.
    """

    keys: Ints
    channels: Ints
    starts: Ints
    ends: Ints
    first: Ints
    last: Ints
    rows: Ints
    sizes: Ints
    told: Ints
    panes: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def columns(self) -> list[Ints]:
        """The columns."""
        return [getattr(self, one.name) for one in fields(self)]

    def take(self, chosen: Ints | Flags) -> Parts:
        """Return some of them."""
        return Parts(*(column[chosen] for column in self.columns()))

    def with_others(self, others: Parts) -> Parts:
        """Return these and others."""
        return Parts(*map(np.concatenate, zip(self.columns(), others.columns(), strict=True)))

    def in_order(self) -> Ints:
        """Return their places in order of key, start and channel."""
        return np.lexsort((self.channels, self.starts, self.keys))

    def newest(self) -> Parts:
        """Return of those with equal key, start and channel the last one, in order."""
        order = self.in_order()  # equal ones keep their order
        sorted_ = [column[order] for column in (self.keys, self.starts, self.channels)]
        differs = np.zeros(max(len(order) - 1, 0), np.bool_)
        for column in sorted_:
            differs |= np.diff(column) != 0
        return self.take(order[np.append(differs, True)] if len(order) else order)

    def sessions(self) -> Sessions:
        """Return the sessions of these, which are in order."""
        count = len(self)
        begins = np.ones(count, np.bool_)
        begins[1:] = (np.diff(self.keys) != 0) | (np.diff(self.starts) != 0)
        heads = np.flatnonzero(begins)
        rows, sizes, told = (
            np.add.reduceat(column, heads) if count else column for column in (self.rows, self.sizes, self.told)
        )
        return Sessions(
            heads, self.keys[heads], self.starts[heads], self.ends[heads], rows, sizes, told, self.panes[heads]
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
    told: Ints
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


FACTS = tuple(f"{HIDDEN}{one.name}" for one in fields(Parts) if one.name != "keys")
_NONE = Parts(*(np.empty(0, np.int64),) * len(fields(Parts)))


class OpenSessions:
    """The sessions that are held. Numbers of keys mean nothing outside this instance."""

    def __init__(
        self, by: Sequence[pa.Field], tables: Sequence[pa.Table] = (), keys: KeyDictionary | None = None
    ) -> None:
        """by: the by columns. tables: of the log, oldest first. keys: the numbers of another instance to share."""
        self._fields = tuple(by)
        self.keys = KeyDictionary(self._fields) if keys is None else keys
        found = self._parts_of(pa.concat_tables(tables)).newest() if tables else _NONE
        self._know(found.take(found.rows > 0))

    @property
    def by(self) -> list[str]:
        """The names of the by columns."""
        return [one.name for one in self._fields]

    def _know(self, parts: Parts) -> None:
        self.parts = parts
        self.sessions = parts.sessions()

    def numbers(self, rows: pa.Table) -> Ints:
        """Return the number of each row's key; floats are equal as Spark groups them."""
        columns = key_columns(self.by, rows)
        return self.keys.numbers(columns, rows.num_rows)

    def replace(self, gone: Flags, made: Parts) -> tuple[Parts, Ints]:
        """Hold these parts of whole sessions in the place of others; return what the log must say, and their sessions.

        The sessions are places, ascending.
        """
        left = self.parts.take(gone)
        none = np.zeros(len(left), np.int64)
        both = self.parts.take(~gone).with_others(made)
        order = both.in_order()
        self._know(both.take(order))
        is_made = order >= len(both) - len(made)
        return (
            replace(left, rows=none, sizes=none).with_others(made).newest(),
            np.flatnonzero(is_made[self.sessions.heads]),
        )

    def parts_of(self, sessions: Ints) -> Flags:
        """Return which parts belong to these sessions, told by their places."""
        chosen = np.zeros(len(self.sessions), np.bool_)
        chosen[sessions] = True
        return np.repeat(chosen, np.diff(np.append(self.sessions.heads, len(self.parts))))

    def mark_shown(self, sessions: Ints) -> Parts:
        """Count one more pane, with all messages, of these sessions; return what the log must say."""
        shown, parts = self.parts_of(sessions), self.parts
        told, panes = np.where(shown, parts.rows, parts.told), parts.panes + shown
        self._know(replace(parts, told=told, panes=panes))
        return self.parts.take(shown)

    def used_keys(self) -> list[Ints]:
        """See KeyHolder."""
        return [self.parts.keys]

    def renumber(self, renumbered: Ints) -> None:
        """See KeyHolder."""
        parts = replace(self.parts, keys=renumbered[self.parts.keys])
        self._know(parts.take(parts.in_order()))

    def table(self, parts: Parts) -> pa.Table:
        """Return parts as a table of the log."""
        schema = pa.schema([*self._fields, *((name, pa.int64()) for name in FACTS)])
        columns = [*self.keys.columns(parts.keys), *map(pa.array, parts.columns()[1:])]
        return pa.Table.from_arrays(columns, schema=schema)

    def _parts_of(self, table: pa.Table) -> Parts:
        return Parts(self.numbers(table), *(ints(contiguous(table[name])) for name in FACTS))


def merged(by: Sequence[pa.Field], tables: Sequence[pa.Table]) -> pa.Table:
    """Merge parts of the log: the newest row of each session and channel, also if it says that it is gone."""
    sessions = OpenSessions(by)
    return sessions.table(sessions._parts_of(pa.concat_tables(tables)).newest())  # noqa: SLF001 (of this module)


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
        add_by_group(both.sizes, group, count), add_by_group(both.told, group, count), panes[of],
    )  # fmt: skip
    return made, taken_in
