"""The stored sessions of one operator: logs of parts. A batch reads only the parts that may close.

Rule: a batch appends its parts to `young` and reads nothing. When a watermark reaches the horizon, all parts are read
once: sessions that close are emitted, parts that end before the next horizon become `due`, and all others `rest`, which
stays as written. Up to the horizon a session can only consist of `due` and `young` parts, so closing reads only these.
A part is dead, in any log, once its end is passed: in `rest` by the horizon, in `due` by the end of the last closed
sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, sorted_distinct
from keyedwm.arrow.hashing import hashed_rows
from keyedwm.core.lateness import NEVER, has_ended
from keyedwm.operators.frames.plan import SessionWindow, WindowPlan
from keyedwm.operators.frames.session_parts import (
    SLICE,
    MergedSessions,
    SessionParts,
    lowered_ms,
)
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.manifest import MANIFEST
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs
from keyedwm.operators.state.table import SlicedTable, StateTable

YOUNG, REST, DUE = "young", "rest-", "due-"
# The most logs of the parts that are due next.
_DUE_PARTS = 8


class SessionLog:
    """The parts of the open sessions of a plan without panes."""

    def __init__(self, plan: WindowPlan, window: SessionWindow, store: BlobStore, state: Mapping[str, Any]) -> None:
        self._plan = plan
        self._window = window
        self._logs = TableLogs(store, manifest=MANIFEST, state=state)
        self._young_rows = StateTable(self._logs, YOUNG, self._merge)
        self._due_rows = SlicedTable(self._logs, DUE, self._merge)
        self._rest = SlicedTable(self._logs, REST, self._merge_rest)  # by shard
        self.keys = KeyDictionary(plan.key_fields, self._logs.limits.few_keys)
        self._old = SlicedTable(self._logs, SLICE)
        self._new: list[SessionParts] = []  # in memory only
        self._young: SessionParts | None = None  # the young parts as read, without the new ones
        self._horizon_ms: int = state.get("horizon_ms", NEVER)
        self._passed_ms: int = state.get("passed_ms", NEVER)
        self._shards: int = state.get("shards", 1)
        self._due: list[tuple[int, int, int]] = [(*one,) for one in state.get("due", [])]  # number, first, last end
        self._young_end = _lowest(state.get("young_end"), *self._old.numbers)
        self._rest_end: int | None = state.get("rest_end")

    @property
    def first_end(self) -> int | None:
        """The end before which no session ends; None if there is none."""
        return _lowest(self._young_end, self._rest_end, *(first for _, first, _ in self._due))

    @property
    def entries(self) -> int:
        """The number of parts of sessions that are held, dead ones included."""
        return sum(self._logs.rows.values()) + sum(map(len, self._new))

    def state(self) -> dict[str, Any]:
        """Return the state beside the logs, ready for JSON."""
        return {
            **self._logs.state(), "horizon_ms": self._horizon_ms, "passed_ms": self._passed_ms,
            "shards": self._shards, "due": self._due, "young_end": self._young_end, "rest_end": self._rest_end,
        }  # fmt: skip

    def append(self, new: SessionParts) -> None:
        """Add parts of sessions."""
        if len(new):
            self._new.append(new)
            self._young_end = _lowest(self._young_end, new.first_end)

    def parts_of_keys(self, numbers: Ints) -> SessionParts:
        """Return the open parts of these keys, wherever they are."""
        is_wanted = np.zeros(self.keys.count, bool)
        is_wanted[numbers] = True
        shards = sorted_distinct(self._shard_of(np.flatnonzero(is_wanted)))
        pieces = [self._read_young(), *self._read_due(), *self._read_rest(shards.tolist())]
        return SessionParts.together(self._plan, [one.where(_flags(is_wanted, one.entries.keys)) for one in pieces])

    def close(self, time_ms: int, most: int | None) -> tuple[SessionParts, int]:
        """Remove the sessions that a watermark closes, about `most`; return them and the watermark reached."""
        closed_ms = self._window.horizon_ms(time_ms)
        first_end = self.first_end
        if first_end is None or closed_ms < first_end:
            return SessionParts.none(self._plan), time_ms
        if closed_ms > self._horizon_ms or (self._young_end is not None and closed_ms >= self._young_end):
            return self._close_at_horizon(time_ms, most)
        return self._close_due(time_ms, most)

    def drain(self) -> StateChanges:
        """Return the changes since the last call."""
        new = SessionParts.together(self._plan, self._new)
        self._young_rows.add(self._table(new))
        self._new.clear()
        self._young = None
        changes = self._logs.drain()
        self.keys = KeyDictionary(self._plan.key_fields, self._logs.limits.few_keys)  # nothing holds numbers now
        return changes

    def _close_due(self, time_ms: int, most: int | None) -> tuple[SessionParts, int]:
        """Close sessions before the horizon, from due and young parts."""
        due = SessionParts.together(self._plan, list(self._read_due(self._window.horizon_ms(time_ms))))
        time_ms = lowered_ms(self._window, due.ends, time_ms, most)
        closed_ms = self._window.horizon_ms(time_ms)
        due = due.where(has_ended(due.ends, closed_ms))
        is_due_key = np.zeros(self.keys.count, bool)
        is_due_key[due.entries.keys] = True
        young = self._read_young()
        parts = SessionParts.together(self._plan, [due, young.where(_flags(is_due_key, young.entries.keys))])
        runs = MergedSessions(self._plan, self._window, parts)
        is_due = np.arange(len(parts)) < len(due)
        is_closed = has_ended(runs.ends[runs.ids], closed_ms)
        self.append(runs.merged(is_due & ~is_closed))  # as wide as the new runs, which extend them
        self._pass(closed_ms)
        return runs.merged(is_due & is_closed), time_ms

    def _pass(self, closed_ms: int) -> None:
        """Count the due parts that end by `closed_ms` as gone."""
        remaining = []
        for number, first, last in self._due:
            if has_ended(last, closed_ms):
                self._due_rows.drop(number)
                continue
            if has_ended(first, closed_ms):
                ends = self._parts_of(self._due_rows.read(number)).ends
                first = int(ends[~has_ended(ends, closed_ms)].min())  # noqa: PLW2901
            remaining.append((number, first, last))
        self._due = remaining
        self._passed_ms = closed_ms

    def _close_at_horizon(self, time_ms: int, most: int | None) -> tuple[SessionParts, int]:
        """Read all parts, close the sessions that end, and set the next horizon."""
        young = SessionParts.together(self._plan, [self._read_young(), *self._read_due()])
        rest = SessionParts.together(self._plan, list(self._read_rest(range(self._shards))))
        parts = SessionParts.together(self._plan, [rest, young])
        runs = MergedSessions(self._plan, self._window, parts)
        time_ms = lowered_ms(self._window, runs.ends, time_ms, most)
        closed_ms = self._window.horizon_ms(time_ms)
        limits = self._logs.limits
        ahead_ms = (int(runs.ends.max()) - closed_ms) // limits.session_steps
        horizon_ms = max(self._horizon_ms, closed_ms + max(1, ahead_ms))
        ends = runs.ends[runs.ids]
        is_rest = ends > horizon_ms
        stays = (np.arange(len(parts)) < len(rest)) & (parts.ends > horizon_ms)
        shards = limits.session_shards if int(is_rest.sum()) > limits.undivided_rows else 1
        # More than half of the stored parts are dead.
        if 2 * int(stays.sum()) < self._rest.all_rows or shards > self._shards:
            self._rest.clear()
            self._shards = shards
            stays = np.zeros(len(parts), bool)
        new_rest = runs.merged(is_rest & ~stays)
        self._rest_end = _lowest(new_rest.first_end, _first_end(parts.ends[stays]))
        self._drop_young()
        by_shard = np.argsort(shard_of_rest := self._shard_of(new_rest.entries.keys), kind="stable")
        self._rest.add(self._table(new_rest.take_rows(by_shard)), shard_of_rest[by_shard])
        is_closed = has_ended(ends, closed_ms)
        self._write_due(runs.merged(~is_closed & ~is_rest))
        self._horizon_ms, self._passed_ms = horizon_ms, closed_ms
        return runs.merged(is_closed), time_ms

    def _write_due(self, due: SessionParts) -> None:
        self._due_rows.clear()
        self._due = []
        due = due.take_rows(np.argsort(due.ends, kind="stable"))
        size = max(self._logs.limits.due_rows, -(-len(due) // _DUE_PARTS))
        for number, at in enumerate(range(0, len(due), size)):
            part = due.take_rows(np.arange(at, min(at + size, len(due))))
            self._due_rows.add_to(number, self._table(part))
            self._due.append((number, int(part.ends[0]), int(part.ends[-1])))

    def _drop_young(self) -> None:
        self._young_rows.drop()
        self._old.clear()
        self._new.clear()
        self._young, self._young_end = SessionParts.none(self._plan), None

    def _read_young(self) -> SessionParts:
        if self._young is None:
            tables = self._old.read_all(), self._young_rows.read()  # the old ones may have further columns
            self._young = SessionParts.together(self._plan, list(map(self._parts_of, tables)))
        return SessionParts.together(self._plan, [self._young, *self._new])

    def _read_due(self, closed_ms: int | None = None) -> Iterator[SessionParts]:
        """Yield the due parts; with `closed_ms` only of the logs with a part that ends by then."""
        for number, first, _ in self._due:
            if closed_ms is None or first <= closed_ms:
                parts = self._parts_of(self._due_rows.read(number))
                yield parts.where(parts.ends > self._passed_ms)

    def _read_rest(self, shards: Sequence[int]) -> Iterator[SessionParts]:
        for shard in shards:
            parts = self._parts_of(self._rest.read(shard))
            yield parts.where(parts.ends > self._horizon_ms)

    def _parts_of(self, tables: Sequence[pa.Table]) -> SessionParts:
        return SessionParts.of_tables(self._plan, self.keys, tables)

    def _merge_rest(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self._merge(tables, self._horizon_ms)

    def _merge(self, tables: Sequence[pa.Table], gone_ms: int = NEVER) -> pa.Table:
        """Merge parts of a log: parts of one session that touch become one part."""
        keys = KeyDictionary(self._plan.key_fields)
        parts = SessionParts.of_tables(self._plan, keys, tables)
        parts = parts.where(parts.ends > gone_ms)
        runs = MergedSessions(self._plan, self._window, parts)
        return runs.merged(np.ones(len(parts), bool)).table(self._plan, keys)

    def _table(self, parts: SessionParts) -> pa.Table:
        return parts.table(self._plan, self.keys)

    def _shard_of(self, keys: Ints) -> Ints:
        if self._shards == 1:
            return np.zeros(len(keys), np.int64)
        hashes = hashed_rows(self.keys.wide_columns(keys), len(keys))
        return (hashes % np.uint64(self._shards)).astype(np.int64)


def _flags(flags: Flags, keys: Ints) -> Flags:
    """Return the flag of each key; false for keys added after the flags were made."""
    known = np.zeros(max(len(flags), int(keys.max(initial=-1)) + 1), bool)
    known[: len(flags)] = flags
    return known[keys]


def _first_end(ends: Ints) -> int | None:
    return int(ends.min()) if len(ends) else None


def _lowest(*ends: int | None) -> int | None:
    return min((end for end in ends if end is not None), default=None)
