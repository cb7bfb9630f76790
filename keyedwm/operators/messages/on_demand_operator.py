"""The operator of windows that messages open: it has the calls of `operator.StoreOperator`.

Rule: a message is taken as long as the window that it could open would be kept, and then every window that holds it is
still there. So whether a message is in a window follows from the messages that were taken, in whatever order they came:
one that opens a window may be late, and the messages of its window, which waited, are in it. Those that no window holds
are given back when no message that could open one is taken any more, slice by slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, contiguous
from keyedwm.operators.messages import looking
from keyedwm.operators.messages.account import Account
from keyedwm.operators.messages.asked import Edge
from keyedwm.operators.messages.axis import HIGHEST, LOWEST
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.functions import WindowRows
from keyedwm.operators.messages.incoming import check_times, checked
from keyedwm.operators.messages.messages import MessageStore, in_order, places
from keyedwm.operators.messages.note import note, read_note
from keyedwm.operators.messages.opened_members import OrderedMessages, in_key_order, listed, ranges
from keyedwm.operators.messages.opened_windows import OPENED, Opened, OpenedWindows, spans
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.results import KeyedMessages, pane_rows
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.panes import Timing
from keyedwm.operators.results import Output
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs

_MOST_ROWS = 1 << 20


class OnDemandOperator:
    """Windows of a plan over one input; `store` is the state that it goes on from."""

    next_timer_ms: int | None = None

    def __init__(self, plan: StorePlan, store: BlobStore) -> None:
        told = read_note(plan, store)
        self._plan, self._size, self._kept_for = plan, plan.span, plan.retention.time_ms or 0
        self._logs = TableLogs(store, note=NOTE, facts=told)
        self.channels = Channels(plan.record, told.get("channels", ()))
        self._watermark_ms: int = told.get("axes", {}).get("0", {}).get("horizon", LOWEST)
        # By this event time no message is taken any more; it never goes back, whatever the retention is from now on.
        self._border: int = told.get("border", self._due_border())
        self._messages = MessageStore(plan, self.channels, self._logs, 0, self._first_kept)
        self._opened = OpenedWindows(plan.key_fields, self._logs)
        self._opened.forget(self._opened.rows.starts < self._first_kept - self._size)
        self._account = Account(plan, told.get("counts", {}))

    @property
    def counts(self) -> StoreCounts:
        """What became of all messages since the store was new."""
        return self._account.counts

    @property
    def late_rows(self) -> int:
        """How many messages came outside the retention since this instance was built."""
        return self._account.late_rows

    @property
    def open_entries(self) -> int:
        """How many messages the store holds."""
        return int(self._messages.index.rows.sum())

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that outputs keep: no window that ends by then speaks any more."""
        return min(watermark_ms - self._kept_for - self._size, self._border)

    def rejected(self) -> pa.Table:
        """Return the messages that were given back since the last call (`plan.rejected_schema`)."""
        return self._account.rejected()

    def on_rows(self, _input_number: int, rows: pa.Table, _now_ms: int | None) -> Iterator[Output]:
        """Take messages; those seen before change nothing."""
        rows = checked(self._plan.schema, rows, self._plan.offset)
        if not rows.num_rows:
            return
        is_timed = rows[self._plan.time].is_valid()
        check_times(self._plan.time, places(self._plan, rows.filter(is_timed)))
        opens = self._plan.opens
        is_opener = opens.holds({name: contiguous(rows[name]) for name in opens.columns[0]})
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        self._account.add(given=rows.num_rows, replayed=rows.num_rows - len(fresh))
        is_opener = is_opener[fresh][contiguous(is_timed).to_numpy(zero_copy_only=False)[fresh]]
        rows, numbers = self._account.with_time(rows.take(pa.array(fresh)), numbers[fresh])
        at = places(self._plan, rows)
        kept = at > self._border
        self._account.reject(rows.filter(pa.array(~kept)), Reason.RETENTION)
        self._account.add(taken=kept.sum())
        if kept.any():
            yield from self._take(rows.filter(pa.array(kept)), at[kept], numbers[kept], is_opener[kept])

    def on_watermark(self, _input_number: int, _key: int, time_ms: int) -> Iterator[Output]:
        """Take the watermark: it completes windows, and gives back what waited for a window in vain."""
        before = self._watermark_ms
        if time_ms > before:
            self._watermark_ms, ends = time_ms, self._opened.rows.starts + self._size
            yield from self._show(np.flatnonzero((ends > before) & (ends <= time_ms)), Timing.ON_TIME)
        if self._due_border() > self._border:
            self._border = self._due_border()
            self._expire()

    def on_idle(self, _input_number: int) -> Iterator[Output]:
        """All channels are idle: nothing changes."""
        return iter(())

    def on_barrier(self, _snapshot: int) -> Iterator[Output]:
        """A batch has ended: nothing is kept by size."""
        return iter(())

    def on_timer(self, _now_ms: int) -> Iterator[Output]:
        """Nothing is due by the clock."""
        return iter(())

    def on_end(self) -> Iterator[Output]:
        """The input has ended: every window is complete, and nothing is kept."""
        return self.on_watermark(0, 0, HIGHEST)

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        self._opened.keys.compact([self._opened])
        self._opened.tidy()
        known = self._opened.rows
        changes = self._logs.drain(self._merge)
        kept = known.starts[self._is_kept()]
        told = {
            **self._logs.facts(), "channels": self.channels.facts(), "counts": self._account.facts(),
            "axes": {} if self._watermark_ms == LOWEST else {"0": {"horizon": self._watermark_ms}},
            "border": self._border,
            "open": [len(kept), self.open_entries, int(kept.min(initial=HIGHEST))],
        }  # fmt: skip
        return StateChanges({**changes.written, NOTE: note(self._plan, told)}, changes.removed)

    def windows(self, start: int, end: int, *, by_key: bool) -> pa.Table:
        """Return the windows that overlap `[start, end]`, each key its own: one row for each topic and partition."""
        known = self._opened.rows
        chosen = self._is_kept() & (known.starts + self._size > start) & (known.starts <= end)
        messages = self._in_order(self._read(start - self._size, end + self._size))
        keys, starts, (channel, *facts) = listed(self._opened, known.take(chosen), messages, self.channels, self._size)
        made = [
            *(self._opened.keys.columns(keys) if by_key else ()), starts, starts + self._size,
            *self.channels.columns(self._plan.schema, channel), *facts, starts + self._size <= self._watermark_ms,
        ]  # fmt: skip
        schema = looking.windows_schema(self._plan, by_key=by_key)
        return pa.Table.from_arrays(
            [pa.array(one) if isinstance(one, np.ndarray) else one for one in made], schema=schema
        )

    def messages(self, asked: tuple[Edge, Edge], equal: Mapping[str, Any]) -> pa.Table:
        """Return the messages that are held, also those in no window yet; see `looking.chosen`."""
        low, high = looking.numbers_of(asked)
        return looking.chosen(self._plan, self.channels, self._read(low, high + 1), asked, equal)

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each channel where its records must be read from to have all that is held again."""
        oldest, index = np.array(self.channels.next, np.int64), self._messages.index
        np.minimum.at(oldest, index.channels, index.first)
        return dict(zip(self.channels.known, oldest.tolist(), strict=True))

    def _due_border(self) -> int:
        """Return where the border is by the watermark and the retention."""
        return max(LOWEST, self._watermark_ms - self._kept_for - self._size)

    @property
    def _first_kept(self) -> int:
        """Where the first slice begins that a message may come to, or a window that it is in."""
        return ((self._border - 2 * self._size + 2) // self._size + 1) * self._size

    def _is_kept(self) -> Flags:
        """Which windows take messages."""
        return self._opened.rows.starts + self._size - 1 > self._border

    def _take(self, rows: pa.Table, at: Ints, numbers: Ints, is_opener: Flags) -> Iterator[Output]:
        """Hold messages, open the windows that they open, and show those that are complete and have news."""
        self._messages.add(rows, at, numbers, at - at % self._size)
        keys = self._opened.numbers(rows)
        self._opened.open(keys[is_opener], at[is_opener])
        order, windows = np.lexsort((at, keys)), self._opened.rows
        ends = windows.starts + self._size
        first, behind = spans(windows.keys, windows.starts, ends, keys[order], at[order])
        yield from self._show(np.flatnonzero((behind > first) & (ends <= self._watermark_ms)), Timing.LATE)

    def _expire(self) -> None:
        """Let the slices go that no window needs, and give back their messages that are in none."""
        first, windows, returned = self._first_kept, self._opened.rows, 0
        for start in self._messages.slices[self._messages.slices < first].tolist():
            mine = self._in_order(self._messages.read_slices(np.array([start])))
            begin, behind = spans(mine.keys, mine.at - self._size + 1, mine.at + 1, windows.keys, windows.starts)
            alone = mine.rows.filter(pa.array(begin == behind))
            self._account.reject(in_order(self._plan, self.channels, alone), Reason.GAP)
            returned += alone.num_rows
        held, _ = self._messages.forget(first)
        self._account.add(expired=held - returned, taken=-returned)
        self._opened.forget(self._opened.rows.starts < first - self._size)

    def _read(self, low: int, high: int) -> pa.Table:
        """Return the messages of the slices that overlap `[low, high)`."""
        return self._messages.read(low - self._size + 1, high)

    def _in_order(self, rows: pa.Table, of: Ints | None = None) -> OrderedMessages:
        """Return messages in order; of: of these keys alone."""
        keys = self._opened.numbers(rows)
        if of is not None:
            mine = np.isin(keys, of)
            rows, keys = rows.filter(pa.array(mine)), keys[mine]
        return in_key_order(rows, places(self._plan, rows), keys, self.channels)

    def _show(self, chosen: Ints, timing: Timing) -> Iterator[Output]:
        """Yield a pane of each of these windows, in order of end and key, those of a slice together."""
        windows = self._opened.rows.take(chosen)
        if not len(windows):
            return
        self._opened.mark_shown(chosen)
        slices = windows.starts - windows.starts % self._size
        for start in np.unique(slices).tolist():
            mine = windows.take(slices == start)
            mine = mine.take(np.lexsort((self._opened.keys.ranks(mine.keys), mine.starts)))
            held = self._in_order(self._messages.read(start, start + 2 * self._size), mine.keys)
            first, behind = spans(mine.keys, mine.starts, mine.starts + self._size, held.keys, held.at)
            total = np.cumsum(behind - first)
            for piece in np.split(
                np.arange(len(mine)), np.searchsorted(total, np.arange(_MOST_ROWS, total[-1], _MOST_ROWS))
            ):
                if len(piece):
                    yield self._panes(mine.take(piece), held, (first[piece], behind[piece]), timing)

    def _panes(self, windows: Opened, held: OrderedMessages, of: tuple[Ints, Ints], timing: Timing) -> Output:
        """Return the panes of windows; of: where the messages of each begin and end."""
        sizes, ends = of[1] - of[0], windows.starts + self._size
        member = ranges(of[0], sizes)
        window = WindowRows(held.rows.take(pa.array(member)), held.at[member], np.append(0, np.cumsum(sizes)))
        made = pane_rows(
            self._plan, self._opened.keys, KeyedMessages(window, windows.keys), edges=(windows.starts, ends),
            of_channel=(), timing=timing, index=windows.panes, last=False,
        )  # fmt: skip
        return Output(made, ends - 1)

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        return self._opened.merge(tables) if log == OPENED else self._messages.merge(log, tables)
