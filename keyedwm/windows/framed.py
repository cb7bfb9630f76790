"""Tumbling and sliding windows out of frames, whole columns at once (DESIGN rule 11; scalar reference: core.sliding).

Rule: a window closes once, at W >= end; it is kept until W >= end + lateness, and partials that reach it meanwhile give
a late pane. Discarding plans hold windows of their own instead of frames, as each has been shown another part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from keyedwm.core.errors import InputError
from keyedwm.core.late import LateRule
from keyedwm.windows.columns import Flags, Ints, contiguous, ints
from keyedwm.windows.entries import Entries, joined, merged, neutral, read_entries
from keyedwm.windows.frame_store import FrameStore
from keyedwm.windows.keys import Keys, distinct_codes, key_columns
from keyedwm.windows.kinds import Groups
from keyedwm.windows.pane_book import PaneBook
from keyedwm.windows.plan import LAST, START, LatePolicy, Plan, Sliding, Timing
from keyedwm.windows.results import Panes, late_sentence, results, together
from keyedwm.windows.state import Changes, note, read_note
from keyedwm.windows.touched import Touched


class FrameOperator:
    """One operator instance: one Jet processor. `late_rows` counts what was late since it was built."""

    def __init__(self, plan: Plan, window: Sliding, state: Mapping[str, bytes]) -> None:
        self._plan = plan
        self._window = window
        self._frames_each = window.size_ms // window.slide_ms
        self._accumulating = plan.accumulating or not plan.has_panes
        self._overlap = self._frames_each if self._accumulating else 1
        self._keys = Keys(plan.key_fields)
        self._changes = Changes()
        self._store = FrameStore(plan, window, self._keys, self._overlap, self._changes)
        self._book = PaneBook(plan, window, self._keys, self._changes)
        facts = read_note(plan, state) if state else {}
        self._touched = Touched(plan, self._keys, facts.get("due_ms"), state)
        self._store.restore(state)
        self._book.restore(state)
        self.watermark_ms = facts.get("watermark_ms")
        self.late_rows = 0

    @property
    def open_frames(self) -> int:
        """How many (key, frame) are held."""
        return self._store.entries

    def take(self, partials: pa.Table, now_ms: int | None = None) -> pa.Table:
        """Hold partials; return the panes they give at once: expired rows, late panes, early panes by count."""
        self._touched.start(now_ms)
        keys = self._keys.numbers(key_columns(self._plan.by, partials), partials.num_rows)
        entries = read_entries(self._plan, keys, partials)
        frames = (ints(contiguous(partials[START])) - self._window.offset_ms) // self._window.slide_ms
        late = self._late(frames, partials)
        shown = []
        if late.any():
            shown.append(self._expired(entries.take(np.flatnonzero(late)), frames[late]))
            entries, frames = entries.take(np.flatnonzero(~late)), frames[~late]
        if not self._accumulating:
            entries, frames = self._into_windows(entries, frames)
        self._store.hold(entries, frames)
        self._touched.add(entries.keys, frames)
        shown += self._panes_at_once(entries.keys, frames)
        return together(self._plan, shown)

    def advance(self, watermark_ms: int) -> pa.Table:
        """Close the windows with ends at or below the watermark."""
        if self.watermark_ms is not None and watermark_ms <= self.watermark_ms:
            return self._plan.result_schema.empty_table()
        closed = self._closing(self._last_end(watermark_ms))
        self.watermark_ms = watermark_ms
        last = self._last_end(watermark_ms - self._plan.lateness_ms)
        self._store.forget(last)
        self._book.forget(last)
        self._touched.forget(self._last_end(watermark_ms) - self._overlap)
        self._keys.compact([self._store, self._book, self._touched])
        return closed

    def clock(self, now_ms: int) -> pa.Table:
        """Wall-clock time has come to `now_ms`: early panes of the open windows touched since the last ones, if due."""
        keys, frames = self._touched.due(now_ms)
        if not len(keys):
            return self._plan.result_schema.empty_table()
        keys, ends = self._windows_of(keys, frames)
        is_open = ends > self._closed_end()
        return self._early(keys[is_open], ends[is_open], 1)

    def complete(self) -> pa.Table:
        """The input has ended: close every window, and keep nothing."""
        last = max(self._store.numbers, default=0) + self._overlap
        closed = self._closing(max(last, self._book.last_end() or last))
        self._store.clear()
        self._book.clear()
        self._touched.clear()
        return closed

    def snapshot(self) -> dict[str, bytes]:
        """Everything the next step depends on, as named blobs."""
        return dict([*self._store.blobs(), *self._book.blobs(), *self._touched.blobs(), self._note()])

    def changed(self) -> tuple[dict[str, bytes], set[str]]:
        """The blobs that are new or other than at the last question, and the names of those that are no more."""
        touched, gone = self._changes.taken()
        blobs = [*self._store.blobs(touched), *self._book.blobs(touched), *self._touched.blobs(), self._note()]
        return dict(blobs), gone

    def _note(self) -> tuple[str, bytes]:
        facts = {"watermark_ms": self.watermark_ms, "due_ms": self._touched.due_ms}
        return note(self._plan, facts)

    def _last_end(self, watermark_ms: int) -> int:
        return (watermark_ms - self._window.offset_ms) // self._window.slide_ms

    def _closed_end(self) -> int:
        """The last end at or below the watermark; below every end if there is none."""
        return -(2**62) if self.watermark_ms is None else self._last_end(self.watermark_ms)

    def _kept_end(self) -> int:
        """The last end of which no window is kept."""
        return -(2**62) if self.watermark_ms is None else self._last_end(self.watermark_ms - self._plan.lateness_ms)

    def _late(self, frames: Ints, partials: pa.Table) -> Flags:
        if self._plan.late_rule is LateRule.EVENT and self.watermark_ms is not None:
            return ints(contiguous(partials[LAST])) < self.watermark_ms
        behind = self._frames_each if self._plan.late_rule is LateRule.WINDOW else 1
        return frames + behind <= self._kept_end()

    def _expired(self, entries: Entries, frames: Ints) -> pa.Table:
        """What becomes of late rows; each is shown with the last window that would have taken it."""
        rows = int(entries.rows.sum())
        self.late_rows += rows
        if self._plan.late is LatePolicy.FAIL:
            starts = self._window.offset_ms + frames * self._window.slide_ms
            raise InputError(late_sentence(rows, int(starts.min()), self.watermark_ms))
        if self._plan.late is LatePolicy.DROP:
            return self._plan.result_schema.empty_table()
        whole, ends = self._grouped(entries, frames + self._frames_each)
        return self._shown(whole, ends, Timing.EXPIRED, np.zeros(len(ends), np.int64))

    def _grouped(self, entries: Entries, ends: Ints) -> tuple[Entries, Ints]:
        """One entry for each (key, end)."""
        width, low = self._keys.count, int(ends.min())
        ids, codes = distinct_codes((ends - low) * width + entries.keys, (int(ends.max()) - low + 1) * width)
        return merged(self._plan, entries, Groups(ids, len(codes)), codes % width), codes // width + low

    def _into_windows(self, entries: Entries, frames: Ints) -> tuple[Entries, Ints]:
        """Entries once for each window that takes them."""
        places = np.repeat(np.arange(len(frames)), self._frames_each)
        windows = frames[places] + np.tile(np.arange(self._frames_each), len(frames))
        kept = np.flatnonzero(windows + 1 > self._kept_end())
        return entries.take(places[kept]), windows[kept]

    def _windows_of(self, keys: Ints, frames: Ints) -> tuple[Ints, Ints]:
        """The distinct (key, end) of windows that hold these (key, frame)."""
        width, low = self._keys.count, int(frames.min(initial=0))
        codes = np.unique((frames - low) * width + keys)
        codes = np.unique((codes[:, None] + width * np.arange(1, self._overlap + 1)).ravel())
        return codes % width, codes // width + low

    def _panes_at_once(self, keys: Ints, frames: Ints) -> list[pa.Table]:
        """The panes that windows give because these frames were touched: late ones, and early ones by count."""
        closed, kept = self._closed_end(), self._kept_end()
        every = None if self._plan.early is None else self._plan.early.rows
        if every is None:  # only closed windows have to say something
            keys, frames = keys[frames < closed], frames[frames < closed]
        if not self._plan.has_panes or not len(keys):
            return []
        keys, ends = self._windows_of(keys, frames)
        shown = []
        late = (ends <= closed) & (ends > kept)
        if late.any():
            shown.append(self._paned(*self._store.totals(keys[late], ends[late]), Timing.LATE))
        if every is not None:
            shown.append(self._early(keys[ends > closed], ends[ends > closed], every))
        return shown

    def _early(self, keys: Ints, ends: Ints, rows: int) -> pa.Table:
        """Early panes of those of these windows that took so many rows since their last pane."""
        if not len(keys):
            return self._plan.result_schema.empty_table()
        totals, ends = self._store.totals(keys, ends)
        _, told = self._book.told(totals.keys, ends)
        due = np.flatnonzero(totals.rows - told >= rows)
        return self._paned(totals.take(due), ends[due], Timing.EARLY)

    def _closing(self, high: int) -> pa.Table:
        """The on-time panes of the windows not yet closed that end at or before frame `high`."""
        numbers = self._store.numbers
        low = max(min(numbers, default=high) + 1, self._closed_end() + 1)
        totals, ends = self._store.closing(low, min(high, max(numbers, default=low) + self._overlap))
        if not self._accumulating and self._plan.early is not None:
            keys, told = self._book.between(self._closed_end() + 1, high)
            empty = ~np.isin(told * self._keys.count + keys, ends * self._keys.count + totals.keys)
            totals = joined([totals, neutral(self._plan, keys[empty])])
            ends = np.concatenate([ends, told[empty]])
        return self._paned(totals, ends, Timing.ON_TIME)

    def _paned(self, totals: Entries, ends: Ints, timing: Timing) -> pa.Table:
        """Show totals as each window's next pane."""
        if not self._plan.has_panes:
            return self._shown(totals, ends, timing, np.zeros(len(ends), np.int64))
        panes, _ = self._book.told(totals.keys, ends)
        rows = totals.rows
        if not self._accumulating:
            self._store.remove(totals.keys, ends - 1)
            rows = np.zeros(len(ends), np.int64)
        self._book.write(totals.keys, ends, panes + 1, rows)
        return self._shown(totals, ends, timing, panes)

    def _shown(self, totals: Entries, ends: Ints, timing: Timing, index: Ints) -> pa.Table:
        ends_ms = self._window.offset_ms + ends * self._window.slide_ms
        last = timing is Timing.EXPIRED or (timing is Timing.ON_TIME and not self._plan.lateness_ms)
        panes = Panes(totals, ends_ms - self._window.size_ms, ends_ms, timing, index, last)
        return results(self._plan, self._keys, panes)
