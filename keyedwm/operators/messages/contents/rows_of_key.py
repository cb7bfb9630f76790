"""Windows that count a key's messages in a topic and partition, in order of offset; see `of_keys`.

Rule: the number of the key's messages there decides which windows are complete, and how many of the last messages are
held for incomplete windows. Places count from 0 on for each key, in order of offset. The first of these windows holds
every message that is held. Limits count held messages. A key between two windows holds none, and its count stays for
ever: without the count its next message would open a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages.contents.of_keys import KeyedRowsContent
from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.key_rows import KeyPlaces, channels_of
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.results import pieces
from keyedwm.operators.messages.window_content import ContentContext
from keyedwm.operators.messages.windows import CompletedBy, KeyRowWindow
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output


@dataclass(frozen=True, slots=True)
class KeyGrid(Grid):
    """Windows of a key's messages by their number, also before the first one where they overlap.

    known_ahead: a window is complete with its last message, not with the first message after it.
    """

    known_ahead: bool = field(kw_only=True)

    def first_incomplete(self, counts: Ints) -> Ints:
        """Return where the first incomplete window starts. counts: the messages so far."""
        return self.first_starts(counts if self.known_ahead else np.maximum(counts - 1, 0))

    def needed_messages(self, counts: Ints) -> Ints:
        """Return how many of the last messages are held."""
        return np.maximum(counts - np.maximum(self.first_incomplete(counts), 0), 0)

    def open_windows(self, counts: Ints) -> Ints:
        """Return how many windows hold a message and are not complete."""
        return np.maximum(-((self.first_incomplete(counts) - counts) // self.step), 0)

    def rows_between(self, first: Ints, starts: Ints) -> Ints:
        """Return how many messages that windows hold lie from the place `first` to these starts."""
        if self.step <= self.size:
            return np.maximum(starts, 0) - first
        return (starts - first) // self.step * self.size

    def forgotten(self, counts: Ints) -> Ints:
        """Return the counts, 0 for keys whose next row behaves like a new key's."""
        as_new = (self.needed_messages(counts) == 0) & (self.first_incomplete(counts) == counts)
        return np.where(as_new, 0, counts)


class KeyRowsContent(KeyedRowsContent, windows=KeyRowWindow):
    """Windows of `size` messages of a key, one at every step."""

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan, context, state)
        window = self._plan.kind_as(KeyRowWindow)
        self._grid = KeyGrid(window.size, window.step, known_ahead=self._plan.full is CompletedBy.WATERMARK)

    def needed_messages(self, counts: Ints) -> Ints:
        """Return how many of the last messages of a key its incomplete windows need."""
        return self._grid.needed_messages(counts)

    def open_windows(self, counts: Ints) -> Ints:
        """Return how many windows of a key hold a message and are not complete."""
        return self._grid.open_windows(counts)

    def known(self, counts: Ints) -> Ints:
        """Return the counts, 0 for keys whose next message behaves like a new key's."""
        return self._grid.forgotten(counts)

    def open(self, messages: Messages, _now_ms: int | None) -> Iterator[Output]:
        """Count messages by key and channel; hold messages of incomplete windows, and show complete windows."""
        messages, codes = self._in_order(messages)
        offsets = messages.at
        heads = np.flatnonzero(np.diff(codes, prepend=-1))
        many = np.diff(np.append(heads, len(codes)))
        before = self._open.places_of(codes[heads])
        counts, group = before.counts + many, np.repeat(np.arange(len(heads)), many)
        at = np.arange(len(codes)) - (heads - before.counts)[group]
        gap = self._grid.in_a_gap(at)
        admitted = self._counter.admit(messages, {Reason.GAP: gap})
        begin = np.maximum(self._grid.first_incomplete(counts), 0)
        completes = self._grid.first_incomplete(counts) > self._grid.first_incomplete(before.counts)
        fresh = messages.rows.filter(pa.array(~gap & completes[group]))
        yield from self._show_complete(before.take_rows(completes), counts[completes], fresh)
        live = ~gap & (at >= begin[group])
        new_rows = messages.rows.filter(pa.array(live))
        held_before = self._grid.needed_messages(before.counts).sum()
        held_now = self._grid.needed_messages(counts).sum()
        self._counter.release(len(admitted) + held_before - held_now)
        self._know(before, counts, self._grown(before, counts, new_rows, offsets[live], group[live]))
        self._messages.add(new_rows)

    def show_open(self, places: KeyPlaces, timing: PaneTiming, *, last: bool = False) -> Iterator[Output]:
        """Show the incomplete windows of these keys that hold a message."""
        starts, number = self._grid.first_incomplete(places.counts), self._grid.open_windows(places.counts)
        rows = self._buffered_messages(places)
        yield from self._show(places, rows, starts, number, ends=places.counts, timing=timing, last=last)

    def _grown(
        self, before: KeyPlaces, counts: Ints, new_rows: pa.Table, offsets: Ints, group: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Return first and last offset and bytes held, with the new rows. group: key and channel of each, ascending."""
        first, last, sizes = (column.copy() for column in (before.first, before.last, before.sizes))
        old = self._grid.needed_messages(before.counts) - self._left(before.counts, counts)
        fewer = (old > 0) & (old < self._grid.needed_messages(before.counts))
        emptied = old <= 0
        sizes[emptied] = 0
        if fewer.any():  # windows overlap: some of the messages that were held before stay
            ordered, _ = self._of_held(self._buffered_messages(before.take_rows(fewer)))
            each = self._grid.needed_messages(before.counts[fewer])
            begin = np.cumsum(each) - each + (each - old[fewer])
            first[fewer] = ordered.at[begin]
            total = np.append(0, np.cumsum(message_bytes(ordered.rows)))
            sizes[fewer] = total[np.cumsum(each)] - total[begin]
        if len(group):
            heads = np.flatnonzero(np.diff(group, prepend=-1))
            owners, tails = group[heads], np.append(heads[1:], len(group)) - 1
            first[owners] = np.where(emptied[owners], offsets[heads], first[owners])
            last[owners] = offsets[tails]
            np.add.at(sizes, group, message_bytes(new_rows))
        return first, last, sizes

    def _left(self, before: Ints, counts: Ints) -> Ints:
        """Return how many held messages are not needed any more."""
        buffered = self._grid.needed_messages(before)
        return np.minimum(np.maximum(self._grid.first_incomplete(counts), 0) - (before - buffered), buffered)

    def _show_complete(self, before: KeyPlaces, counts: Ints, fresh: pa.Table) -> Iterator[Output]:
        """Show the windows that these keys complete with fresh messages. counts: the messages so far."""
        if not len(counts):
            return
        rows = pa.concat_tables([self._buffered_messages(before), fresh])
        starts = self._grid.first_incomplete(before.counts)
        number = (self._grid.first_incomplete(counts) - starts) // self._grid.step
        yield from self._show(before, rows, starts, number, ends=counts, timing=PaneTiming.ON_TIME)

    def _show(
        self, before: KeyPlaces, rows: pa.Table, starts: Ints, number: Ints, *, ends: Ints, timing: PaneTiming,
        last: bool = False,
    ) -> Iterator[Output]:  # fmt: skip
        """Show `number` windows of each key from these starts on. ends: the place behind the key's last message."""
        messages, codes = self._of_held(rows)
        offsets = messages.at
        owner = np.repeat(np.arange(len(number)), number)
        begin = starts[owner] + (np.arange(len(owner)) - (np.cumsum(number) - number)[owner]) * self._grid.step
        first = np.maximum(starts, 0)
        heads = np.searchsorted(codes, before.codes)[owner] + self._grid.rows_between(first[owner], begin)
        sizes = np.minimum(begin + self._grid.size, ends[owner]) - np.maximum(begin, 0)
        owner_codes = before.codes[owner]
        in_order = np.lexsort((heads, offsets[heads + sizes - 1], self.channels.ranks()[channels_of(owner_codes)]))
        for piece in pieces(in_order, sizes, self._logs.limits.piece_rows):
            yield self._panes(messages, (heads[piece], sizes[piece]), owner_codes[piece], timing, last=last)
