"""Sessions by rows: messages of a key in a topic and partition, with few other messages between them.

Rule: offsets count, so no message comes late. A session is over when an offset was read that is too far after its last
message. A batch reads the counts of each key. It reads messages only if it ends a session that began in an earlier
batch. Each key and channel has at most one open session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.kernels import add_by_group
from keyedwm.operators.messages.contents.of_keys import KeyedRowsContent
from keyedwm.operators.messages.key_rows import KeyPlaces, channels_of
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.results import pieces
from keyedwm.operators.messages.window_content import ContentContext
from keyedwm.operators.messages.windows import SessionRowWindow
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output


class RowSessionContent(KeyedRowsContent, windows=SessionRowWindow):
    """An open session holds all messages of its key since it began."""

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan, context, state)
        self._reach = self._plan.kind_as(SessionRowWindow).between + 1

    def open(self, messages: Messages, _now_ms: int | None) -> Iterator[Output]:
        """Hold messages of open sessions; show ended sessions."""
        messages, codes = self._in_order(messages)
        rows, offsets = messages.rows, messages.at
        begins = self._begins(codes, offsets)
        run, heads = np.cumsum(begins) - 1, np.flatnonzero(begins)
        tails = np.append(heads[1:], len(codes)) - 1
        first_run = np.diff(codes[heads], prepend=-1) != 0
        last_run = np.append(first_run[1:], True)
        over = ~last_run | self._is_over(codes[tails], offsets[tails])
        before = self._open.places_of(codes[heads[first_run]])
        goes_on = (before.counts > 0) & (offsets[heads[first_run]] - before.last <= self._reach)
        ended = self._idle_and_over(before.codes)
        ended |= np.isin(self._open.rows.codes, before.codes[(before.counts > 0) & (~goes_on | over[first_run])])
        ended_rows = self._buffered_messages(self._open.rows.take_rows(ended))
        self._counter.admit(messages, {})
        self._counter.release(ended_rows.num_rows + over[run].sum())
        yield from self._show(pa.concat_tables([ended_rows, rows.filter(pa.array(over[run]))]), PaneTiming.ON_TIME)
        self._forget(self._open.rows.take_rows(ended))
        self._buffer_messages(messages.filter(~over[run]), codes[~over[run]])

    def needed_messages(self, counts: Ints) -> Ints:
        """All messages of a session."""
        return counts

    def open_windows(self, counts: Ints) -> Ints:
        """Return 1 for each key: a key with messages has one open session."""
        return np.sign(counts)

    def known(self, counts: Ints) -> Ints:
        """Return the counts of all keys with messages."""
        return counts

    def show_open(self, places: KeyPlaces, timing: PaneTiming, *, last: bool = False) -> Iterator[Output]:
        """Yield the panes of the open sessions of these keys."""
        yield from self._show(self._buffered_messages(places), timing, last=last)

    def _buffer_messages(self, messages: Messages, codes: Ints) -> None:
        """Hold messages of open sessions, by code and offset."""
        if not len(codes):
            return
        rows, offsets = messages.rows, messages.at
        heads = np.flatnonzero(np.diff(codes, prepend=-1))
        ids = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(codes))))
        before = self._open.places_of(codes[heads])
        counts = before.counts + np.bincount(ids)
        first = np.where(before.counts > 0, before.first, offsets[heads])
        last = offsets[np.append(heads[1:], len(codes)) - 1]
        self._know(before, counts, (first, last, before.sizes + add_by_group(message_bytes(rows), ids, len(heads))))
        self._messages.add(rows)

    def _show(self, rows: pa.Table, timing: PaneTiming, *, last: bool = False) -> Iterator[Output]:
        """Show whole sessions, in order of channel and last offset."""
        messages, codes = self._of_held(rows)
        offsets = messages.at
        heads = np.flatnonzero(self._begins(codes, offsets))
        sizes = np.diff(np.append(heads, len(codes)))
        in_order = np.lexsort((offsets[heads + sizes - 1], self.channels.ranks()[channels_of(codes[heads])]))
        for piece in pieces(in_order, sizes, self._logs.limits.piece_rows):
            yield self._panes(messages, (heads[piece], sizes[piece]), codes[heads[piece]], timing, last=last)

    def _begins(self, codes: Ints, offsets: Ints) -> Flags:
        """Return which messages, by code and offset, begin a session."""
        begins = np.ones(len(codes), np.bool_)
        begins[1:] = (np.diff(codes) != 0) | (np.diff(offsets) > self._reach)
        return begins

    def _is_over(self, codes: Ints, last: Ints) -> Flags:
        """Return which sessions no further message can join, by their last offsets."""
        return last + self._reach < np.array(self.channels.next, np.int64)[channels_of(codes)]

    def _idle_and_over(self, batch_codes: Ints) -> Flags:
        """Return which held sessions are over, among keys without a message in this batch."""
        places: KeyPlaces = self._open.rows
        return ~np.isin(places.codes, batch_codes) & self._is_over(places.codes, places.last)
