"""The operator of sessions that keep their messages: it has the calls of `operator.StoreOperator`.

Rule: a message is outside the retention if the session that it makes alone is, so what it meets depends on the
watermarks before it and not on the messages beside it. A session that is gone is not met again: what comes later within
its time begins a new one. A session that was shown and then joins or grows past the watermark speaks again when it is
complete; its panes are counted on from the highest of those that it took in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.frames.session_merge import joined_runs
from keyedwm.operators.frames.session_rules import NEVER, closed_ms
from keyedwm.operators.messages import looking
from keyedwm.operators.messages.account import Account
from keyedwm.operators.messages.asked import Edge
from keyedwm.operators.messages.axis import HIGHEST, LOWEST
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.functions import WindowRows
from keyedwm.operators.messages.held_sessions import INDEX
from keyedwm.operators.messages.incoming import check_times, checked
from keyedwm.operators.messages.messages import message_bytes, places
from keyedwm.operators.messages.note import note, read_note
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.results import KeyedMessages, pane_rows
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.messages.session_messages import SessionMessages
from keyedwm.operators.messages.sessions import OpenSessions, Parts, Sessions, joined
from keyedwm.operators.panes import Beat, EveryBy, Timing, beat_of
from keyedwm.operators.results import Output
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs

_MOST_ROWS = 1 << 20


class SessionStoreOperator:
    """Sessions of a plan over one input; `store` is the state that it goes on from."""

    def __init__(self, plan: StorePlan, store: BlobStore) -> None:
        told = self._read(plan, store)
        self._plan, self._window = plan, plan.session
        self._logs = TableLogs(store, note=NOTE, facts=told)
        self.channels = Channels(plan.record, told.get("channels", ()))
        self._open = OpenSessions(plan.key_fields, self._logs, INDEX)
        self._messages = SessionMessages(plan, self.channels, self._logs, told.get("slice_ms"), told.get("looks", {}))
        self._watermark_ms: int | None = told.get("watermark")
        self._complete: int = told.get("complete", NEVER)  # sessions that end by then are
        self._floor: int = told.get("floor", NEVER)  # sessions that end by then are gone
        self._accounts = [Account(plan, counts) for counts in told.get("accounts", [{}])]
        self._early = beat_of(plan.early, told.get("early"))
        self._late = Beat(plan.late_every_ms, keeps_beat=False, told=told.get("late", (None, None)))

    @property
    def counts(self) -> StoreCounts:
        """What became of all messages since the store was new."""
        return self._accounts[0].counts

    @property
    def late_rows(self) -> int:
        """How many messages came outside the retention since this instance was built."""
        return sum(account.late_rows for account in self._accounts)

    @property
    def open_entries(self) -> int:
        """How many messages the store holds."""
        return int(self._open.parts.rows.sum())

    @property
    def next_timer_ms(self) -> int | None:
        """When panes by the clock are due, None if nothing is pending."""
        beats = [
            *([self._late] if self._plan.late_by is EveryBy.CLOCK else []),
            *([] if self._early_by_event else [self._early]),
        ]
        return min((beat.due_ms for beat in beats if beat.due_ms is not None), default=None)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that outputs keep: late panes come as long as their session is kept."""
        kept_for = self._plan.retention.time_ms
        return min(watermark_ms if kept_for is None else self._closed(watermark_ms, kept_for), self._floor)

    def rejected(self) -> pa.Table:
        """Return the messages that were given back since the last call (`plan.rejected_schema`)."""
        return self._accounts[0].rejected()

    def on_rows(self, input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Take messages; those seen before change nothing. now_ms: wall-clock time, for panes by the clock."""
        rows = checked(self._plan.schema, rows, self._plan.offset)
        if not rows.num_rows:
            return
        check_times(self._plan.time, places(self._plan, rows.filter(rows[self._plan.time].is_valid())))
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        account = self._accounts[input_number]
        account.add(given=rows.num_rows, replayed=rows.num_rows - len(fresh))
        rows, numbers = account.with_time(rows.take(pa.array(fresh)), numbers[fresh])
        kept = places(self._plan, rows) + self._window.gap_ms > self._floor
        account.reject(rows.filter(pa.array(~kept)), Reason.RETENTION)
        account.add(taken=kept.sum())
        if kept.any():
            yield from self._take(rows.filter(pa.array(kept)), numbers[kept], now_ms)

    def on_watermark(self, _input_number: int, _key: int, time_ms: int) -> Iterator[Output]:
        """Take the watermark of the input: it completes sessions, and lets those go that are kept no longer."""
        if self._watermark_ms is None or time_ms > self._watermark_ms:
            self._watermark_ms = time_ms
            yield from self._advance(self._closed(time_ms))
            if self._plan.late_by is EveryBy.EVENT and self._late.is_due(time_ms):
                yield from self._show_late()
            if self._early_by_event:
                yield from self._show_early(time_ms)
        if self._plan.retention.time_ms is not None:  # a shorter one than before takes effect by the same watermark
            yield from self._expire(self._closed(self._watermark_ms, self._plan.retention.time_ms))
        yield from self.on_barrier(0)

    def on_idle(self, _input_number: int) -> Iterator[Output]:
        """All channels are idle: nothing changes."""
        return iter(())

    def on_barrier(self, _snapshot: int) -> Iterator[Output]:
        """A batch has ended: what is beyond the limits of size goes, the sessions that end first before others."""
        limits, sessions = self._plan.retention, self._open.sessions
        if not (limits.has_sizes and len(sessions)):
            return
        ends, which = np.unique(sessions.ends, return_inverse=True)
        last = -1  # of the ends, the last one that must go
        ones = np.ones(len(sessions), np.int64)
        sized = (ones, limits.max_windows), (sessions.rows, limits.max_messages), (sessions.sizes, limits.max_bytes)
        for sizes, most in sized:
            if most is not None:
                held = np.bincount(which, sizes, len(ends)).astype(np.int64)
                last = max(
                    last, int(np.searchsorted(np.cumsum(held), sizes.sum() - most)) if sizes.sum() > most else -1
                )
        if last >= 0:
            unfinished = (sessions.ends <= ends[last]) & (sessions.ends > self._complete)
            yield from self._show(np.flatnonzero(unfinished), Timing.EARLY, last=True)
            yield from self._expire(int(ends[last]), dropped=True)

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        if self._plan.late_by is EveryBy.CLOCK and self._late.is_due(now_ms):
            yield from self._show_late()
        if not self._early_by_event:
            yield from self._show_early(now_ms)

    def on_end(self) -> Iterator[Output]:
        """The input has ended: every session is complete, and nothing is kept."""
        yield from self._advance(HIGHEST)
        yield from self._expire(HIGHEST)

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        tables = self._tables()
        self._open.keys.compact(list(tables.values()))
        for table in tables.values():
            table.tidy()
        changes = self._logs.drain(self._merge)
        told = {
            **self._logs.facts(),
            "channels": self.channels.facts(), "slice_ms": self._messages.width_ms,
            "looks": {str(start): floor for start, floor in sorted(self._messages.looks.items())},
            "watermark": self._watermark_ms, "complete": self._complete, "floor": self._floor,
            "early": self._early.snapshot(), "late": self._late.snapshot(),
            "open": [len(self._open.sessions), self.open_entries, int(self._open.parts.starts.min(initial=HIGHEST))],
            "accounts": [account.facts() for account in self._accounts], **self._facts(),
        }  # fmt: skip
        return StateChanges({**changes.written, NOTE: self._note(told)}, changes.removed)

    def windows(self, start: int, end: int, *, by_key: bool) -> pa.Table:
        """Return the sessions that overlap `[start, end]`, in order of expiry: one row for each topic and partition."""
        parts = self._open.parts
        parts = parts.take((parts.ends > start) & (parts.starts <= end))
        order = (self.channels.ranks()[parts.channels], self._open.keys.ranks(parts.keys), parts.starts, parts.ends)
        parts = parts.take(np.lexsort(order))
        made = [
            *(self._open.keys.columns(parts.keys) if by_key else ()),
            parts.starts, parts.ends, *self.channels.columns(self._plan.schema, parts.channels), parts.first,
            parts.last, parts.rows, parts.sizes, parts.ends <= self._complete,
        ]  # fmt: skip
        schema = looking.windows_schema(self._plan, by_key=by_key)
        return pa.Table.from_arrays(
            [pa.array(one) if isinstance(one, np.ndarray) else one for one in made], schema=schema
        )

    def messages(self, asked: tuple[Edge, Edge], equal: Mapping[str, Any]) -> pa.Table:
        """Return the messages that are held; see `looking.chosen`."""
        sessions, (low, high) = self._open.sessions, looking.numbers_of(asked)
        rows, _ = self._messages.of(self._open, sessions.take((sessions.ends > low) & (sessions.starts <= high)))
        return looking.chosen(self._plan, self.channels, rows, asked, equal)

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each channel where its records must be read from to have all that is held again."""
        oldest, parts = np.array(self.channels.next, np.int64), self._open.parts
        np.minimum.at(oldest, parts.channels, parts.first)
        return dict(zip(self.channels.known, oldest.tolist(), strict=True))

    def _take(self, rows: pa.Table, numbers: Ints, now_ms: int | None) -> Iterator[Output]:
        """Hold messages in the sessions that they make with those that are held; yield the panes that they give."""
        at, keys, offsets = places(self._plan, rows), self._open.numbers(rows), self.channels.offsets(rows)
        self._messages.add(rows, at)
        one, none = np.ones(len(at), np.int64), np.zeros(len(at), np.int64)
        fresh = Parts(keys, numbers, at, at + self._window.gap_ms, offsets, offsets, one, self._bytes(rows), none, none)
        is_near = np.isin(self._open.parts.keys, np.unique(keys))
        near = self._open.parts.take(is_near)
        both = fresh.with_others(near)
        made, taken_in = joined(fresh, near, joined_runs(self._window, both.keys, both.starts, both.ends))
        gone = np.flatnonzero(is_near)[taken_in]
        changed = self._know(gone, made)
        is_late, news = self._is_complete()[changed], self._news()[changed]
        late, open_ = changed[is_late], changed[~is_late]
        late_at = now_ms if self._plan.late_by is EveryBy.CLOCK else self._watermark_ms
        # Numbers of sessions hold while none begins or goes, and panes only mark them.
        if self._plan.late_rows is not None:
            yield from self._show(late[news[is_late] >= self._plan.late_rows], Timing.LATE)
        elif self._plan.late_every_ms is None or late_at is None:
            yield from self._show(late, Timing.LATE)
        elif len(late):
            self._late.begin(late_at)
        early_at = self._watermark_ms if self._early_by_event else now_ms
        if len(open_) and (early_at is not None or self._early_by_event):
            self._early.begin(LOWEST if early_at is None else early_at)
        if self._plan.early is not None and self._plan.early.rows is not None:
            yield from self._show(open_[news[~is_late] >= self._plan.early.rows], Timing.EARLY)

    @property
    def _early_by_event(self) -> bool:
        """Whether early panes are due by event time."""
        return self._plan.early is not None and self._plan.early.by_event

    def _show_early(self, at: int) -> Iterator[Output]:
        """Show the sessions that are open and have news, if that is due at this time."""
        if self._early.is_due(at):
            self._early.end()
            yield from self._show(np.flatnonzero(self._has_news() & ~self._is_complete()), Timing.EARLY)

    def _advance(self, complete: int) -> Iterator[Output]:
        """Show the sessions that end by then, in order of their ends."""
        if complete > self._complete:
            ends = self._open.sessions.ends
            before, self._complete = self._complete, complete
            yield from self._show(np.flatnonzero((ends > before) & (ends <= complete)), Timing.ON_TIME)

    def _expire(self, last: int, *, dropped: bool = False) -> Iterator[Output]:
        """Let the sessions go that end by then; yield what was pending of them."""
        if last <= self._floor:
            return
        self._floor = last
        gone = self._open.sessions.ends <= last
        if gone.any():
            yield from self._show(np.flatnonzero(gone & self._is_complete() & self._has_news()), Timing.LATE)
            places_of = np.flatnonzero(self._open.parts_of(np.flatnonzero(gone)))
            leaving = self._open.parts.take(places_of)
            for account, mine in zip(self._accounts, self._by_input(leaving), strict=True):
                rows, size = int(mine.rows.sum()), int(mine.sizes.sum())
                if dropped:
                    account.add(dropped_messages=rows, dropped_bytes=size, dropped_windows=len(mine.sessions()))
                else:
                    account.add(expired=rows)
            self._know(places_of, leaving.take(places_of[:0]))
        self._messages.tidy(self._open, self._floor)

    def _know(self, gone: Ints, made: Parts) -> Ints:
        """Hold these parts in the place of others, told by their places; return the sessions that they make."""
        flags = np.zeros(len(self._open.parts), np.bool_)
        flags[gone] = True
        return self._open.replace(flags, made)

    def _is_complete(self) -> Flags:
        return self._open.sessions.ends <= self._complete

    def _news(self) -> Ints:
        return self._open.sessions.rows - self._open.sessions.told

    def _has_news(self) -> Flags:
        return self._news() > 0

    def _show_late(self) -> Iterator[Output]:
        self._late.end()
        yield from self._show(np.flatnonzero(self._has_news() & self._is_complete()), Timing.LATE)

    def _show(self, places_of: Ints, timing: Timing, *, last: bool = False) -> Iterator[Output]:
        """Yield a pane of each of these sessions, in order of end, start and key, a million messages at a time."""
        if not len(places_of):
            return
        sessions = self._open.sessions.take(places_of)
        self._open.mark_shown(places_of)
        ranks = self._open.keys.ranks(sessions.keys)
        sessions = sessions.take(np.lexsort((ranks, sessions.starts, sessions.ends)))
        behind = np.cumsum(sessions.rows)
        for piece in np.split(
            np.arange(len(behind)), np.searchsorted(behind, np.arange(_MOST_ROWS, behind[-1], _MOST_ROWS))
        ):
            if len(piece):
                yield from self._panes(sessions.take(piece), timing, last=last)

    def _panes(self, sessions: Sessions, timing: Timing, *, last: bool) -> Iterator[Output]:
        by_key = np.lexsort((sessions.starts, sessions.keys))
        rows, owners = self._messages.of(self._open, sessions.take(by_key))
        owners = by_key[owners]
        at, ranks = places(self._plan, rows), self.channels.ranks()[self.channels.numbers(rows)]
        order = np.lexsort((self.channels.offsets(rows), ranks, at, owners))
        borders = np.append(0, np.cumsum(np.bincount(owners, minlength=len(sessions))))
        window = WindowRows(rows.take(pa.array(order)), at[order], borders)
        made = pane_rows(
            self._plan, self._open.keys, KeyedMessages(window, sessions.keys), edges=(sessions.starts, sessions.ends),
            of_channel=(), timing=timing, index=sessions.panes, last=last,
        )  # fmt: skip
        yield Output(made, sessions.ends - 1)

    def _bytes(self, rows: pa.Table) -> Ints:
        """Return what each message takes in Arrow."""
        return message_bytes(rows)

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        table = self._tables().get(log)
        return self._messages.merge(tables) if table is None else table.merge(tables)

    def _read(self, plan: StorePlan, store: BlobStore) -> dict[str, Any]:
        """Return the facts of the note."""
        return read_note(plan, store)

    def _note(self, facts: Mapping[str, Any]) -> bytes:
        return note(self._plan, facts)

    def _facts(self) -> dict[str, Any]:
        """Return what else a later instance needs to know, ready for JSON."""
        return {}

    def _tables(self) -> dict[str, OpenSessions]:
        """Return the logs of small rows, and what they hold."""
        return {INDEX: self._open}

    def _by_input(self, parts: Parts) -> list[Parts]:
        """Return the parts of each input."""
        return [parts]

    def _closed(self, watermark_ms: int, kept_for_ms: int = 0) -> int:
        return closed_ms(self._window, watermark_ms, kept_for_ms)
