"""Frames of keys with their own watermarks: each entry has the hash of its owner.

Rule: a read finds the entries of some owners by that hash, and reads no key of other owners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.aggregates.aggregate_function import Spans
from keyedwm.operators.frames.frame_log import FrameLog, FrameTables
from keyedwm.operators.frames.plan import FrameWindow, WindowPlan
from keyedwm.operators.kernels import closing_windows, sorted_by_number
from keyedwm.operators.keyed.key_watermarks import KeyWatermarks
from keyedwm.operators.state.entries import Accumulators, grouped, no_entries, over_spans, read_entries, table_of
from keyedwm.operators.state.hashed_keys import HASH, HashedKeys
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.store import TableLogs

_NONE = np.empty(0, np.int64)


class OwnedFrameLog(FrameLog):
    """See `FrameLog`. own: the owners; they are the keys themselves if `by` of the watermarks names all columns."""

    def __init__(
        self, plan: WindowPlan, window: FrameWindow, overlap: int, logs: TableLogs, own: KeyWatermarks
    ) -> None:
        super().__init__(plan, window, overlap, logs)
        self._own = own
        self._owns_all = plan.owners == plan.by
        self.closed_rows: dict[int, int] = {}  # frame → its rows of the last closed windows that begin with it

    def rows_of(self, number: int) -> int:
        """Return how many rows of keys a frame has, in several parts."""
        return self._by_frame.rows(number)

    def dictionary(self) -> HashedKeys:
        """Return a dictionary for keys: the owners' dictionary if the owners are the keys."""
        return self._own.owners if self._owns_all else HashedKeys(self._plan.key_fields)

    def closing_of(
        self, keys: HashedKeys, lows: Ints, highs: Ints, among: Collection[int]
    ) -> tuple[Accumulators, Ints]:
        """Return the totals of windows of owners that hold something, and their ends; see `FrameLog.closing`.

        lows, highs: for each owner, the first and the last end that close. among: the frames that can hold something.
        """
        asked_frames = [(number, self._by_frame.read(number)) for number in sorted(among)]
        entries, frames, owners = self._rows(keys, asked_frames, lows <= highs)
        last = frames + self._overlap
        first_frames = frames[(lows[owners] <= last) & (last <= highs[owners])]  # in ascending order
        begins = np.flatnonzero(np.diff(first_frames, prepend=first_frames[:1] - 1))
        counts = np.diff(begins, append=len(first_frames))
        self.closed_rows = dict(zip(first_frames[begins].tolist(), counts.tolist(), strict=True))
        if not len(entries):  # totals all the same: their form may differ from that of accumulators
            return over_spans(self._plan, entries, Spans(_NONE, _NONE)), _NONE
        key_owners = self._own.owners_of_keys(keys, self._plan.by, np.arange(keys.count))
        lows, highs = (_filled(one, self._own.count, nothing) for one, nothing in ((lows, 1), (highs, 0)))
        entries, frames = grouped(self._plan, keys, entries, frames)
        order = sorted_by_number(entries.keys, keys.count)
        entries = entries.take_rows(order)
        ends, first, behind = closing_windows(
            entries.keys, frames[order], lows[key_owners], highs[key_owners], self._overlap
        )
        return over_spans(self._plan, entries, Spans(first, behind)), ends

    def drop(self, number: int) -> None:
        """Drop a frame without kept entries."""
        self._by_frame.drop(number)

    def keep(self, number: int, is_kept: Callable[[KeyDictionary, Ints], Flags]) -> None:
        """Rewrite a frame with the entries that are kept, by the numbers of their keys."""
        keys = self.dictionary()
        entries, _ = self._read(keys, [(number, self._by_frame.read(number))])
        rest = entries.take_rows(np.flatnonzero(is_kept(keys, entries.keys)))
        if len(rest) < len(entries):
            self._by_frame.replace(number, self._table(keys, rest))

    def _rows(
        self, keys: HashedKeys, parts_by_frame: Sequence[FrameTables], is_asked: Flags | None
    ) -> tuple[Accumulators, Ints, Ints]:
        """Return the rows of known owners, their frames and owners. is_asked: a flag for each owner, None for all."""
        tables, frames, owners, numbers = [], [], [], []
        for number, parts in parts_by_frame:
            for table in parts:
                places, row_owners = self._own.find(table, is_asked)
                if len(places):
                    rows = (table.drop_columns(self._plan.by) if self._owns_all else table).take(pa.array(places))
                    tables.append(rows)
                    frames.append(np.full(len(places), number))
                    owners.append(row_owners)
                    numbers.append(row_owners if self._owns_all else keys.numbers_of(rows))
        if not tables:
            return no_entries(self._plan), np.empty(0, np.int64), np.empty(0, np.int64)
        entries = read_entries(self._plan, np.concatenate(numbers), pa.concat_tables(tables))
        return entries, np.concatenate(frames), np.concatenate(owners)

    def _read_known(self, keys: KeyDictionary, frames: Sequence[FrameTables]) -> tuple[Accumulators, Ints]:
        if keys is not self._own.owners:
            return self._read(keys, frames)
        entries, numbers, _ = self._rows(self._own.owners, frames, None)
        return grouped(self._plan, keys, entries, numbers)

    def _dictionary(self) -> KeyDictionary:
        return HashedKeys(self._plan.key_fields)

    def _entries(self, keys: KeyDictionary, tables: Sequence[pa.Table]) -> Accumulators:
        if not (self._owns_all and isinstance(keys, HashedKeys)):
            return super()._entries(keys, tables)
        table = pa.concat_tables(tables)
        return read_entries(self._plan, keys.numbers_of(table, is_hashed=True), table)

    def _table(self, keys: KeyDictionary, entries: Accumulators) -> pa.Table:
        table = table_of(self._plan, keys, entries)
        return table.append_column(HASH, pa.array(self._own.hashes(keys, self._plan.by, entries.keys)))


def _filled(column: Ints, size: int, filled: int) -> Ints:
    longer = np.full(max(size, len(column)), filled)
    longer[: len(column)] = column
    return longer
