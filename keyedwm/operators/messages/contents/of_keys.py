"""Windows of a key's messages in a topic and partition: shared by windows that count messages and by sessions of rows.

Rule: Kafka gives an order to the messages of a partition and to no others, so a key's messages are split by topic and
partition. Then no message comes late, and a window is complete with its last message. Results depend neither on how the
input was cut nor on which partition was read first. A batch reads the small log with the counts of each key. It reads
messages only if it completes a window that began in an earlier batch. Messages that no window needs any more leave
their log when it is rewritten.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.messages.functions import WindowRows
from keyedwm.operators.messages.key_rows import KeyPlaces, OpenKeys, channels_of, keys_of
from keyedwm.operators.messages.listing import Listing
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.results import KeyedMessages, panes
from keyedwm.operators.messages.window_content import BufferedMessages, ContentContext, StoreContent
from keyedwm.operators.panes import PaneTiming
from keyedwm.operators.results import Output
from keyedwm.operators.state.table import StateTable

MESSAGES, OPEN = "messages-keys", "open-keys"


class KeyedRowsContent(StoreContent):
    """For each key and channel, the number of messages, and the messages that incomplete windows need."""

    def __init__(self, plan: StorePlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(plan, context, state)
        self._open = OpenKeys(self._plan.key_fields, self._logs, OPEN)
        self._messages = StateTable(self._logs, MESSAGES, self._merge_messages)

    @abstractmethod
    def needed_messages(self, counts: Ints) -> Ints:
        """Return how many of a key's last messages its windows need. counts: the messages so far."""

    @abstractmethod
    def open_windows(self, counts: Ints) -> Ints:
        """Return how many incomplete windows of a key hold a message. counts: the messages so far."""

    @abstractmethod
    def known(self, counts: Ints) -> Ints:
        """Return the counts that must be stored, 0 for keys that behave like new keys."""

    @abstractmethod
    def show_open(self, places: KeyPlaces, timing: PaneTiming, *, last: bool = False) -> Iterator[Output]:
        """Show the incomplete windows of these keys that hold a message."""

    def shrink(self) -> Iterator[Output]:
        """Drop the keys whose messages lie farthest behind in offsets."""
        limits, places = self._plan.retention, self._open.rows
        message_counts = self.needed_messages(places.counts)
        age = np.array(self.channels.next, np.int64)[places.channels] - places.first
        ranks = self.channels.ranks()[places.channels], self._open.keys.ranks(places.keys)
        order = np.lexsort((ranks[1], ranks[0], -age, message_counts == 0))
        is_over_limit = np.zeros(len(order), np.bool_)
        for sizes, most in ((message_counts, limits.max_messages), (places.sizes, limits.max_bytes)):
            if most is not None:
                is_over_limit |= int(sizes.sum()) - np.cumsum(sizes[order]) + sizes[order] > most
        dropped_keys = places.take_rows(np.sort(order[is_over_limit & (message_counts[order] > 0)]))
        if len(dropped_keys.codes):
            yield from self.show_open(dropped_keys, PaneTiming.EARLY, last=True)
            self._forget(dropped_keys)
            messages, windows = self.needed_messages(dropped_keys.counts), self.open_windows(dropped_keys.counts)
            self._counter.release(messages.sum(), dropped_keys.sizes.sum(), windows.sum(), over_limit=True)

    def end(self) -> Iterator[Output]:
        """Show the windows that hold a message; forget all keys."""
        places = self._open.rows
        self._counter.release(self.message_count())
        yield from self.show_open(places.take_rows(self.needed_messages(places.counts) > 0), PaneTiming.ON_TIME)
        self._forget(places)

    def message_count(self) -> int:
        """The number of messages that incomplete windows need."""
        return int(self.needed_messages(self._open.rows.counts).sum())

    def compact(self) -> None:
        """Rewrite a log, or drop it, if most of its rows are not needed."""
        self._open.keys.compact([self._open])
        self._open.tidy()
        self._messages.compact(self.message_count(), lambda: self._buffered_messages(self._open.rows))

    def state(self) -> dict[str, Any]:
        """For a summary: how many windows and messages there are."""
        windows = int((self.needed_messages(self._open.rows.counts) > 0).sum())
        return {"open": [windows, self.message_count(), None]}

    def of_input(self, _number: int) -> BufferedMessages:
        """Return the content itself."""
        return self

    def windows(self, start: int, end: int, *, by_key: bool) -> Iterator[Listing]:
        """List for each key on each channel the window that is complete next."""
        del by_key
        places = self._open.rows
        places = places.take_rows(
            (self.needed_messages(places.counts) > 0) & (places.last >= start) & (places.first <= end)
        )
        ranks = self._open.keys.ranks(places.keys), self.channels.ranks()[places.channels]
        places = places.take_rows(np.lexsort((*ranks, places.last)))
        yield Listing(
            self._open.keys.columns(places.keys), places.first, places.last + 1, places.channels, places.first,
            places.last, self.needed_messages(places.counts), places.sizes, np.zeros(len(places), np.bool_),
        )  # fmt: skip

    def read(self, low: int, high: int) -> pa.Table:
        """Read the messages of all keys with messages there."""
        places = self._open.rows
        return self._buffered_messages(places.take_rows((places.last >= low) & (places.first <= high)))

    def oldest(self) -> tuple[Ints, Ints]:
        """The first offset of each channel: the places of a key's messages are counted from there."""
        return np.arange(len(self.channels.known)), np.array(self.channels.first, np.int64)

    def _in_order(self, messages: Messages) -> tuple[Messages, Ints]:
        """Return messages in order of code and offset, and their codes."""
        codes = self._open.codes(messages.rows, messages.channels)
        order = np.lexsort((messages.at, codes))
        return messages.take_rows(order), codes[order]

    def _of_held(self, rows: pa.Table) -> tuple[Messages, Ints]:
        """Return held messages in order of code and offset, and their codes."""
        return self._in_order(Messages(rows, self.channels.offsets(rows), self.channels.numbers(rows)))

    def _know(self, before: KeyPlaces, counts: Ints, columns: tuple[Ints, Ints, Ints]) -> None:
        self._open.put_rows(KeyPlaces.of(before.codes, self.known(counts), *columns))

    def _forget(self, places: KeyPlaces) -> None:
        if len(places.codes):
            none = np.zeros(len(places.codes), np.int64)
            self._know(places, none, (none, none, none))

    def _panes(
        self, messages: Messages, spans: tuple[Ints, Ints], codes: Ints, timing: PaneTiming, *, last: bool
    ) -> Output:
        """Return a pane of each span of messages. spans: where each begins, and its number of messages."""
        heads, sizes = spans
        offsets = messages.at
        window = WindowRows.of_spans(messages.rows, offsets, heads, sizes)
        return panes(
            self._plan, self._open.keys, KeyedMessages(window, keys_of(codes)),
            (offsets[heads], offsets[heads + sizes - 1] + 1),
            channels=self.channels.columns(self._plan.schema, channels_of(codes)), timing=timing,
            index=np.zeros(len(heads), np.int64), last=last,
        )  # fmt: skip

    def _buffered_messages(self, places: KeyPlaces) -> pa.Table:
        """Return the held messages of these keys, in no order."""
        none = self._plan.schema.empty_table()
        if not self.needed_messages(places.counts).any():
            return none
        rows = pa.concat_tables([none, *self._messages.read()])
        live, codes = self._live(rows)
        return rows.filter(pa.array(live & np.isin(codes, places.codes)))

    def _merge_messages(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the messages of parts of the log that are still held."""
        rows = pa.concat_tables(tables)
        return rows.filter(pa.array(self._live(rows)[0]))

    def _live(self, rows: pa.Table) -> tuple[Flags, Ints]:
        """Return which messages are still held, and the codes of all."""
        codes = self._open.codes(rows, self.channels.numbers(rows))
        has_messages = self.needed_messages(self._open.rows.counts) > 0
        return self._open.live(codes, self.channels.offsets(rows), has_messages), codes
