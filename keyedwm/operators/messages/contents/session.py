"""Sessions of event time.

Rule: a message is outside the retention if a session of this message alone would be. So acceptance depends on the
watermarks before a message, and not on other messages. No message joins a released session: a later message within its
time begins a new session. A session that was shown and then joins or grows past the watermark is shown again when it is
complete; its pane numbers continue from the highest number of the merged sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, sorted_distinct
from keyedwm.core.lateness import NEVER, has_ended
from keyedwm.operators.frames.session_parts import joined_runs
from keyedwm.operators.messages.functions import WindowRows
from keyedwm.operators.messages.grid import HIGHEST, LOWEST
from keyedwm.operators.messages.listing import Listing
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.messages import message_bytes, places
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.results import KeyedMessages, panes, pieces
from keyedwm.operators.messages.sessions import INDEX, OpenSessions, SessionFragments, SessionMessages, Sessions, joined
from keyedwm.operators.messages.window_content import BufferedMessages, ContentContext, StoreContent
from keyedwm.operators.messages.windows import SessionKind
from keyedwm.operators.panes import EveryBy, Now, PanePolicy, PaneTiming
from keyedwm.operators.results import Output


class SessionContent(StoreContent, windows=SessionKind):
    """The edges and counts of each session, and its messages in slices of event time."""

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan, context, state)
        plan = self._plan
        self._window = plan.kind_as(SessionKind).window
        self._open = OpenSessions(plan.key_fields, self._logs, INDEX)
        self._messages = SessionMessages(plan, self.channels, self._logs, state.get("slice_ms"), state.get("looks", {}))
        self._watermark_ms: int | None = state.get("watermark")
        self._complete: int = state.get("complete", NEVER)  # sessions that end by then are complete
        self._floor: int = state.get("floor", NEVER)  # sessions that end by then are released
        self._policy = PanePolicy(plan.early, plan.late, state)

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages in the sessions that they form with the held messages."""
        outside = has_ended(messages.at + self._window.gap_ms, self._floor)
        messages = self._inputs[messages.input_number].counter.admit(messages, {Reason.RETENTION: outside})
        if len(messages):
            yield from self._buffer_messages(messages, now_ms)

    def due(self, watermark_ms: int, _input_number: int = 0) -> Iterator[Output]:
        """Complete sessions, and release expired sessions."""
        if self._watermark_ms is None or watermark_ms > self._watermark_ms:
            self._watermark_ms = watermark_ms
            yield from self._advance(self._window.horizon_ms(watermark_ms))
            yield from self._show_due(EveryBy.EVENT, watermark_ms)
        if self._plan.retention.time_ms is not None:  # a shorter one takes effect by the same watermark
            yield from self._release(self._window.horizon_ms(self._watermark_ms, self._plan.retention.time_ms))

    def next_due(self) -> int | None:
        """The first time of early and late panes, if they are due by the clock."""
        return self._policy.next_timer_ms

    def fire(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        yield from self._show_due(EveryBy.CLOCK, now_ms)

    def shrink(self) -> Iterator[Output]:
        """Drop the sessions that end first."""
        limits, sessions = self._plan.retention, self._open.sessions
        if not len(sessions):
            return
        ends, which = np.unique(sessions.ends, return_inverse=True)
        last = -1  # the last end that must go
        ones = np.ones(len(sessions), np.int64)
        sized = (ones, limits.max_windows), (sessions.rows, limits.max_messages), (sessions.sizes, limits.max_bytes)
        for sizes, most in sized:
            if most is not None:
                counts = np.bincount(which, sizes, len(ends)).astype(np.int64)
                last = max(
                    last, int(np.searchsorted(np.cumsum(counts), sizes.sum() - most)) if sizes.sum() > most else -1
                )
        if last >= 0:
            unfinished = has_ended(sessions.ends, ends[last]) & ~has_ended(sessions.ends, self._complete)
            yield from self._show(np.flatnonzero(unfinished), PaneTiming.EARLY, last=True)
            yield from self._release(int(ends[last]), over_limit=True)

    def end(self) -> Iterator[Output]:
        """Complete and release all sessions."""
        yield from self._advance(HIGHEST)
        yield from self._release(HIGHEST)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark up to which sessions are released: a kept session can have late panes."""
        kept_for = self._plan.retention.time_ms
        return min(watermark_ms if kept_for is None else self._window.horizon_ms(watermark_ms, kept_for), self._floor)

    def message_count(self) -> int:
        """The number of messages that are in sessions."""
        return int(self._open.parts.rows.sum())

    def compact(self) -> None:
        """Rewrite a log of sessions if most of its rows are old."""
        tables = self._tables()
        self._open.keys.compact(tables)
        for table in tables:
            table.tidy()

    def state(self) -> dict[str, Any]:
        """Return the state beside the sessions, and for a summary their number and the start of the first one."""
        return {
            "slice_ms": self._messages.width_ms,
            "looks": {str(start): floor for start, floor in sorted(self._messages.looks.items())},
            "watermark": self._watermark_ms, "complete": self._complete, "floor": self._floor,
            **self._policy.state(),
            "open": [len(self._open.sessions), self.message_count(), int(self._open.parts.starts.min(initial=HIGHEST))],
        }  # fmt: skip

    def of_input(self, _number: int) -> BufferedMessages:
        """Return the content itself."""
        return self

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """List sessions in order of end, start and key."""
        del by_key
        parts = self._open.parts
        parts = parts.take_rows((parts.ends > start) & (parts.starts <= end))
        order = (self.channels.ranks()[parts.channels], self._open.keys.ranks(parts.keys), parts.starts, parts.ends)
        parts = parts.take_rows(np.lexsort(order))
        yield Listing(
            self._open.keys.columns(parts.keys), parts.starts, parts.ends, parts.channels, parts.first, parts.last,
            parts.rows, parts.sizes, parts.ends <= self._complete,
        )  # fmt: skip

    def read(self, low: int, high: int) -> pa.Table:
        """Read the messages of the sessions that reach into this range."""
        sessions = self._open.sessions
        return self._messages.of(self._open, sessions.take_rows((sessions.ends > low) & (sessions.starts <= high)))[0]

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset of each session on each channel."""
        return self._open.parts.channels, self._open.parts.first

    def _buffer_messages(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages that are inside the retention; yield the panes that they give."""
        rows, at = messages.rows, messages.at
        keys, offsets = self._open.numbers(rows), self.channels.offsets(rows)
        self._messages.add(rows, at)
        one, none = np.ones(len(at), np.int64), np.zeros(len(at), np.int64)
        ends = at + self._window.gap_ms
        fresh = SessionFragments(
            keys, messages.channels, at, ends, offsets, offsets, one, self._bytes(rows), none, none
        )
        is_near = np.isin(self._open.parts.keys, sorted_distinct(keys))
        near = self._open.parts.take_rows(is_near)
        both = fresh.with_others(near)
        new_parts, taken_in = joined(fresh, near, joined_runs(self._window, both.keys, both.starts, both.ends))
        old_places = np.flatnonzero(is_near)[taken_in]
        changed = self._know(old_places, new_parts)
        is_late, not_fired = self._is_complete()[changed], self._not_fired()[changed]
        now = Now(now_ms, LOWEST if self._watermark_ms is None else self._watermark_ms)
        # Numbers of sessions are valid while no session begins or ends; panes only mark sessions.
        for timing, of_timing in ((PaneTiming.LATE, is_late), (PaneTiming.EARLY, ~is_late)):
            enough = self._policy.fire_threshold(timing, waits=self._policy.begin(timing, now, changed[of_timing]))
            if enough is not None:
                yield from self._show(changed[of_timing][not_fired[of_timing] >= enough], timing)

    def _show_due(self, by: EveryBy, at: int) -> Iterator[Output]:
        """Show the complete or open sessions with new messages, if this is due by the clock or by event time."""
        for timing in self._policy.due(by, at):
            self._policy.left(timing, ())
            is_meant = self._is_complete() if timing is PaneTiming.LATE else ~self._is_complete()
            yield from self._show(np.flatnonzero(self._has_news() & is_meant), timing)

    def _advance(self, complete: int) -> Iterator[Output]:
        """Show the sessions that end by then, in order of their ends."""
        if complete > self._complete:
            ends = self._open.sessions.ends
            before, self._complete = self._complete, complete
            is_due = ~has_ended(ends, before) & has_ended(ends, complete)
            yield from self._show(np.flatnonzero(is_due), PaneTiming.ON_TIME)

    def _release(self, last: int, *, over_limit: bool = False) -> Iterator[Output]:
        """Release the sessions that end by then; yield their pending panes."""
        if last <= self._floor:
            return
        self._floor = last
        is_expired = has_ended(self._open.sessions.ends, last)
        if is_expired.any():
            yield from self._show(np.flatnonzero(is_expired & self._is_complete() & self._has_news()), PaneTiming.LATE)
            places_of = np.flatnonzero(self._open.parts_of(np.flatnonzero(is_expired)))
            leaving = self._open.parts.take_rows(places_of)
            for one, input_parts in zip(self._inputs, self._by_input(leaving), strict=True):
                one.counter.release(
                    input_parts.rows.sum(), input_parts.sizes.sum(), len(input_parts.sessions()), over_limit=over_limit
                )
            self._know(places_of, leaving.take_rows(places_of[:0]))
        self._messages.tidy(self._open, self._floor)

    def _know(self, old_places: Ints, new_parts: SessionFragments) -> Ints:
        """Replace the fragments at `old_places` by `new_parts`; return the places of the sessions that they form."""
        flags = np.zeros(len(self._open.parts), np.bool_)
        flags[old_places] = True
        return self._open.replace(flags, new_parts)

    def _is_complete(self) -> Flags:
        return has_ended(self._open.sessions.ends, self._complete)

    def _not_fired(self) -> Ints:
        return self._open.sessions.rows - self._open.sessions.shown_messages

    def _has_news(self) -> Flags:
        return self._not_fired() > 0

    def _show(self, places_of: Ints, timing: PaneTiming, *, last: bool = False) -> Iterator[Output]:
        """Yield a pane of each of these sessions, in order of end, start and key, a million messages at a time."""
        if not len(places_of):
            return
        sessions = self._open.sessions.take_rows(places_of)
        self._open.mark_shown(places_of)
        ranks = self._open.keys.ranks(sessions.keys)
        sessions = sessions.take_rows(np.lexsort((ranks, sessions.starts, sessions.ends)))
        for piece in pieces(np.arange(len(sessions)), sessions.rows, self._logs.limits.piece_rows):
            yield from self._panes(sessions.take_rows(piece), timing, last=last)

    def _panes(self, sessions: Sessions, timing: PaneTiming, *, last: bool) -> Iterator[Output]:
        by_key = np.lexsort((sessions.starts, sessions.keys))
        rows, owners = self._messages.of(self._open, sessions.take_rows(by_key))
        owners = by_key[owners]
        at, ranks = places(self._plan, rows), self.channels.ranks()[self.channels.numbers(rows)]
        order = np.lexsort((self.channels.offsets(rows), ranks, at, owners))
        borders = np.append(0, np.cumsum(np.bincount(owners, minlength=len(sessions))))
        window = WindowRows(rows.take(pa.array(order)), at[order], borders)
        yield panes(
            self._plan, self._open.keys, KeyedMessages(window, sessions.keys), (sessions.starts, sessions.ends),
            timing=timing, index=sessions.panes, last=last,
        )  # fmt: skip

    def _bytes(self, rows: pa.Table) -> Ints:
        """Return the bytes of each message in Arrow."""
        return message_bytes(rows)

    def _tables(self) -> list[OpenSessions]:
        """Return the tables whose keys share their numbers."""
        return [self._open]

    def _by_input(self, parts: SessionFragments) -> list[SessionFragments]:
        """Return the parts of each input."""
        return [parts]
