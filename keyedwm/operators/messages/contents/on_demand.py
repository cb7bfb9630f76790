"""Windows that messages open.

Rule: a message is accepted as long as the window that it could open would be kept. Then all its windows still exist. So
the accepted messages alone decide whether a message is in a window, in any order of arrival: a message that opens a
window may be late, and its window contains the messages that waited. Messages in no window are rejected, slice by
slice, when no message can open a window for them within the retention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous, sorted_distinct
from keyedwm.core.lateness import has_ended
from keyedwm.operators.messages.functions import WindowRows
from keyedwm.operators.messages.grid import HIGHEST, LOWEST
from keyedwm.operators.messages.listing import Listing
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.messages import MessageStore, in_order, places
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.opened_windows import (
    Opened,
    OpenedWindows,
    OrderedMessages,
    in_key_order,
    listed,
    spans,
)
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.results import KeyedMessages, panes, pieces
from keyedwm.operators.messages.window_content import BufferedMessages, ContentContext, StoreContent
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output


class OnDemandContent(StoreContent, windows=OnDemandWindow):
    """The open windows, and all messages for which a window may still be opened."""

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan, context, state)
        plan = self._plan
        window = plan.kind_as(OnDemandWindow)
        self._size, self._condition = window.size_ms, window.condition(plan.schema)
        self._kept_for = plan.retention.time_ms or 0
        self._watermark_ms: int = state.get("axes", {}).get("0", {}).get("horizon", LOWEST)
        # Up to this event time no message is accepted any more; it never goes back, even if the retention changes.
        self._border: int = state.get("border", self._due_border())
        self._messages = MessageStore(plan, self.channels, self._logs, 0, self._first_kept)
        self._opened = OpenedWindows(plan.key_fields, self._logs)
        self._opened.forget(self._opened.rows.starts < self._first_kept - self._size)

    def validated(self, input_number: int, rows: pa.Table) -> pa.Table:
        """Return messages that fit the plan; raise InputError also if the condition cannot be evaluated."""
        rows = super().validated(input_number, rows)
        self._opens(rows)
        return rows

    def open(self, messages: Messages, _now_ms: int | None) -> Iterator[Output]:
        """Hold messages, open their windows, and show complete windows with new messages."""
        messages = self._counter.admit(messages, {Reason.RETENTION: has_ended(messages.at, self._border)})
        if not len(messages):
            return
        rows, at, is_opener = messages.rows, messages.at, self._opens(messages.rows)
        self._messages.add(rows, at, messages.channels, at - at % self._size)
        keys = self._opened.numbers(rows)
        self._opened.open(keys[is_opener], at[is_opener])
        order, windows = np.lexsort((at, keys)), self._opened.rows
        ends = windows.starts + self._size
        first, behind = spans(windows.keys, windows.starts, ends, keys[order], at[order])
        yield from self._show(np.flatnonzero((behind > first) & has_ended(ends, self._watermark_ms)), PaneTiming.LATE)

    def due(self, watermark_ms: int, _input_number: int = 0) -> Iterator[Output]:
        """Complete windows, and reject messages that waited for a window in vain."""
        before = self._watermark_ms
        if watermark_ms > before:
            self._watermark_ms, ends = watermark_ms, self._opened.rows.starts + self._size
            is_due = ~has_ended(ends, before) & has_ended(ends, watermark_ms)
            yield from self._show(np.flatnonzero(is_due), PaneTiming.ON_TIME)
        if self._due_border() > self._border:
            self._border = self._due_border()
            self._release()

    def end(self) -> Iterator[Output]:
        """Complete all windows."""
        return self.due(HIGHEST)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark by which windows are shown no more."""
        return min(watermark_ms - self._kept_for - self._size, self._border)

    def message_count(self) -> int:
        """The number of messages that are held, in a window or not."""
        return self._messages.totals[0]

    def compact(self) -> None:
        """Rewrite the log of windows if most of its rows are old."""
        self._opened.keys.compact([self._opened])
        self._opened.tidy()

    def state(self) -> dict[str, Any]:
        """The watermark and the border, and for a summary how many windows and messages there are."""
        starts = self._opened.rows.starts[self._is_kept()]
        return {
            "axes": {} if self._watermark_ms == LOWEST else {"0": {"horizon": self._watermark_ms}},
            "border": self._border,
            "open": [len(starts), self.message_count(), int(starts.min(initial=HIGHEST))],
        }

    def of_input(self, _number: int) -> BufferedMessages:
        """Return the content itself."""
        return self

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """List the windows that still accept messages, in order of start and key."""
        del by_key
        known = self._opened.rows
        is_listed = self._is_kept() & (known.starts + self._size > start) & (known.starts <= end)
        messages = self._in_order(self._read(start - self._size, end + self._size))
        keys, starts, (channel, first, last, rows, sizes) = listed(
            self._opened, known.take_rows(is_listed), messages, self.channels, self._size
        )
        ends, columns = starts + self._size, self._opened.keys.columns(keys)
        yield Listing(columns, starts, ends, channel, first, last, rows, sizes, has_ended(ends, self._watermark_ms))

    def read(self, low: int, high: int) -> pa.Table:
        """Read the slices of these places, also the messages that are in no window yet."""
        return self._read(low, high + 1)

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset of each slice."""
        return self._messages.index.channels, self._messages.index.first

    def _opens(self, rows: pa.Table) -> Flags:
        """Return a flag for each message: true if it opens a window."""
        return self._condition.holds({name: contiguous(rows[name]) for name in self._condition.columns[0]})

    def _due_border(self) -> int:
        """Return the border that follows from the watermark and the retention."""
        return max(LOWEST, self._watermark_ms - self._kept_for - self._size)

    @property
    def _first_kept(self) -> int:
        """Return the start of the first needed slice: it, or a window that covers part of it, may get a message."""
        return ((self._border - 2 * self._size + 2) // self._size + 1) * self._size

    def _is_kept(self) -> Flags:
        """Return a flag for each window: true while it accepts messages."""
        return ~has_ended(self._opened.rows.starts + self._size - 1, self._border)

    def _release(self) -> None:
        """Release the slices that no window needs, and reject their messages that are in no window."""
        first, windows, returned = self._first_kept, self._opened.rows, 0
        for start in self._messages.slices[self._messages.slices < first].tolist():
            ordered = self._in_order(self._messages.read_slices(np.array([start])))
            begin, behind = spans(
                ordered.keys, ordered.at - self._size + 1, ordered.at + 1, windows.keys, windows.starts
            )
            unclaimed = ordered.rows.filter(pa.array(begin == behind))
            self._counter.give_back(in_order(self._plan, self.channels, unclaimed), Reason.GAP)
            returned += unclaimed.num_rows
        released, _ = self._messages.forget(first)
        self._counter.release(released - returned)
        self._opened.forget(self._opened.rows.starts < first - self._size)

    def _read(self, low: int, high: int) -> pa.Table:
        """Return the messages of the slices that overlap `[low, high)`."""
        return self._messages.read(low - self._size + 1, high)

    def _in_order(self, rows: pa.Table, of: Ints | None = None) -> OrderedMessages:
        """Return messages in order; of: only messages of these keys."""
        keys = self._opened.numbers(rows)
        if of is not None:
            is_asked = np.isin(keys, of)
            rows, keys = rows.filter(pa.array(is_asked)), keys[is_asked]
        return in_key_order(rows, places(self._plan, rows), keys, self.channels)

    def _show(self, places: Ints, timing: PaneTiming) -> Iterator[Output]:
        """Yield a pane of each of these windows, in order of end and key, those of a slice together."""
        windows = self._opened.rows.take_rows(places)
        if not len(windows):
            return
        self._opened.mark_shown(places)
        slices = windows.starts - windows.starts % self._size
        for start in sorted_distinct(slices).tolist():
            in_slice = windows.take_rows(slices == start)
            in_slice = in_slice.take_rows(np.lexsort((self._opened.keys.ranks(in_slice.keys), in_slice.starts)))
            messages = self._in_order(self._messages.read(start, start + 2 * self._size), in_slice.keys)
            first, behind = spans(
                in_slice.keys, in_slice.starts, in_slice.starts + self._size, messages.keys, messages.at
            )
            for piece in pieces(np.arange(len(in_slice)), behind - first, self._logs.limits.piece_rows):
                yield self._panes(in_slice.take_rows(piece), messages, (first[piece], behind[piece]), timing)

    def _panes(self, windows: Opened, messages: OrderedMessages, of: tuple[Ints, Ints], timing: PaneTiming) -> Output:
        """Return the panes of windows; of: where the messages of each begin and end."""
        window = WindowRows.of_spans(messages.rows, messages.at, of[0], of[1] - of[0])
        return panes(
            self._plan, self._opened.keys, KeyedMessages(window, windows.keys),
            (windows.starts, windows.starts + self._size), timing=timing, index=windows.panes,
        )  # fmt: skip
