"""Tumbling and sliding windows out of frames, whole columns at once (DESIGN rule 11; scalar reference: core.sliding).

Rule: a frame's accumulators depend on its events alone, and a window's on its frames, bit for bit: how the input was cut,
in which order it came and where a restart fell cannot be seen. A frame is kept until its last window closed and the
allowed lateness behind it is over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from keyedwm.core.late import LateRule
from keyedwm.windows.columns import Ints, contiguous, ints
from keyedwm.windows.entries import Entries, joined, merged, no_entries, over_spans, read_entries
from keyedwm.windows.keys import Keys, distinct_codes
from keyedwm.windows.kinds import Groups, Spans
from keyedwm.windows.loops import closing_windows, sorted_by_number
from keyedwm.windows.plan import START, Plan, Timing
from keyedwm.windows.results import Panes, results


class FrameOperator:
    """One operator instance: one Jet processor."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._window = plan.window
        self._overlap = plan.window.size_ms // plan.window.slide_ms
        self._keys = Keys(plan.key_fields)
        self._frames: dict[int, Entries] = {}
        self.watermark_ms: int | None = None
        self.late_rows = 0

    def take(self, partials: pa.Table, now_ms: int | None = None) -> pa.Table:
        """Hold partials; return what they say at once."""
        keys = self._keys.numbers([contiguous(partials[name]) for name in self._plan.by], partials.num_rows)
        entries = read_entries(self._plan, keys, partials)
        frames = (ints(contiguous(partials[START])) - self._window.offset_ms) // self._window.slide_ms
        late = self._late(frames)
        if late.any():
            self.late_rows += int(entries.rows[late].sum())
            entries, frames = entries.take(np.flatnonzero(~late)), frames[~late]
        self._hold(entries, frames)
        return self._plan.result_schema.empty_table()

    def advance(self, watermark_ms: int) -> pa.Table:
        """Close the windows with ends at or below the watermark."""
        if self.watermark_ms is not None and watermark_ms <= self.watermark_ms:
            return self._plan.result_schema.empty_table()
        closed = self._closing(self._last_end(watermark_ms))
        self.watermark_ms = watermark_ms
        self._forget()
        return closed

    def complete(self) -> pa.Table:
        """The input has ended: close every window."""
        closed = self._closing(max(self._frames, default=0) + self._overlap)
        self._frames.clear()
        return closed

    def _last_end(self, watermark_ms: int) -> int:
        return (watermark_ms - self._window.offset_ms) // self._window.slide_ms

    def _late(self, frames: Ints) -> Ints:
        if self.watermark_ms is None:
            return np.zeros(len(frames), bool)
        behind = self._overlap if self._plan.late_rule is LateRule.WINDOW else 1
        return frames + behind <= self._last_end(self.watermark_ms - self._plan.lateness_ms)

    def _hold(self, entries: Entries, frames: Ints) -> None:
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

    def _closing(self, high: int) -> pa.Table:
        """The on-time panes of the windows not yet closed that end at or before frame `high`."""
        if not self._frames:
            return self._plan.result_schema.empty_table()
        low = min(self._frames) + 1
        if self.watermark_ms is not None:
            low = max(low, self._last_end(self.watermark_ms) + 1)
        high = min(high, max(self._frames) + self._overlap)
        entries, frames = self._gathered(low, high)
        order = sorted_by_number(self._keys.ranks()[entries.keys], self._keys.count)
        entries = entries.take(order)
        ends, first, behind = closing_windows(entries.keys, frames[order], low, high, self._overlap)
        totals = over_spans(self._plan, entries, Spans(first, behind))
        return self._shown(totals, ends, Timing.ON_TIME)

    def _gathered(self, low: int, high: int) -> tuple[Entries, Ints]:
        """The entries of windows with ends in `[low, high]` in order of frame; those that all of them hold as one."""
        numbers = sorted(number for number in self._frames if low - self._overlap <= number < high)
        common = [number for number in numbers if high - self._overlap <= number < low]
        pieces: list[Entries] = []
        frames: list[int] = []
        for number in numbers:
            if len(common) > 1 and number in (common[0], common[-1]):
                if number == common[0]:
                    pieces.append(self._as_one(common))
                    frames.append(number)
            elif len(common) <= 1 or not common[0] < number < common[-1]:
                pieces.append(self._frames[number])
                frames.append(number)
        if not pieces:
            return no_entries(self._plan), np.empty(0, np.int64)
        return joined(pieces), np.repeat(np.array(frames), [len(piece) for piece in pieces])

    def _as_one(self, numbers: Sequence[int]) -> Entries:
        everything = joined([self._frames[number] for number in numbers])
        ids, keys = distinct_codes(everything.keys, self._keys.count)
        return merged(self._plan, everything, Groups(ids, len(keys)), keys)

    def _shown(self, totals: Entries, ends: Ints, timing: Timing) -> pa.Table:
        ends_ms = self._window.offset_ms + ends * self._window.slide_ms
        panes = Panes(totals, ends_ms - self._window.size_ms, ends_ms, timing, np.zeros(len(ends), np.int64), last=True)
        return results(self._plan, self._keys, panes)

    def _forget(self) -> None:
        """Drop the frames that no window which can still change or close needs."""
        last = self._last_end(self.watermark_ms - self._plan.lateness_ms)
        for number in [number for number in self._frames if number + self._overlap <= last]:
            del self._frames[number]
