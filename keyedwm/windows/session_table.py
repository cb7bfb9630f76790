"""The sessions of one operator at rest: a table, cut into slices of event time so that a batch rewrites few.

Rule: a slice holds the sessions that end in it; nothing else depends on slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from keyedwm.windows.columns import Ints, contiguous, ints
from keyedwm.windows.entries import Entries, joined, no_entries, read_entries, table_of
from keyedwm.windows.keys import Keys, key_columns
from keyedwm.windows.plan import END, HIDDEN, START, Plan
from keyedwm.windows.state import packed, unpacked

_SLICE = "sessions-"
_SLICES_IN_A_GAP = 4


@dataclass(frozen=True, slots=True)
class Intervals:
    """Of each session: its interval, whether its total was shown after it closed, and its panes so far.

    `told_rows` is how many rows the last pane told of, `touched` whether something came since the clock's last panes.
    """

    starts: Ints
    ends: Ints
    shown: Ints
    panes: Ints
    told_rows: Ints
    touched: Ints

    def take(self, places: Ints) -> Intervals:
        """The sessions at these places."""
        return Intervals(*(getattr(self, inner.name)[places] for inner in fields(self)))


@dataclass(frozen=True, slots=True)
class Held:
    """Sessions: entries and intervals, row by row."""

    entries: Entries
    intervals: Intervals

    def __len__(self) -> int:
        return len(self.entries)

    def take(self, places: Ints) -> Held:
        """The sessions at these places."""
        return Held(self.entries.take(places), self.intervals.take(places))


def new_sessions(entries: Entries, starts: Ints, ends: Ints) -> Held:
    """Sessions that nothing was told of."""
    return Held(entries, Intervals(starts, ends, *(np.zeros(len(entries), np.int64) for _ in range(4))))


def all_of(pieces: Sequence[Held]) -> Held:
    """Some sessions behind each other."""
    columns = [
        np.concatenate([getattr(piece.intervals, inner.name) for piece in pieces]) for inner in fields(Intervals)
    ]
    return Held(joined([piece.entries for piece in pieces]), Intervals(*columns))


class SessionTable:
    """The sessions held, and the slices touched since they were last written."""

    def __init__(self, plan: Plan, keys: Keys, gap_ms: int, state: Mapping[str, bytes]) -> None:
        self._plan = plan
        self._keys = keys
        self._slice_ms = max(1, gap_ms // _SLICES_IN_A_GAP)
        self._touched = np.empty(0, np.int64)
        self.held = self._read(state)

    def replace(self, places: Ints, by: Held, kept: Ints) -> None:
        """Put other sessions in the place of some; `kept` are the places of the rest."""
        self._touch(self.held.intervals.ends[places])
        self._touch(by.intervals.ends)
        self.held = all_of([self.held.take(kept), by])

    def used_keys(self) -> list[Ints]:
        """The numbers of keys that have sessions."""
        return [self.held.entries.keys]

    def renumber(self, renumbered: Ints) -> None:
        """Follow a compaction of the keys."""
        entries = self.held.entries
        self.held = Held(Entries(renumbered[entries.keys], entries.rows, entries.accumulators), self.held.intervals)

    def blobs(self) -> dict[str, bytes]:
        """Every slice."""
        return dict(self._sliced(None))

    def changed(self) -> tuple[dict[str, bytes], set[str]]:
        """The slices touched since the last question, and those that are no more."""
        blobs = dict(self._sliced(self._touched))
        gone = {f"{_SLICE}{number * self._slice_ms}" for number in self._touched.tolist()} - blobs.keys()
        self._touched = np.empty(0, np.int64)
        return blobs, gone

    def _touch(self, ends: Ints) -> None:
        self._touched = np.union1d(self._touched, ends // self._slice_ms)

    def _sliced(self, only: Ints | None) -> Iterator[tuple[str, bytes]]:
        slices = self.held.intervals.ends // self._slice_ms
        order = np.argsort(slices, kind="stable")
        numbers, begins = np.unique(slices[order], return_index=True)
        for number, begin, stop in zip(numbers, begins, np.append(begins, len(order))[1:], strict=True):
            if only is None or number in only:
                yield f"{_SLICE}{number * self._slice_ms}", packed(self._table(self.held.take(order[begin:stop])))

    def _table(self, held: Held) -> pa.Table:
        table = table_of(self._plan, self._keys, held.entries)
        for inner in fields(Intervals):
            table = table.append_column(_name(inner.name), pa.array(getattr(held.intervals, inner.name)))
        return table

    def _read(self, state: Mapping[str, bytes]) -> Held:
        tables = [unpacked(state[name]) for name in sorted(state) if name.startswith(_SLICE)]
        if not tables:
            return new_sessions(no_entries(self._plan), np.empty(0, np.int64), np.empty(0, np.int64))
        table = pa.concat_tables(tables)
        keys = self._keys.numbers(key_columns(self._plan.by, table), table.num_rows)
        columns = [ints(contiguous(table[_name(inner.name)])) for inner in fields(Intervals)]
        return Held(read_entries(self._plan, keys, table), Intervals(*columns))


def _name(field: str) -> str:
    return {"starts": START, "ends": END}.get(field, f"{HIDDEN}{field}")
