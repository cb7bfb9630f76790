"""The operator of windows that keep their messages: one instance serves one bucket, or a standalone program.

Rule: it has the calls of the operator protocol and knows no clock. Every message that comes is stored, given back with
a reason, or known as a replay: the counts add up. Limits of size are applied when time moves and at the end of a batch
(`on_barrier`), never among the messages of one, so they do not depend on how a batch was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Ints
from keyedwm.operators.messages import looking
from keyedwm.operators.messages.account import Account
from keyedwm.operators.messages.asked import Edge
from keyedwm.operators.messages.axis import HIGHEST, LOWEST, StoredWindows, met
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.incoming import check_times, checked
from keyedwm.operators.messages.messages import MessageStore, places
from keyedwm.operators.messages.note import note, read_note
from keyedwm.operators.messages.plan import Full, Reason, StorePlan
from keyedwm.operators.messages.retention import StoreCounts
from keyedwm.operators.results import Output
from keyedwm.operators.state.note import NOTE
from keyedwm.operators.state.store import BlobStore, StateChanges, TableLogs


class StoreOperator:
    """Windows of a plan over one input; `store` is the state that it goes on from."""

    def __init__(self, plan: StorePlan, store: BlobStore) -> None:
        told = read_note(plan, store)
        self._plan = plan
        self._logs = TableLogs(store, note=NOTE, facts=told)
        self.channels = Channels(plan.record, told.get("channels", ()))
        self._axis_facts: dict[str, Any] = told.get("axes", {})
        self.axes: dict[int, StoredWindows] = {}
        self._account = Account(plan, told.get("counts", {}))
        for place in self._axis_facts:
            self._axis(int(place))

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
        return sum(int(axis.store.index.rows.sum()) for axis in self.axes.values())

    @property
    def held_bytes(self) -> int:
        """How many bytes they take in Arrow."""
        return sum(int(axis.store.index.sizes.sum()) for axis in self.axes.values())

    @property
    def next_timer_ms(self) -> int | None:
        """When panes by the clock are due, None if nothing is pending."""
        return min((ms for axis in self.axes.values() if (ms := axis.next_timer_ms) is not None), default=None)

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark that outputs keep: late panes come as long as their window is kept.

        Panes of rows have no event time, so none of them is behind any watermark.
        """
        if self._plan.is_rows:
            return watermark_ms
        if self._plan.retention.time_ms is not None:
            return watermark_ms - self._plan.retention.time_ms
        floor = self.axes[0].floor if 0 in self.axes else None
        return min(watermark_ms, LOWEST if floor is None else floor)

    def rejected(self) -> pa.Table:
        """Return the messages that were given back since the last call (`plan.rejected_schema`)."""
        return self._account.rejected()

    def on_rows(self, _input_number: int, rows: pa.Table, now_ms: int | None) -> Iterator[Output]:
        """Take messages; those seen before change nothing. now_ms: wall-clock time, for panes by the clock."""
        rows = checked(self._plan.schema, rows, self._plan.offset)
        if not rows.num_rows:
            return
        if not self._plan.is_rows:
            check_times(self._plan.time, places(self._plan, rows.filter(rows[self._plan.time].is_valid())))
        numbers = self.channels.numbers(rows)
        fresh = self.channels.fresh(rows, numbers)
        self._account.add(given=rows.num_rows, replayed=rows.num_rows - len(fresh))
        if not self._plan.is_rows:
            rows, numbers = self._account.with_time(rows.take(pa.array(fresh)), numbers[fresh])
            yield from self._take(0, rows, numbers, now_ms)
            return
        for number in np.unique(numbers[fresh]).tolist():
            mine = fresh[numbers[fresh] == number]
            yield from self._take(number, rows.take(pa.array(mine)), numbers[mine], now_ms)

    def on_watermark(self, _input_number: int, _key: int, time_ms: int) -> Iterator[Output]:
        """Take the watermark of the input: it completes windows; those that messages complete it only lets go.

        Their panes would be behind the watermark that was passed on: few messages may come to this bucket.
        """
        if self._plan.is_rows:
            return
        axis, kept_for = self._axis(0), self._plan.retention.time_ms
        if self._plan.full is Full.WATERMARK:
            yield from self._advance(axis, time_ms)
        elif kept_for is not None:
            yield from axis.advance(time_ms - kept_for)
            yield from self._expire(axis, time_ms - kept_for)
        yield from self.on_barrier(0)

    def on_idle(self, _input_number: int) -> Iterator[Output]:
        """All channels are idle: nothing changes."""
        return iter(())

    def on_barrier(self, _snapshot: int) -> Iterator[Output]:
        """A batch has ended: what is beyond the limits of size goes, the oldest windows first."""
        if not self._plan.retention.has_sizes:
            return
        while (axis := self._beyond()) is not None:
            end = axis.oldest()[1]
            yield from axis.show_unfinished(end)
            yield from self._expire(axis, end, dropped=True)

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        for axis in self.axes.values():
            yield from axis.on_timer(now_ms)

    def on_end(self) -> Iterator[Output]:
        """The input has ended: every window is complete, and nothing is kept."""
        for axis in self.axes.values():
            yield from axis.advance(HIGHEST)
            yield from self._expire(axis, HIGHEST)

    def drain(self) -> StateChanges:
        """Return what changed in the state since the last call."""
        changes = self._logs.drain(self._merge)
        told = {
            **self._logs.facts(),
            "channels": self.channels.facts(),
            "axes": {str(place): axis.facts() for place, axis in self.axes.items()},
            "counts": self._account.facts(),
        }
        return StateChanges({**changes.written, NOTE: note(self._plan, told)}, changes.removed)

    def windows(self, start: int, end: int, *, by_key: bool) -> pa.Table:
        """Return the windows that overlap `[start, end]`; see `looking.windows`."""
        made = [
            looking.windows(self._plan, self.channels, axis, start, end, by_key=by_key)
            for _, axis in sorted(self.axes.items())
        ]
        return pa.concat_tables([looking.windows_schema(self._plan, by_key=by_key).empty_table(), *made])

    def messages(self, asked: tuple[Edge, Edge], equal: Mapping[str, Any]) -> pa.Table:
        """Return the messages that are held; see `looking.messages`."""
        made = [
            looking.messages(self._plan, self.channels, axis, asked, equal) for _, axis in sorted(self.axes.items())
        ]
        return pa.concat_tables([self._plan.schema.empty_table(), *made])

    def oldest_offsets(self) -> dict[tuple[str, int], int]:
        """Return for each channel where its records must be read from to have all that is held again.

        Windows of rows are counted from the first offset that was read, and a record that is read later may be it.
        """
        if self._plan.is_rows:
            return dict(zip(self.channels.known, self.channels.first, strict=True))
        return looking.oldest_offsets(self.channels, self.axes)

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        return self.axes[MessageStore.place_of(log)].merge(log, tables)

    def _axis(self, place: int) -> StoredWindows:
        """Return the axis of event time, or that of a channel."""
        if place not in self.axes:
            channel = self.channels.known[place] if self._plan.is_rows else None
            first = self.channels.first[place] if self._plan.is_rows else 0
            self.axes[place] = StoredWindows(
                self._plan, self._plan.grid(first), self.channels, self._logs, place=place, channel=channel,
                facts=self._axis_facts.get(str(place), {}),
            )  # fmt: skip
        return self.axes[place]

    def _take(self, place: int, rows: pa.Table, numbers: Ints, now_ms: int | None) -> Iterator[Output]:
        """Hold messages of one axis, and let them move its horizon where they do."""
        if not rows.num_rows:
            return
        axis, at = self._axis(place), places(self._plan, rows)
        if not (self._plan.is_rows or self._plan.full is Full.MESSAGE):
            before = np.full(len(at), LOWEST if axis.horizon is None else axis.horizon)
            yield from axis.take(*self._admitted(axis, rows, at, numbers, before), now_ms)
            return
        known_ahead = self._plan.is_rows and self._plan.full is Full.WATERMARK
        while len(at):  # a window goes before the message comes that would still reach it
            first = max(1, axis.before_outlived(at))
            now, horizon = at[:first], LOWEST if axis.horizon is None else axis.horizon
            taken = self._admitted(axis, rows.slice(0, first), now, numbers[:first], met(now, horizon))
            yield from axis.take(*taken, now_ms)
            yield from self._advance(axis, int(now.max()) + known_ahead)
            rows, at, numbers = rows.slice(first), at[first:], numbers[first:]

    def _admitted(
        self, axis: StoredWindows, rows: pa.Table, at: Ints, numbers: Ints, horizons: Ints
    ) -> tuple[pa.Table, Ints, Ints]:
        """Return the messages that a window takes; give back the others."""
        gap = axis.grid.in_a_gap(at)
        expired = axis.expired(at, horizons) & ~gap
        for flags, reason in ((gap, Reason.GAP), (expired, Reason.RETENTION)):
            if flags.any():
                self._account.reject(rows.filter(pa.array(flags)), reason)
        kept = ~gap & ~expired
        self._account.add(taken=kept.sum())
        return (rows, at, numbers) if kept.all() else (rows.filter(pa.array(kept)), at[kept], numbers[kept])

    def _advance(self, axis: StoredWindows, horizon: int) -> Iterator[Output]:
        yield from axis.advance(horizon)
        kept_for = self._plan.retention.time_ms
        if kept_for is not None:
            yield from self._expire(axis, horizon - kept_for)

    def _expire(self, axis: StoredWindows, last: int, *, dropped: bool = False) -> Iterator[Output]:
        yield from axis.expire(last)
        messages, size = axis.forgotten()
        if dropped:
            self._account.add(dropped_messages=messages, dropped_bytes=size, dropped_windows=1)
        else:
            self._account.add(expired=messages)

    def _beyond(self) -> StoredWindows | None:
        """Return the axis whose oldest window must go: it has too many, or there is too much and it holds most."""
        limits, holding = self._plan.retention, [axis for axis in self.axes.values() if len(axis.store.slices)]
        for axis in holding:
            if limits.max_windows is not None and axis.oldest()[0] > limits.max_windows:
                return axis
        if limits.max_messages is not None and self.open_entries > limits.max_messages:
            return max(holding, key=lambda axis: int(axis.store.index.rows.sum()))
        if limits.max_bytes is not None and self.held_bytes > limits.max_bytes:
            return max(holding, key=lambda axis: int(axis.store.index.sizes.sum()))
        return None
