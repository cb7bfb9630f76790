"""The frames of one operator, and the totals of windows over them.

Rule: a frame's accumulators depend on its events alone, and a window's on its frames, bit for bit: how the input was
cut, in which order it came and where a restart fell cannot be seen. Entries of a frame stand in order of key number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from keyedwm.windows.columns import Ints
from keyedwm.windows.entries import Entries, joined, merged, no_entries, over_spans, read_entries, table_of
from keyedwm.windows.keys import Keys, distinct_codes, key_columns
from keyedwm.windows.kinds import Groups, Spans
from keyedwm.windows.loops import closing_windows, sorted_by_number
from keyedwm.windows.plan import Plan, Sliding
from keyedwm.windows.state import Changes, packed, unpacked

_FRAME = "frame-"


class FrameStore:
    """Frames by number; the window that ends at frame `e` holds the frames `[e - overlap, e)`."""

    def __init__(self, plan: Plan, window: Sliding, keys: Keys, overlap: int, changes: Changes) -> None:
        self._plan = plan
        self._window = window
        self._keys = keys
        self._overlap = overlap
        self._changes = changes
        self._frames: dict[int, Entries] = {}

    @property
    def numbers(self) -> Iterable[int]:
        """Of the frames held."""
        return self._frames.keys()

    @property
    def entries(self) -> int:
        """How many (key, frame) are held."""
        return sum(len(frame) for frame in self._frames.values())

    def hold(self, entries: Entries, frames: Ints) -> None:
        """Merge entries into their frames, all touched frames at once."""
        if not len(entries):
            return
        touched, at = np.unique(frames, return_inverse=True)
        held = [
            (place, self._frames[number]) for place, number in enumerate(touched.tolist()) if number in self._frames
        ]
        everything = joined([entries, *(frame for _, frame in held)])
        places = np.concatenate([at, *(np.full(len(frame), place) for place, frame in held)])
        width = self._keys.count
        ids, codes = distinct_codes(places * width + everything.keys, len(touched) * width)
        whole = merged(self._plan, everything, Groups(ids, len(codes)), codes % width)
        borders = np.searchsorted(codes, np.arange(len(touched) + 1) * width)
        for place, number in enumerate(touched.tolist()):
            self._frames[number] = whole.take(np.arange(borders[place], borders[place + 1]))
        self._changes.touch(map(self._name, touched.tolist()))

    def remove(self, keys: Ints, frames: Ints) -> None:
        """Take these (key, frame) out."""
        for number in np.unique(frames).tolist():
            held = self._frames.get(number)
            if held is None:
                continue
            kept = held.take(np.flatnonzero(~np.isin(held.keys, keys[frames == number])))
            if len(kept):
                self._frames[number] = kept
                self._changes.touch([self._name(number)])
            else:
                self._drop([number])

    def closing(self, low: int, high: int) -> tuple[Entries, Ints]:
        """The totals of the windows with ends in `[low, high]` that hold something, and their ends."""
        if low > high:
            return no_entries(self._plan), np.empty(0, np.int64)
        entries, frames = self._gathered(low, high)
        order = sorted_by_number(self._keys.ranks(entries.keys), self._keys.count)
        entries = entries.take(order)
        ends, first, behind = closing_windows(entries.keys, frames[order], low, high, self._overlap)
        return over_spans(self._plan, entries, Spans(first, behind)), ends

    def totals(self, keys: Ints, ends: Ints) -> tuple[Entries, Ints]:
        """The totals of those of these windows that hold something, and their ends: in another order."""
        low, high = int(ends.min()), int(ends.max())
        entries, frames = self._frames_of([number for number in self._frames if low - self._overlap <= number < high])
        mine = np.flatnonzero(np.isin(entries.keys, keys))
        entries, frames = entries.take(mine), frames[mine]
        span = high - low + self._overlap + 1
        codes = entries.keys * span + (frames - low + self._overlap)
        order = np.argsort(codes, kind="stable")
        wanted = np.lexsort((ends, keys))
        keys, ends = keys[wanted], ends[wanted]
        first = np.searchsorted(codes[order], keys * span + (ends - low))
        behind = np.searchsorted(codes[order], keys * span + (ends - low + self._overlap))
        full = behind > first
        return over_spans(self._plan, entries.take(order), Spans(first[full], behind[full])), ends[full]

    def forget(self, last: int) -> None:
        """Drop the frames of which the last window ends at frame `last` or before."""
        self._drop([number for number in self._frames if number + self._overlap <= last])

    def clear(self) -> None:
        """Drop all."""
        self._drop(list(self._frames))

    def used_keys(self) -> list[Ints]:
        """The numbers of keys that are held."""
        return [frame.keys for frame in self._frames.values()]

    def renumber(self, renumbered: Ints) -> None:
        """Follow a compaction of the keys (which keeps their order)."""
        for number, frame in self._frames.items():
            self._frames[number] = Entries(renumbered[frame.keys], frame.rows, frame.accumulators)

    def blobs(self, names: set[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """The blobs of these names, or of all frames."""
        for number, frame in self._frames.items():
            name = self._name(number)
            if names is None or name in names:
                yield name, packed(table_of(self._plan, self._keys, frame))

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Read the frames among these blobs."""
        tables = {self._number(name): unpacked(blob) for name, blob in state.items() if name.startswith(_FRAME)}
        if not tables:
            return
        whole = pa.concat_tables(tables.values())
        entries = read_entries(self._plan, self._keys.numbers(key_columns(self._plan.by, whole), whole.num_rows), whole)
        borders = np.cumsum([0, *(table.num_rows for table in tables.values())])
        for number, start, stop in zip(tables, borders[:-1], borders[1:], strict=True):
            self._frames[number] = entries.take(start + np.argsort(entries.keys[start:stop], kind="stable"))

    def _gathered(self, low: int, high: int) -> tuple[Entries, Ints]:
        """The entries of windows with ends in `[low, high]`; the frames that all of these windows hold count as one."""
        numbers = sorted(number for number in self._frames if low - self._overlap <= number < high)
        before = [number for number in numbers if number < min(low, high - self._overlap)]
        common = [number for number in numbers if high - self._overlap <= number < low]
        behind = numbers[len(before) + len(common) :]
        if len(common) < 2:
            return self._frames_of(numbers)
        everything, _ = self._frames_of(common)
        ids, keys = distinct_codes(everything.keys, self._keys.count)
        one = merged(self._plan, everything, Groups(ids, len(keys)), keys)
        pieces = [self._frames_of(before), (one, np.full(len(one), common[0])), self._frames_of(behind)]
        return joined([entries for entries, _ in pieces]), np.concatenate([frames for _, frames in pieces])

    def _frames_of(self, numbers: Sequence[int]) -> tuple[Entries, Ints]:
        """The entries of these frames in order, and the frame of each."""
        frames = [self._frames[number] for number in sorted(numbers)]
        if not frames:
            return no_entries(self._plan), np.empty(0, np.int64)
        return joined(frames), np.repeat(np.array(sorted(numbers)), [len(frame) for frame in frames])

    def _drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._frames[number]
        self._changes.forget(map(self._name, numbers))

    def _name(self, number: int) -> str:
        window = self._window
        return f"{_FRAME}{window.offset_ms + number * window.slide_ms}"

    def _number(self, name: str) -> int:
        window = self._window
        return (int(name.removeprefix(_FRAME)) - window.offset_ms) // window.slide_ms
