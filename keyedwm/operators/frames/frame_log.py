"""The frames of one operator as logs of partial tables, and the totals of windows over them.

Rule: a frame's accumulators depend only on its events, and a window's only on its frames, bit for bit: neither the
batches nor the order of events nor a restart changes a result. For long windows, runs of 8, 64, ... frames are merged
once into blocks, so that a window that closes reads few tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints, sorted_distinct
from keyedwm.operators.aggregates.aggregate_function import Spans
from keyedwm.operators.frames.plan import FrameWindow, WindowPlan
from keyedwm.operators.kernels import closing_windows, sorted_by_number
from keyedwm.operators.state.entries import Accumulators, grouped, no_entries, over_spans, read_entries, table_of
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.store import TableLogs
from keyedwm.operators.state.table import SlicedTable, runs_of

FRAME, BLOCK = "frame-", "block-"
_FRAMES_IN_BLOCK = 8
FrameTables: TypeAlias = tuple[int, list[pa.Table]]  # the number of a frame, and the tables of its log
# A function of the keys and two ends: for each key, the first and the last end between them that close.
Limits: TypeAlias = Callable[[KeyDictionary, int, int], tuple[Ints, Ints]]


class FrameLog:
    """Frames by number; the window that ends at frame `e` holds the frames `[e - overlap, e)`."""

    def __init__(self, plan: WindowPlan, window: FrameWindow, overlap: int, logs: TableLogs) -> None:
        self._plan = plan
        self._overlap = overlap
        self._by_frame = SlicedTable(logs, FRAME, self._merge, window)
        lengths = [length for length in (4096, 512, 64, 8) if 2 * length <= overlap]
        # Length → blocks of this number of frames, by their first frame.
        self._blocks = {length: SlicedTable(logs, f"{BLOCK}{length}@", self._merge, window) for length in lengths}

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of the frames held."""
        return self._by_frame.numbers

    @property
    def entries(self) -> int:
        """The number of rows that the frames hold, before parts of a frame are merged."""
        return self._by_frame.all_rows

    def append(self, keys: KeyDictionary, entries: Accumulators, frames: Ints) -> None:
        """Add entries to their frames."""
        if not len(entries):
            return
        order = np.argsort(frames, kind="stable")
        table = self._table(keys, entries.take_rows(order))
        for number, begin, end in runs_of(frames[order]):
            rows = table.slice(begin, end - begin)
            self._by_frame.add_to(number, rows)
            for length, blocks in self._blocks.items():
                if (first := number // length * length) in blocks.numbers:
                    blocks.add_to(first, rows)

    def remove(self, keys: KeyDictionary, numbers: Ints, frames: Ints) -> None:
        """Remove these (key, frame) pairs."""
        for number in sorted_distinct(frames).tolist():
            entries, _ = self._read(keys, [(number, self._by_frame.read(number))])
            rest = entries.take_rows(np.flatnonzero(~np.isin(entries.keys, numbers[frames == number])))
            if len(rest) == len(entries):
                continue
            self._by_frame.drop(number)
            self.append(keys, rest, np.full(len(rest), number))

    def closing(self, keys: KeyDictionary, low: int, high: int, limits: Limits) -> tuple[Accumulators, Ints]:
        """Return the totals of the windows with ends in `[low, high]` that hold something, and their ends.

        limits: the first and the last end of each key in `[low, high]`.
        """
        if low > high:
            return no_entries(self._plan), np.empty(0, np.int64)
        entries, frames = self._read(keys, self._tables_of_windows(low, high))
        lows, highs = limits(keys, low, high)
        closes = np.flatnonzero(lows[entries.keys] <= highs[entries.keys])
        entries, frames = entries.take_rows(closes), frames[closes]
        order = sorted_by_number(keys.ranks(entries.keys), keys.count)
        entries = entries.take_rows(order)
        ends, first, behind = closing_windows(entries.keys, frames[order], lows, highs, self._overlap)
        return over_spans(self._plan, entries, Spans(first, behind)), ends

    def totals(self, keys: KeyDictionary, key_numbers: Ints, ends: Ints) -> tuple[Accumulators, Ints]:
        """Return the totals of these windows (key, end) that hold something, and their ends, in another order."""
        closing = sorted_distinct(ends)
        numbers = np.array(sorted(self.numbers), np.int64)
        # There can be far more (window, frame) pairs than rows.
        is_needed = np.searchsorted(closing, numbers + 1) < np.searchsorted(closing, numbers + self._overlap + 1)
        near = numbers[is_needed].tolist()
        entries, frames = self._read_known(keys, [(number, self._by_frame.read(number)) for number in near])
        places = np.flatnonzero(np.isin(entries.keys, key_numbers))
        entries, frames = entries.take_rows(places), frames[places]
        # Frames are compared by their rank: far apart, they would leave no room for the keys in 64 bits.
        distinct, ranks = np.unique(frames, return_inverse=True)
        width = len(distinct) + 1
        codes = entries.keys * width + ranks
        order = np.argsort(codes, kind="stable")
        by_key = np.lexsort((ends, key_numbers))
        key_numbers, ends = key_numbers[by_key], ends[by_key]
        first = np.searchsorted(codes[order], key_numbers * width + np.searchsorted(distinct, ends - self._overlap))
        behind = np.searchsorted(codes[order], key_numbers * width + np.searchsorted(distinct, ends))
        full = behind > first
        return over_spans(self._plan, entries.take_rows(order), Spans(first[full], behind[full])), ends[full]

    def forget(self, last: int) -> None:
        """Drop the frames whose last window ends at frame `last` or before."""
        for table in (self._by_frame, *self._blocks.values()):
            table.drop_below(last - self._overlap + 1)

    def _merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge parts of a frame or block: one entry for each key."""
        keys = self._dictionary()
        entries = self._entries(keys, tables)
        return self._table(keys, grouped(self._plan, keys, entries, np.zeros(len(entries), np.int64))[0])

    def _tables_of_windows(self, low: int, high: int) -> list[FrameTables]:
        """Return the tables of windows with ends in `[low, high]`; frames that all windows hold may come as blocks."""
        common = (max(low - self._overlap, high - self._overlap), low)
        tables = [
            (number, self._by_frame.read(number))
            for number in self._by_frame.between(low - self._overlap, high)
            if not common[0] <= number < common[1]
        ]
        # The frames that all windows hold count as one frame, so that each key has one entry for them.
        return [*tables, *((common[0], parts) for parts in self._cover(*common))]

    def _cover(self, low: int, high: int) -> Iterator[list[pa.Table]]:
        """Yield the fewest logs that together hold the frames `[low, high)`; create missing blocks."""
        for number in self._by_frame.between(low, high):
            if number < low:
                continue
            length = next(
                (one for one in self._blocks if number // one * one >= low and number // one * one + one <= high), 1
            )
            first = number // length * length
            low = first + length
            yield self._block(length, first)

    def _block(self, length: int, first: int) -> list[pa.Table]:
        """Return the tables of a block, made of smaller blocks if it is missing; a block of length 1 is a frame."""
        if length == 1:
            return self._by_frame.read(first)
        blocks = self._blocks[length]
        if first not in blocks.numbers:
            inner = length // _FRAMES_IN_BLOCK
            starts = sorted({number // inner * inner for number in self._by_frame.between(first, first + length)})
            blocks.add_to(first, self._merge([table for start in starts for table in self._block(inner, start)]))
        return blocks.read(first)

    def _read(self, keys: KeyDictionary, frames: Sequence[FrameTables]) -> tuple[Accumulators, Ints]:
        """Return one entry for each (key, frame) of these tables, in order of frame, then key number."""
        tables = [(number, table) for number, parts in frames for table in parts if table.num_rows]
        if not tables:
            return no_entries(self._plan), np.empty(0, np.int64)
        entries = self._entries(keys, [table for _, table in tables])
        numbers = np.repeat(np.array([number for number, _ in tables]), [table.num_rows for _, table in tables])
        return grouped(self._plan, keys, entries, numbers)

    def _read_known(self, keys: KeyDictionary, frames: Sequence[FrameTables]) -> tuple[Accumulators, Ints]:
        """Return the result of `_read`, in which only keys that have a number are needed."""
        return self._read(keys, frames)

    def _dictionary(self) -> KeyDictionary:
        """Return an empty dictionary of keys."""
        return KeyDictionary(self._plan.key_fields)

    def _entries(self, keys: KeyDictionary, tables: Sequence[pa.Table]) -> Accumulators:
        """Return the rows of these tables."""
        table = pa.concat_tables(tables)
        return read_entries(self._plan, keys.numbers_of(table), table)

    def _table(self, keys: KeyDictionary, entries: Accumulators) -> pa.Table:
        """Return entries as a table to write."""
        return table_of(self._plan, keys, entries)
