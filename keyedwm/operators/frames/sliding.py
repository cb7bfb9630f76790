"""Tumbling and sliding windows composed of frames, whole columns at once (rule 11).

Rule: a window closes once, at W >= end; it is kept until W >= end + lateness (`core/lateness.py`), and partials that
reach it meanwhile give a late pane. Discarding plans hold separate windows instead of frames, since the panes of two
windows show different parts of a frame.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, ints
from keyedwm.core.lateness import NEVER, has_ended, horizon_ms
from keyedwm.core.window_rules import LatePolicy, LateRule
from keyedwm.operators.frames.frame_log import FrameLog, Limits
from keyedwm.operators.frames.frame_panes import FiredCounts, PanedOperator, neutral_totals
from keyedwm.operators.frames.plan import FrameWindow, WindowPlan
from keyedwm.operators.frames.results import Panes, outputs
from keyedwm.operators.grouping import pair_groups
from keyedwm.operators.panes import EveryBy, PaneTiming
from keyedwm.operators.results import ROWS, START, Output
from keyedwm.operators.state.column_rows import ColumnRows
from keyedwm.operators.state.entries import Accumulators, grouped, no_entries, read_entries
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.keyed_log import PairLog, Pairs
from keyedwm.operators.state.pane_log import PaneLog
from keyedwm.operators.state.store import BlobStore, StateChanges

_CHANGED = "touched"  # the log of frames that changed since the last early panes by time
# The number of results for one output to aim at when a watermark closes many windows; one end alone may have more.
PIECE_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Windows(ColumnRows):
    """Windows: their totals, their ends (numbers of frames), and the rows and panes that panes have reported."""

    totals: Accumulators
    ends: Ints
    fired_counts: FiredCounts

    @property
    def not_fired(self) -> Ints:
        """For each window, the number of rows that no pane has reported."""
        return self.totals.rows - self.fired_counts.rows


class SlidingOperator(PanedOperator):
    """One instance of the operator; see `protocol.Operator`."""

    def __init__(self, plan: WindowPlan, window: FrameWindow, store: BlobStore) -> None:
        super().__init__(plan, store)
        self._window = window
        self._frames_each = window.frames_each
        self._overlap = self._frames_each if self._policy.accumulating else 1
        self._frames = FrameLog(plan, window, self._overlap, self._logs)
        self._panes = PaneLog(plan, window, self._logs)
        self._changed = PairLog(plan.key_fields, START, _CHANGED, self._logs)

    @property
    def open_entries(self) -> int:
        """The number of (key, frame) that the state holds, before parts of a frame are merged."""
        return self._frames.entries

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:  # noqa: ARG002  one input
        """Hold partials; yield their immediate outputs: expired rows, late panes, early panes by count."""
        self._policy.on_rows(now_ms)
        keys, numbers = self._numbered(rows)
        entries = read_entries(self._plan, numbers, rows)
        frames = self._window.frames_of(ints(contiguous(rows[START])))
        late = self._late(keys, numbers, frames, rows)
        if late.any():
            yield from self._expired(keys, entries.take_rows(np.flatnonzero(late)), frames[late])
            entries, frames = entries.take_rows(np.flatnonzero(~late)), frames[~late]
        if not self._policy.accumulating:
            entries, frames = self._into_windows(keys, entries, frames)
        if self._has_repeats(rows):  # so that the state holds less; one key and frame may be in several parts
            entries, frames = grouped(self._plan, keys, entries, frames)
        self._frames.append(keys, entries, frames)
        if self._policy.by_time:
            self._changed.append(keys, Pairs(entries.keys, self._window.names_of(frames)))
        yield from self._immediate_panes(keys, entries.keys, frames)

    def on_watermark(self, input_number: int, key: int, time_ms: int) -> Iterator[Output]:  # noqa: ARG002  one input and key
        """Close windows up to the watermark, until their results reach the plan's limit; then yield due early panes."""
        if self.watermark_ms is not None and time_ms <= self.watermark_ms:
            return
        self.watermark_ms = yield from self._close(time_ms)
        if self._policy.beats(EveryBy.EVENT, time_ms):
            yield from self._show_early()

    def _show_early(self) -> Iterator[Output]:
        """Yield early panes of the open windows with unshown rows that changed since the last early panes."""
        keys = self._dictionary()
        pairs = self._changed.pop_all(keys)
        if len(pairs):
            numbers, ends = self._windows_of(keys, pairs.keys, self._window.frames_named(pairs.bounds))
            is_open = ~has_ended(ends, self._closed_ends(keys, numbers))
            windows = self._windows_at(keys, numbers[is_open], ends[is_open])
            yield from self._emit(keys, windows.where(windows.not_fired > 0), PaneTiming.EARLY)

    def on_end(self) -> Iterator[Output]:
        """Close every window, and clear the state."""
        last = max(self._frames.numbers, default=0) + self._overlap
        last = max(last, self._panes.last_end() or last)
        self._results_left = None
        yield from self._close(self._window.start_of(last) + self._plan.lateness_ms)
        self._changed.clear()

    def _drained(self) -> StateChanges:
        return self._logs.drain()

    def _dictionary(self) -> KeyDictionary:
        """Return a dictionary of keys for some outputs."""
        return KeyDictionary(self._plan.key_fields)

    def _numbered(self, rows: pa.Table) -> tuple[KeyDictionary, Ints]:
        """Return the keys of partials, and the number of each."""
        keys = self._dictionary()
        return keys, keys.numbers_of(rows)

    def _has_repeats(self, partials: pa.Table) -> bool:
        """Return whether a key and frame may repeat, since several tasks have sent partials."""
        return bool(partials[ROWS].num_chunks > 1)

    def _closed_end(self, lateness_ms: int = 0) -> int:
        """Return the last end that the watermark has passed by `lateness_ms`; NEVER if there is no watermark."""
        horizon = horizon_ms(self.watermark_ms, lateness_ms)
        return NEVER if self.watermark_ms is None else self._window.frame_of(horizon)

    def _closed_ends(self, keys: KeyDictionary, numbers: Ints, lateness_ms: int = 0) -> Ints:  # noqa: ARG002  one for all keys
        """Return for each key the last end that its watermark has passed by `lateness_ms`."""
        return np.full(len(numbers), self._closed_end(lateness_ms))

    def _gone_ends(self, keys: KeyDictionary, numbers: Ints) -> Ints:
        """Return for each key the last end whose window is gone."""
        return self._closed_ends(keys, numbers, self._plan.lateness_ms)

    def _limits(self, keys: KeyDictionary, low: int, high: int) -> tuple[Ints, Ints]:
        """Return for each key the first and the last end to close; here they are equal for all keys."""
        return np.full(keys.count, low), np.full(keys.count, high)

    def _late(self, keys: KeyDictionary, numbers: Ints, frames: Ints, partials: pa.Table) -> Flags:
        if self._plan.late_rule is LateRule.EVENT:
            return self._is_behind(partials)
        last_end = frames + (self._frames_each if self._plan.late_rule is LateRule.WINDOW else 1)
        return has_ended(last_end, self._gone_ends(keys, numbers))

    def _expired(self, keys: KeyDictionary, entries: Accumulators, frames: Ints) -> Iterator[Output]:
        """Drop or reject late rows, or emit their totals by key and the last window that would have held them."""
        self._count_late(int(entries.rows.sum()), self._window.start_of(int(frames.min())))
        if self._plan.late is LatePolicy.EMIT:
            whole, ends = grouped(self._plan, keys, entries, frames + self._frames_each)
            yield from self._outputs(keys, whole, ends, PaneTiming.EXPIRED, np.zeros(len(ends), np.int64))

    def _into_windows(self, keys: KeyDictionary, entries: Accumulators, frames: Ints) -> tuple[Accumulators, Ints]:
        """Return the entries once for each window that contains them and is not gone."""
        places = np.repeat(np.arange(len(frames)), self._frames_each)
        windows = frames[places] + np.tile(np.arange(self._frames_each), len(frames))
        is_kept = np.flatnonzero(~has_ended(windows + 1, self._gone_ends(keys, entries.keys)[places]))
        return entries.take_rows(places[is_kept]), windows[is_kept]

    def _windows_of(self, keys: KeyDictionary, numbers: Ints, frames: Ints) -> tuple[Ints, Ints]:
        """Return the distinct (key, end) of windows that hold these (key, frame)."""
        _, frames, numbers = pair_groups(frames, numbers, keys.count)
        order = np.argsort(numbers, kind="stable")  # by key, then frame
        frames, numbers = frames[order], numbers[order]
        # A frame gives only the ends before the first end of its key's next frame, so no pair repeats.
        count = np.full(len(frames), self._overlap)
        count[:-1] = np.where(np.diff(numbers) == 0, np.minimum(np.diff(frames), self._overlap), self._overlap)
        first = np.cumsum(count) - count
        ends = np.repeat(frames + 1 - first, count) + np.arange(count.sum())
        return np.repeat(numbers, count), ends

    def _immediate_panes(self, keys: KeyDictionary, numbers: Ints, frames: Ints) -> Iterator[Output]:
        """Yield the panes that follow at once from changed frames: late ones, and early ones by count."""
        if not self._policy.has_panes:
            return
        if not self._policy.by_rows:  # only closed windows give a pane
            may_show = has_ended(frames + 1, self._closed_ends(keys, numbers))
            numbers, frames = numbers[may_show], frames[may_show]
        if not len(numbers):
            return
        numbers, ends = self._windows_of(keys, numbers, frames)
        closed_ends, gone_ends = self._closed_ends(keys, numbers), self._gone_ends(keys, numbers)
        may_show = ~has_ended(ends, gone_ends) & (self._policy.by_rows | has_ended(ends, closed_ends))
        windows = self._windows_at(keys, numbers[may_show], ends[may_show])
        is_closed = has_ended(windows.ends, self._closed_ends(keys, windows.totals.keys))
        late, early = self._policy.at_once(windows.not_fired, is_closed)
        yield from self._emit(keys, windows.where(late), PaneTiming.LATE)
        yield from self._emit(keys, windows.where(early), PaneTiming.EARLY)

    def _windows_at(self, keys: KeyDictionary, numbers: Ints, ends: Ints) -> Windows:
        """Return the windows among these that hold rows."""
        if not len(numbers):
            return self._with_shown(keys, no_entries(self._plan), ends)
        return self._with_shown(keys, *self._frames.totals(keys, numbers, ends))

    def _with_shown(self, keys: KeyDictionary, totals: Accumulators, ends: Ints) -> Windows:
        if not self._policy.has_panes:
            return Windows(totals, ends, FiredCounts(*[np.zeros(len(ends), np.int64)] * 3))
        is_closed = has_ended(ends, self._closed_ends(keys, totals.keys))
        return Windows(
            totals, ends, FiredCounts(*self._panes.emitted(keys, totals.keys, ends), is_closed.astype(np.int64))
        )

    def _close(self, time_ms: int) -> Generator[Output, None, int | None]:
        """Close the windows that end by `time_ms`, in groups that bound memory; return the watermark reached.

        The watermark is below `time_ms` if the plan allows no more results in this batch.
        """
        low, high, group_size = self._closed_end() + 1, self._window.frame_of(time_ms), 0
        piece = PIECE_ROWS if self._results_left is None else min(PIECE_ROWS, self._results_left)
        reached_ms = self.watermark_ms
        while (low := self._next_end(low, high)) <= high:
            if self._results_left is not None and self._results_left <= 0:
                return reached_ms
            group_size = group_size or max(1, piece * max(1, len(self._frames.numbers)) // max(1, self._frames.entries))
            end = min(high, low + group_size - 1)
            closed = 0
            for output in self._closing(low, end):
                closed += output.rows.num_rows
                yield output
            if self._results_left is not None:
                self._results_left -= closed
                piece = min(piece, self._results_left)
            reached_ms = min(time_ms, self._window.start_of(end + 1) - 1)
            self._forget(self._window.frame_of(horizon_ms(reached_ms, self._plan.lateness_ms)))
            group_size = max(1, min(2 * group_size, group_size * piece // max(1, closed)))
            low = end + 1
        self._forget(self._window.frame_of(horizon_ms(time_ms, self._plan.lateness_ms)))
        return time_ms

    def _next_end(self, low: int, high: int) -> int:
        """Return the first end from `low` on of a window that may have rows to show; above `high` if there is none."""
        frame = min((number for number in self._frames.numbers if number + self._overlap >= low), default=high)
        from_frames = max(low, frame + 1)
        emitted = None if self._policy.accumulating or self._plan.early is None else self._panes.next_end(low)
        return from_frames if emitted is None else min(from_frames, emitted)

    def _forget(self, last: int) -> None:
        self._frames.forget(last)
        self._panes.forget(last)

    def _closing(self, low: int, high: int) -> Iterator[Output]:
        """Yield the on-time panes of the windows with ends in `[low, high]`."""
        keys = self._dictionary()
        totals, ends = self._frames.closing(keys, low, high, self._limits)
        yield from self._on_time(keys, low, high, self._limits, totals, ends)

    def _on_time(  # noqa: PLR0917  of one call, cut in two
        self, keys: KeyDictionary, low: int, high: int, limits: Limits, totals: Accumulators, ends: Ints
    ) -> Iterator[Output]:
        """Yield the on-time panes of these windows, and of windows in `[low, high]` that an early pane has emptied."""
        if not self._policy.accumulating and self._plan.early is not None:
            known, known_ends = self._panes.between(keys, low, high)
            lows, highs = limits(keys, low, high)
            closes = (lows[known] <= known_ends) & (known_ends <= highs[known])
            known, known_ends = known[closes], known_ends[closes]
            ids, _, _ = pair_groups(
                np.concatenate([known_ends, ends]), np.concatenate([known, totals.keys]), keys.count
            )
            empty = ~np.isin(ids[: len(known)], ids[len(known) :])
            totals = totals.with_others(neutral_totals(self._plan, known[empty]))
            ends = np.concatenate([ends, known_ends[empty]])
        yield from self._emit(keys, self._with_shown(keys, totals, ends), PaneTiming.ON_TIME)

    def _emit(self, keys: KeyDictionary, windows: Windows, timing: PaneTiming) -> Iterator[Output]:
        """Yield each window's next pane and record it; a plan that discards removes the windows' frames."""
        totals, ends, fired_counts = windows.totals, windows.ends, windows.fired_counts
        if self._policy.has_panes and len(ends):
            after = self._policy.fired(fired_counts, totals.rows, timing)
            if not self._policy.accumulating:
                self._frames.remove(keys, totals.keys, ends - 1)
            self._panes.append(keys, totals.keys, ends, after.panes, after.rows)
        yield from self._outputs(keys, totals, ends, timing, fired_counts.panes)

    def _outputs(
        self, keys: KeyDictionary, totals: Accumulators, ends: Ints, timing: PaneTiming, index: Ints
    ) -> Iterator[Output]:
        starts_ms, ends_ms = self._window.starts_of(ends - self._frames_each), self._window.starts_of(ends)
        panes = Panes(totals, starts_ms, ends_ms, timing, index, self._policy.is_last(timing))
        yield from outputs(self._plan, keys, panes)
