"""Tumbling and sliding windows that close by a watermark of their key.

Rule: the operator of windows gets `W - behind` as its watermark, below which all windows of every key are closed. In
addition, a batch closes windows of its own keys whose end their watermark has passed. The key's watermark alone shows
which windows are closed, so no window is emitted twice, and no state is needed for it. A frame in which most rows
belong to closed windows is rewritten without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints, sorted_distinct
from keyedwm.core.lateness import NEVER, delay_ms, has_ended, horizon_ms
from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.frames.owned_frames import OwnedFrameLog
from keyedwm.operators.frames.plan import FrameWindow, WindowPlan
from keyedwm.operators.frames.sliding import SlidingOperator
from keyedwm.operators.keyed.key_watermarks import KeyWatermarks
from keyedwm.operators.keyed.per_key import PerKey
from keyedwm.operators.results import CHANNEL, LAST, START, Output
from keyedwm.operators.state.entries import Accumulators
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.manifest import read_manifest
from keyedwm.operators.state.store import BlobStore, StateChanges

_NONE = np.empty(0, np.int64)


class PerKeyOperator(SlidingOperator):
    """One instance of the operator; its `watermark_ms` is `W - behind`."""

    def __init__(self, plan: WindowPlan, window: FrameWindow, per_key: PerKey, store: BlobStore) -> None:
        super().__init__(plan, window, store)
        self._behind_ms = per_key.behind_ms
        state = read_manifest(plan, store)
        self._own = KeyWatermarks(plan, per_key, self._logs, state)
        self._own.rise(self.watermark_ms)
        self._frames: OwnedFrameLog = OwnedFrameLog(plan, window, self._overlap, self._logs, self._own)
        # Frame → how many of its rows belong to windows that begin with it and have closed since its last check, and
        # whether its parts were merged since, so that it may have fewer rows.
        entries_by_frame = {window.frame_of(int(start)): entry for start, entry in state.get("gone", {}).items()}
        self._closed_rows = Counter({frame: closed for frame, (closed, _) in entries_by_frame.items()})
        self._merged = {frame for frame, (_, is_merged) in entries_by_frame.items() if is_merged}
        # If each window has its own rows (`_into_windows`), a row is also in this number of frames after its own.
        self._later_frames = self._frames_each - self._overlap
        # Then a frame whose rows all belong to closed windows is dropped without reading it.
        self._one_window_each = self._overlap == 1 and not plan.lateness_ms
        self._numbers: Ints | None = None  # the keys of a batch, if they own their watermarks
        self._is_split = False  # the rows of a batch came from several tasks, or are not combined
        self._effective_before: Ints | None = None  # of each owner, while rows of a batch are processed
        self._row_watermarks: Ints = _NONE  # the effective watermark before each of these rows

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return `W - behind`, less the allowed lateness."""
        return super().output_watermark_ms(watermark_ms - self._behind_ms)

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Hold partials; their keys' earlier watermarks decide lateness. Then close windows of these keys."""
        self._is_split = super()._has_repeats(rows) or self._plan.row_by_row
        rows, owners = self._own.number_rows(rows, in_order=self._plan.row_by_row)
        self._numbers = owners if self._plan.owners == self._plan.by else None
        before, tops = self._own.effective_ms(), self._own.tops()
        channels = ints(contiguous(rows[CHANNEL])) if self._plan.channel else None
        times = ints(contiguous(rows[LAST]))
        self._row_watermarks = self._own.advance(owners, channels, times, row_by_row=self._plan.row_by_row)
        self._effective_before = before
        yield from super().on_rows(input_number, rows, now_ms)
        self._effective_before = None
        frames = self._window.frames_of(ints(contiguous(rows[START])))
        frames = frames[np.diff(frames, prepend=frames[:1] - 1) != 0]  # most follow one of their own
        batch_frames = sorted_distinct(np.add.outer(frames, np.arange(self._later_frames + 1)))
        has_rows = np.zeros(len(before), np.bool_)
        has_rows[owners] = True
        yield from self._close_own(np.flatnonzero(has_rows), before, tops, batch_frames)

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:
        """Close the windows that end up to `W - behind`, and windows of idle keys up to W."""
        floor_ms = time_ms - self._behind_ms
        if self.watermark_ms is not None and floor_ms <= self.watermark_ms:
            return
        yield from super().on_watermark(input_number, key, floor_ms)
        self._own.rise(floor_ms)
        self._closed_rows = Counter(
            {frame: count for frame, count in self._closed_rows.items() if frame in self._frames.numbers}
        )
        self._merged &= self._closed_rows.keys()
        idle = self._own.idle_owners(self._done_ms)
        if len(idle):
            before, tops = self._own.stored_ms(), self._own.tops()
            self._own.close_idle(idle, self._done_ms)
            yield from self._close_own(idle, before, tops, _NONE)

    def on_end(self) -> Iterator[Output]:
        """Close every window, and clear the state."""
        yield from super().on_end()
        self._own.end()

    def key_summary(self) -> KeyWatermarkSummary:
        """Return the figures of the keys at the end of a batch."""
        return self._own.key_summary()

    def _manifest_state(self) -> dict[str, Any]:
        closed_rows = {
            str(self._window.start_of(frame)): [closed, int(frame in self._merged)]
            for frame, closed in sorted(self._closed_rows.items())
        }
        return {**super()._manifest_state(), **self._own.state(), "gone": closed_rows}

    def _drained(self) -> StateChanges:
        row_counts = {frame: self._frames.rows_of(frame) for frame in self._closed_rows}
        changes = super()._drained()
        self._merged |= {frame for frame, rows in row_counts.items() if self._frames.rows_of(frame) < rows}
        return changes

    def _show_early(self) -> Iterator[Output]:
        self._own.rise(self.watermark_ms)  # windows that it has just closed are not open any more
        yield from super()._show_early()

    def _dictionary(self) -> KeyDictionary:
        return self._frames.dictionary()

    def _has_repeats(self, partials: pa.Table) -> bool:  # noqa: ARG002  as they came
        return self._is_split

    def _numbered(self, rows: pa.Table) -> tuple[KeyDictionary, Ints]:
        return super()._numbered(rows) if self._numbers is None else (self._own.owners, self._numbers)

    def _watermarks_before(self) -> Ints:
        return self._row_watermarks

    def _expired(self, keys: KeyDictionary, entries: Accumulators, frames: Ints) -> Iterator[Output]:
        self._own.count_dropped(self._own.owners_of_keys(keys, self._plan.by, entries.keys), entries.rows)
        return super()._expired(keys, entries, frames)

    def _closed_ends(self, keys: KeyDictionary, numbers: Ints, lateness_ms: int = 0) -> Ints:
        return self._ends_at(self._watermarks_of(keys, numbers) - delay_ms(lateness_ms))

    def _limits(self, keys: KeyDictionary, low: int, high: int) -> tuple[Ints, Ints]:
        """Return the ends that `W - behind` closes and the key's own watermark has not closed yet."""
        lows, highs = super()._limits(keys, low, high)
        return np.maximum(lows, self._closed_ends(keys, np.arange(keys.count)) + 1), highs

    def _watermarks_of(self, keys: KeyDictionary, numbers: Ints) -> Ints:
        """Return the effective watermark of each of these keys."""
        owners = self._own.owners_of_keys(keys, self._plan.by, numbers)
        return (self._own.effective_ms() if self._effective_before is None else self._effective_before)[owners]

    def _ends_at(self, times: Ints) -> Ints:
        """The last end at or below each of these times."""
        ends = np.full(len(times), NEVER)
        known = times > NEVER // 2
        ends[known] = self._window.frames_of(times[known])
        return ends

    def _done_ms(self, tops: Ints) -> Ints:
        """Return for keys with these highest event times the time from which they have no window."""
        done = np.full(len(tops), NEVER)
        known = tops > NEVER // 2
        last = self._window.frames_of(tops[known]) + self._frames_each
        done[known] = self._window.starts_of(last) + self._plan.lateness_ms
        return done

    def _close_own(self, owners: Ints, before: Ints, tops: Ints, batch_frames: Ints) -> Iterator[Output]:
        """Close the windows that the watermarks of these owners have passed now.

        before: the earlier effective watermark of every owner. tops: the highest event time of every owner before.
        batch_frames: the frames of this batch's rows.
        """
        low, high = self._ends_at(before[owners]) + 1, self._ends_at(self._own.effective_ms()[owners])
        risen = np.flatnonzero(low <= high)
        if not len(risen):
            return
        owners, low, high = owners[risen], low[risen], high[risen]
        until = np.minimum(high, self._ends_at(tops[owners]) + 1 + self._later_frames)
        batch_frames = batch_frames[(batch_frames >= low.min() - self._overlap) & (batch_frames < high.max())]
        among = {*batch_frames.tolist(), *self._frames_within(low - self._overlap, until)}

        lows, highs = np.ones(self._own.count, np.int64), np.zeros(self._own.count, np.int64)
        lows[owners], highs[owners] = low, high

        def limits(keys: KeyDictionary, first: int, last: int) -> tuple[Ints, Ints]:  # noqa: ARG001  each its own
            """Return the first and the last end that close, for each key: the ends of its owner."""
            key_owners = self._own.owners_of_keys(keys, self._plan.by, np.arange(keys.count))
            is_here = key_owners < len(lows)
            at = np.where(is_here, key_owners, 0)
            return np.where(is_here, lows[at], 1), np.where(is_here, highs[at], 0)

        keys = self._frames.dictionary()
        totals, ends = self._frames.closing_of(keys, lows, highs, among)
        if self._policy.accumulating:  # panes that discard remove the rows themselves
            self._closed_rows.update(self._frames.closed_rows)
        yield from self._on_time(keys, int(low.min()), int(high.max()), limits, totals, ends)
        horizon = horizon_ms(int(self._own.effective_ms()[owners].max()), self._plan.lateness_ms)
        self._rewrite_closed(int(self._ends_at(np.array([horizon]))[0]))

    def _frames_within(self, first: Ints, end: Ints) -> list[int]:
        """Return the held frames in any of these ranges."""
        numbers = np.array(sorted(self._frames.numbers), np.int64)
        begins, ends = np.searchsorted(numbers, first), np.searchsorted(numbers, end)
        steps = np.zeros(len(numbers) + 1, np.int64)
        some = begins < ends
        np.add.at(steps, begins[some], 1)
        np.add.at(steps, ends[some], -1)
        return numbers[np.cumsum(steps)[:-1] > 0].tolist()

    def _rewrite_closed(self, last: int) -> None:
        """Rewrite frames in which most entries belong only to closed windows. last: the highest end not kept."""
        for frame, closed in list(self._closed_rows.items()):
            last_end, row_count = frame + self._overlap, self._frames.rows_of(frame)
            if last_end > last or 2 * closed < row_count:
                continue
            if closed == row_count and self._one_window_each and frame not in self._merged:
                self._frames.drop(frame)
            else:
                self._frames.keep(frame, partial(self._is_kept, last_end))
            del self._closed_rows[frame]
            self._merged.discard(frame)

    def _is_kept(self, end: int, keys: KeyDictionary, numbers: Ints) -> Flags:
        """Return for each of these keys whether its window with this end is kept."""
        return ~has_ended(np.full(len(numbers), end), self._gone_ends(keys, numbers))
