"""The operator of windows that count a key's messages: it has the calls of `operator.StoreOperator`.

Rule: Kafka gives an order to the messages of a partition and to no others, so a key's messages are counted in each
topic and partition for itself. Then no message comes late, a window is complete with its last message, whose result
never changes, and nothing depends on how the input was cut or on which partition was read first.
A batch reads the small log of what is known of each key; it reads messages only if it completes a window that was
begun before. Messages that no window needs any more leave their log when it is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.messages import held_keys, looking
from keyedwm.operators.messages.account import Account
from keyedwm.operators.messages.asked import Edge
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.functions import WindowRows
from keyedwm.operators.messages.incoming import checked
from keyedwm.operators.messages.key_rows import KeyPlaces, OpenKeys, channels_of, keys_of
from keyedwm.operators.messages.messages import message_bytes
from keyedwm.operators.messages.note import note, read_note
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.results import KeyedMessages, pane_rows
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.panes import Timing
from keyedwm.operators.results import Output
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs

MESSAGES, OPEN = "messages-keys", held_keys.INDEX
_MOST_ROWS = 1 << 20


class KeyRowOperator:
    """Windows of a plan over one input; `store` is the state that it goes on from."""

    next_timer_ms: int | None = None
    late_rows = 0

    def __init__(self, plan: StorePlan, store: BlobStore) -> None:
        told = read_note(plan, store)
        self._plan, self._grid = plan, plan.key_grid()
        self._logs = TableLogs(store, note=NOTE, facts=told)
        self.channels = Channels(plan.record, told.get("channels", ()))
        self._open = OpenKeys(plan.key_fields, self._logs, OPEN)
        self._account = Account(plan, told.get("counts", {}))

    @property
    def counts(self) -> StoreCounts:
        """What became of all messages since the store was new."""
        return self._account.counts

    @property
    def open_entries(self) -> int:
        """How many messages the store holds."""
        return int(self._grid.held(self._open.rows.counts).sum())

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that outputs keep: panes of rows have no event time, so none is behind it."""
        return watermark_ms

    def rejected(self) -> pa.Table:
        """Return the messages that were given back since the last call (`plan.rejected_schema`)."""
        return self._account.rejected()

    def on_rows(self, _input_number: int, rows: pa.Table, _now_ms: int | None) -> Iterator[Output]:
        """Take messages; those seen before change nothing."""
        rows = checked(self._plan.schema, rows, self._plan.offset)
        if not rows.num_rows:
            return
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        self._account.add(given=rows.num_rows, replayed=rows.num_rows - len(fresh))
        if len(fresh):
            yield from self._take(rows.take(pa.array(fresh)), numbers[fresh])

    def on_watermark(self, _input_number: int, _key: int, _time_ms: int) -> Iterator[Output]:
        """Windows of rows know no event time: nothing changes."""
        return iter(())

    def on_idle(self, _input_number: int) -> Iterator[Output]:
        """All channels are idle: nothing changes."""
        return iter(())

    def on_timer(self, _now_ms: int) -> Iterator[Output]:
        """Nothing is due by the clock."""
        return iter(())

    def on_barrier(self, _snapshot: int) -> Iterator[Output]:
        """A batch has ended: beyond the limits of size go the keys whose messages lie farthest behind in offsets."""
        limits, places = self._plan.retention, self._open.rows
        held = self._grid.held(places.counts)
        channels = channels_of(places.codes)
        age = np.array(self.channels.next, np.int64)[channels] - places.first
        ranks = self.channels.ranks()[channels], self._open.keys.ranks(keys_of(places.codes))
        order = np.lexsort((ranks[1], ranks[0], -age, held == 0))
        beyond = np.zeros(len(order), np.bool_)
        for sizes, most in ((held, limits.max_messages), (places.sizes, limits.max_bytes)):
            if most is not None:
                beyond |= int(sizes.sum()) - np.cumsum(sizes[order]) + sizes[order] > most
        gone = places.take(np.sort(order[beyond & (held[order] > 0)]))
        if len(gone.codes):
            yield from self._show_open(gone, Timing.EARLY, last=True)
            self._forget(gone)
            self._account.add(
                dropped_messages=int(self._grid.held(gone.counts).sum()), dropped_bytes=int(gone.sizes.sum()),
                dropped_windows=int(self._grid.begun(gone.counts).sum()),
            )  # fmt: skip

    def on_end(self) -> Iterator[Output]:
        """The input has ended: every window is complete, and nothing is kept."""
        places = self._open.rows
        self._account.add(expired=self.open_entries)
        yield from self._show_open(places.take(self._grid.held(places.counts) > 0), Timing.ON_TIME)
        self._forget(places)

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        self._open.keys.compact([self._open])
        self._open.tidy()
        self._write_anew()
        changes = self._logs.drain(self._merge)
        windows = int((self._grid.held(self._open.rows.counts) > 0).sum())
        told = {
            **self._logs.facts(),
            "channels": self.channels.facts(),
            "open": [windows, self.open_entries],
            "counts": self._account.facts(),
        }
        return StateChanges({**changes.written, NOTE: note(self._plan, told)}, changes.removed)

    def windows(self, start: int, end: int, *, by_key: bool) -> pa.Table:
        """Return of each key on each channel the window that is complete next, if it overlaps `[start, end]`."""
        places = self._open.rows
        places = places.take((self._grid.held(places.counts) > 0) & (places.last >= start) & (places.first <= end))
        channels, numbers = channels_of(places.codes), keys_of(places.codes)
        order = np.lexsort((self._open.keys.ranks(numbers), self.channels.ranks()[channels], places.last))
        places, channels, numbers = places.take(order), channels[order], numbers[order]
        made = [
            *(self._open.keys.columns(numbers) if by_key else ()),
            places.first, places.last + 1, *self.channels.columns(self._plan.schema, channels), places.first,
            places.last, self._grid.held(places.counts), places.sizes, np.zeros(len(numbers), np.bool_),
        ]  # fmt: skip
        schema = looking.windows_schema(self._plan, by_key=by_key)
        made = [pa.array(one) if isinstance(one, np.ndarray) else one for one in made]
        return pa.Table.from_arrays(made, schema=schema)

    def messages(self, asked: tuple[Edge, Edge], equal: Mapping[str, Any]) -> pa.Table:
        """Return the messages that are held; see `looking.chosen`."""
        return looking.chosen(self._plan, self.channels, self._held(self._open.rows), asked, equal)

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each channel its first offset: the places of a key's messages are counted from there."""
        return dict(zip(self.channels.known, self.channels.first, strict=True))

    def _take(self, rows: pa.Table, numbers: Ints) -> Iterator[Output]:
        """Count messages by key and channel; hold those of windows that are not complete, and show the others."""
        codes, offsets = self._open.codes(rows, numbers), self.channels.offsets(rows)
        order = np.lexsort((offsets, codes))
        rows, codes, offsets = rows.take(pa.array(order)), codes[order], offsets[order]
        heads = np.flatnonzero(np.diff(codes, prepend=-1))
        many = np.diff(np.append(heads, len(codes)))
        before = self._open.found(codes[heads])
        counts, group = before.counts + many, np.repeat(np.arange(len(heads)), many)
        at = np.arange(len(codes)) - (heads - before.counts)[group]
        kept = ~self._grid.in_a_gap(at)
        self._account.reject(rows.filter(pa.array(~kept)), Reason.GAP)
        begin = np.maximum(self._grid.first_starts(counts), 0)
        shut = self._grid.first_starts(counts) > self._grid.first_starts(before.counts)
        fresh = rows.filter(pa.array(kept & shut[group]))
        yield from self._show_complete(before.take(shut), counts[shut], fresh)
        live = kept & (at >= begin[group])
        held = rows.filter(pa.array(live))
        held_before, held_now = self._grid.held(before.counts).sum(), self._grid.held(counts).sum()
        self._account.add(taken=kept.sum(), expired=kept.sum() + held_before - held_now)
        self._know(before, counts, self._grown(before, counts, held, offsets[live], group[live]))
        if held.num_rows:
            self._logs.append(MESSAGES, held)

    def _grown(
        self, before: KeyPlaces, counts: Ints, held: pa.Table, offsets: Ints, group: Ints
    ) -> tuple[Ints, Ints, Ints]:
        """Return first and last offset and bytes held, once `held` are too; group: whose they are, ascending."""
        first, last, sizes = (column.copy() for column in (before.first, before.last, before.sizes))
        old = self._grid.held(before.counts) - self._left(before.counts, counts)
        fewer = (old > 0) & (old < self._grid.held(before.counts))
        emptied = old <= 0
        sizes[emptied] = 0
        if fewer.any():  # windows overlap: some of the messages that were held before stay
            stay = self._held(before.take(fewer))
            codes, places = self._open.codes(stay, self.channels.numbers(stay)), self.channels.offsets(stay)
            order = np.lexsort((places, codes))
            each = self._grid.held(before.counts[fewer])
            begin = np.cumsum(each) - each + (each - old[fewer])
            first[fewer] = places[order][begin]
            total = np.append(0, np.cumsum(message_bytes(stay)[order]))
            sizes[fewer] = total[np.cumsum(each)] - total[begin]
        if len(group):
            heads = np.flatnonzero(np.diff(group, prepend=-1))
            mine, tails = group[heads], np.append(heads[1:], len(group)) - 1
            first[mine] = np.where(emptied[mine], offsets[heads], first[mine])
            last[mine] = offsets[tails]
            np.add.at(sizes, group, message_bytes(held))
        return first, last, sizes

    def _left(self, before: Ints, counts: Ints) -> Ints:
        """Return how many of the messages that were held are needed no more."""
        held = self._grid.held(before)
        return np.minimum(np.maximum(self._grid.first_starts(counts), 0) - (before - held), held)

    def _know(self, before: KeyPlaces, counts: Ints, facts: tuple[Ints, Ints, Ints]) -> None:
        self._open.put(KeyPlaces.of(before.codes, self._grid.forgotten(counts), *facts))

    def _forget(self, places: KeyPlaces) -> None:
        if len(places.codes):
            none = np.zeros(len(places.codes), np.int64)
            self._know(places, none, (none, none, none))

    def _show_complete(self, before: KeyPlaces, counts: Ints, fresh: pa.Table) -> Iterator[Output]:
        """Show the windows that these keys complete with fresh messages, which have come to these counts."""
        if not len(counts):
            return
        rows = pa.concat_tables([self._held(before), fresh])
        starts = self._grid.first_starts(before.counts)
        number = (self._grid.first_starts(counts) - starts) // self._grid.step
        yield from self._show(before, rows, starts, number, ends=counts, timing=Timing.ON_TIME)

    def _show_open(self, places: KeyPlaces, timing: Timing, *, last: bool = False) -> Iterator[Output]:
        """Show the windows of these keys that hold a message and are not complete."""
        starts, number = self._grid.first_starts(places.counts), self._grid.begun(places.counts)
        rows = self._held(places)
        yield from self._show(places, rows, starts, number, ends=places.counts, timing=timing, last=last)

    def _show(
        self, before: KeyPlaces, rows: pa.Table, starts: Ints, number: Ints, *, ends: Ints, timing: Timing,
        last: bool = False,
    ) -> Iterator[Output]:  # fmt: skip
        """Show so many windows of each key from these starts on; ends: behind the last place of the key's messages."""
        codes, offsets = self._open.codes(rows, self.channels.numbers(rows)), self.channels.offsets(rows)
        order = np.lexsort((offsets, codes))
        rows, codes, offsets = rows.take(pa.array(order)), codes[order], offsets[order]
        owner = np.repeat(np.arange(len(number)), number)
        begin = starts[owner] + (np.arange(len(owner)) - (np.cumsum(number) - number)[owner]) * self._grid.step
        first = np.maximum(starts, 0)
        heads = np.searchsorted(codes, before.codes)[owner] + self._grid.rows_between(first[owner], begin)
        sizes = np.minimum(begin + self._grid.size, ends[owner]) - np.maximum(begin, 0)
        owner_codes = before.codes[owner]
        in_order = np.lexsort((heads, offsets[heads + sizes - 1], self.channels.ranks()[channels_of(owner_codes)]))
        for cut in pieces(in_order, sizes):
            yield self._panes(rows, offsets, (heads[cut], sizes[cut]), owner_codes[cut], timing, last=last)

    def _panes(
        self, rows: pa.Table, offsets: Ints, spans: tuple[Ints, Ints], codes: Ints, timing: Timing, *, last: bool
    ) -> Output:
        heads, sizes = spans
        borders = np.append(0, np.cumsum(sizes))
        places = np.arange(borders[-1]) + np.repeat(heads - borders[:-1], sizes)
        window = WindowRows(rows.take(pa.array(places)), offsets[places], borders)
        made = pane_rows(
            self._plan, self._open.keys, KeyedMessages(window, keys_of(codes)),
            edges=(offsets[heads], offsets[heads + sizes - 1] + 1),
            of_channel=self.channels.columns(self._plan.schema, channels_of(codes)), timing=timing,
            index=np.zeros(len(heads), np.int64), last=last,
        )  # fmt: skip
        return Output(made, offsets[heads + sizes - 1])

    def _held(self, places: KeyPlaces) -> pa.Table:
        """Return the messages that are held of these keys, in no order."""
        none = self._plan.schema.empty_table()
        if not self._grid.held(places.counts).any():
            return none
        rows = pa.concat_tables([none, *self._logs.read(MESSAGES)])
        live, codes = self._live(rows)
        return rows.filter(pa.array(live & np.isin(codes, places.codes)))

    def _live(self, rows: pa.Table) -> tuple[Flags, Ints]:
        """Return which messages are held still, and the codes of all."""
        codes = self._open.codes(rows, self.channels.numbers(rows))
        held = self._grid.held(self._open.rows.counts) > 0
        return self._open.live(codes, self.channels.offsets(rows), held), codes

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        if log == OPEN:
            return self._open.merge(tables)
        rows = pa.concat_tables(tables)
        return rows.filter(pa.array(self._live(rows)[0]))

    def _write_anew(self) -> None:
        """Write the messages anew, or drop them, if most of them are needed no more."""
        count = self.open_entries
        if self._logs.is_mostly_old(MESSAGES, count):
            anew = self._held(self._open.rows)
            self._logs.drop(MESSAGES)
            if count:
                self._logs.append(MESSAGES, anew)


def pieces(in_order: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield windows, in an order, so many at a time that they hold about a million messages; sizes: of each."""
    behind = np.cumsum(sizes[in_order])
    for cut in np.split(in_order, np.searchsorted(behind, np.arange(_MOST_ROWS, behind[-1:].sum(), _MOST_ROWS))):
        if len(cut):
            yield cut
