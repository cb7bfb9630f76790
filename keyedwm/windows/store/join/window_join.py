"""A join of windows for a program of one's own; see `WindowOperator` for one side alone.

Rule: each pair comes once, when the later of its messages is shown, and nothing else comes. What waits is shown before
any message goes that it could meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.core.errors import OptionError
from keyedwm.windows.columns import Flags
from keyedwm.windows.plan import Timing
from keyedwm.windows.state.note import NOTE
from keyedwm.windows.state.store import MemoryStore, TableLogs
from keyedwm.windows.store.axis import HIGHEST, LOWEST
from keyedwm.windows.store.join.axis import JoinAxis
from keyedwm.windows.store.join.note import note, read_note
from keyedwm.windows.store.join.pairs import Shown, chosen, laid_out, laid_out_window, pairs
from keyedwm.windows.store.join.plan import LEFT, RIGHT, Keep, WindowJoinPlan
from keyedwm.windows.store.join.side import JoinSide, Taken
from keyedwm.windows.store.messages import MessageStore
from keyedwm.windows.store.retention import StoreCounts

_KINDS = (Timing.EARLY, Timing.LATE)


class WindowJoin:
    """Two sides whose windows are joined. store: where the state is, changed by `flush` alone; one in memory else."""

    def __init__(self, plan: WindowJoinPlan, store: MemoryStore | None = None) -> None:
        self.plan = plan
        self.store = MemoryStore() if store is None else store
        told = read_note(plan, self.store)
        self._logs = TableLogs(self.store, note=NOTE, facts=told)
        sides: Sequence[Any] = told.get("sides", ({}, {}))
        self._sides = [JoinSide(plan, number, self._logs, facts) for number, facts in enumerate(sides)]
        self._due: dict[str, list[int | None]] = told.get("due", {one.value: [None, None] for one in _KINDS})
        self._full: int = told.get("full", LOWEST)  # windows that end by then have their row
        self._results: list[pa.Table] = []

    def add_message(self, side: str, messages: pa.Table, now_ms: int | None = None) -> None:
        """Take a table of messages of a side, of any number of channels, each in order of offset.

        now_ms: wall-clock time, needed for pairs by the clock. Raises InputError for a missing column.
        """
        number = self.plan.number_of(side)
        if now_ms is None and self.plan.by_clock:
            raise OptionError("the plan has pairs by the clock: give add_message the wall-clock time as now_ms")
        for taken in self._sides[number].take(messages):
            if self.plan.keep is Keep.ALL:
                self._add(number, taken, now_ms)
            else:
                self._hold(number, taken)
        self._speak(self._horizon())
        self._forget()

    def watermark(self, side: str, time_ms: int) -> None:
        """Promise that no message of a side below this event time is expected; a lower one has no effect."""
        self._sides[self.plan.number_of(side)].watermark(time_ms)
        self._speak(self._horizon())
        self._forget()
        self._limit()

    def timeout(self, now_ms: int) -> None:
        """Let wall-clock time pass: pairs every so often."""
        due = [kind for kind in _KINDS if (at := self._due[kind.value][0]) is not None and at <= now_ms]
        self._show_waiting(due)

    def get_result(self) -> pa.Table:
        """Return all pairs since the last `flush`, oldest first; asked twice it says the same."""
        return pa.concat_tables([self.plan.result_schema.empty_table(), *self._results])

    def get_rejected(self, side: str) -> pa.Table:
        """Return the messages of a side that were given back since the last `flush`, as they came, with the reason."""
        number = self.plan.number_of(side)
        return pa.concat_tables([self.plan.sides[number].rejected_schema.empty_table(), *self._sides[number].rejected])

    def flush(self) -> pa.Table:
        """Apply the limits of size, write the state, and return the pairs, which are then forgotten here."""
        self._limit()
        results = self.get_result()
        changes = self._logs.drain(self._merge)
        facts = {**self._logs.facts(), "sides": [side.facts() for side in self._sides], "due": self._due}
        facts |= {} if self._full == LOWEST else {"full": self._full}
        self.store.blobs.update({**changes.written, NOTE: note(self.plan, facts)})
        for name in changes.removed:
            del self.store.blobs[name]
        self._results.clear()
        for side in self._sides:
            side.rejected.clear()
        return results

    def finish(self) -> None:
        """The input has ended: what waits is shown, and nothing is kept."""
        self._show_waiting(_KINDS)
        self._speak(HIGHEST)
        for side in self._sides:
            for axis in side.axes.values():
                side.counted["expired"] += axis.forget(HIGHEST)[0]
                axis.floor = HIGHEST

    def counts(self, side: str) -> StoreCounts:
        """Return what became of all messages of a side since the store was new."""
        return self._sides[self.plan.number_of(side)].counts

    @property
    def next_timeout_ms(self) -> int | None:
        """The wall-clock time at which `timeout` has something to do, None if nothing waits."""
        return min((at for at, _ in self._due.values() if at is not None), default=None)

    def next_offsets(self, side: str) -> dict[tuple[str, int], int]:
        """Return for each topic and partition of a side the offset below which all is known."""
        channels = self._sides[self.plan.number_of(side)].channels
        return dict(zip(channels.known, channels.next, strict=True))

    def _add(self, number: int, taken: Taken, now_ms: int | None) -> None:
        """Join what is due at once with what is held, then hold it."""
        lasting = taken.axis.grid.slices(taken.at) >= self._gone(number, taken.axis)
        if not lasting.all():
            self._show_waiting(_KINDS)  # what is not held meets them now or never
        waits = {
            Timing.EARLY: ~taken.late & lasting & (self.plan.early_every_ms is not None),
            Timing.LATE: taken.late & lasting & (self.plan.late_every_ms is not None),
        }
        at_once = taken.filter(~(waits[Timing.EARLY] | waits[Timing.LATE]))
        new = [side.schema.empty_table() for side in self.plan.sides]
        new[number] = at_once.rows
        late = [np.zeros(table.num_rows, bool) for table in new]
        late[number] = at_once.late
        self._show(new, late)
        held = taken.filter(lasting)
        self._sides[number].counted["expired"] += len(taken.at) - len(held.at)  # nothing to come would meet the others
        if len(held.at):
            taken.axis.hold(held.rows, held.at, held.numbers, {kind: flags[lasting] for kind, flags in waits.items()})
        for kind, flags in waits.items():
            if flags.any() and now_ms is not None:
                self._wait(kind, now_ms)

    def _hold(self, number: int, taken: Taken) -> None:
        """Hold messages; windows that have their row give another one where it changes."""
        axis = taken.axis
        held = taken.filter(axis.grid.slices(taken.at) >= axis.gone)
        self._sides[number].counted["expired"] += len(taken.at) - len(held.at)
        if not len(held.at):
            return
        axis.hold(held.rows, held.at, held.numbers, {})
        offsets = self._sides[number].channels.offsets(held.rows)
        touched = {end for start in np.unique(axis.grid.slices(held.at)).tolist() for end in axis.grid.ends_of(start)}
        for end in sorted(end for end in touched if end <= self._full):
            self._window(end, Timing.LATE, lambda sides: axis.among(sides[number].rows, held.numbers, offsets), number)

    def _horizon(self) -> int:
        """Return how far both sides have come."""
        marks = [max((axis.horizon for axis in side.axes.values()), default=LOWEST) for side in self._sides]
        return min(marks)

    def _speak(self, horizon: int, timing: Timing = Timing.ON_TIME) -> None:
        """Give the row of each key and window that both sides have completed."""
        if self.plan.keep is Keep.ALL or horizon <= self._full:
            return
        left, right = (side.axes.get(0) for side in self._sides)
        if left is not None and right is not None:
            lows, highs = left.grid.held_ends(left.store.slices, self._full, horizon)
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
                for end in range(low, high + 1, left.grid.step):
                    self._window(end, timing)
        self._full = horizon

    def _window(
        self,
        end: int,
        timing: Timing,
        is_new: Callable[[Sequence[Shown]], Flags] | None = None,
        number: int = LEFT,
    ) -> None:
        """Give the rows of a window that is held whole; is_new: which messages of a side a row must have one of."""
        axes = [side.axes.get(0) for side in self._sides]
        start = end - self.plan.grid().size
        if any(axis is None or start < axis.gone for axis in axes):
            return
        both = []
        for side, axis in zip(self._sides, axes, strict=True):
            rows = axis.store.read(start, end) if axis is not None else None
            both.append(side.shown(rows, np.zeros(0 if rows is None else rows.num_rows, bool)))
        left, right = both
        found = chosen(self.plan, left, right)
        if is_new is not None:
            kept = is_new(both)[found[number]]
            found = found[LEFT][kept], found[RIGHT][kept]
        if len(found[LEFT]):
            self._results.append(laid_out_window(self.plan, left, right, found, end=end, timing=timing))

    def _wait(self, kind: Timing, now_ms: int) -> None:
        """Set when waiting messages are due: early ones on the beat that the first began, late ones after it."""
        due_ms, began_ms = self._due[kind.value]
        every_ms = self.plan.early_every_ms if kind is Timing.EARLY else self.plan.late_every_ms
        if due_ms is None and every_ms is not None:
            began_ms = now_ms if began_ms is None or kind is Timing.LATE else began_ms
            self._due[kind.value] = [now_ms + every_ms - (now_ms - began_ms) % every_ms, began_ms]

    def _show_waiting(self, kinds: Sequence[Timing]) -> None:
        if not any(self._due[kind.value][0] is not None for kind in kinds):
            return
        new, late = [], []
        for side in self._sides:
            tables = [side.waiting(kind) for kind in kinds]
            new.append(pa.concat_tables(tables))
            flags = [np.full(one.num_rows, kind is Timing.LATE) for kind, one in zip(kinds, tables, strict=True)]
            late.append(np.concatenate(flags))
        self._show(new, late)
        for kind in kinds:
            self._due[kind.value][0] = None
            for side in self._sides:
                for axis in side.axes.values():
                    axis.shown(kind)

    def _show(self, new: Sequence[pa.Table], late: Sequence[Flags]) -> None:
        """Join new messages of both sides with each other, and with what is held and was shown."""
        both, counts = [], [table.num_rows for table in new]
        if not any(counts):
            return
        for number, side in enumerate(self._sides):
            other = 1 - number
            reach = np.sort(self._sides[other].shown(new[other], late[other]).at) if self.plan.both_windowed else None
            seen = side.visible(reach) if counts[other] else new[number].slice(0, 0)
            rows = pa.concat_tables([new[number], seen])
            both.append(side.shown(rows, np.append(late[number], np.zeros(seen.num_rows, bool))))
        left, right = both
        found = [pairs(self.plan, left.part(0, counts[LEFT]), right)]
        at_left, at_right = pairs(self.plan, left.part(counts[LEFT]), right.part(0, counts[RIGHT]))
        found.append((at_left + counts[LEFT], at_right))
        at_left, at_right = (np.concatenate(places) for places in zip(*found, strict=True))
        if len(at_left):
            self._results.append(laid_out(self.plan, left, right, at_left, at_right))

    def _gone(self, number: int, axis: JoinAxis) -> int:
        """Return the first slice of an axis that is still of use."""
        if not self.plan.both_windowed or self.plan.is_rows:
            return max(axis.gone, axis.outlived())
        floor = max((one.floor for one in self._sides[1 - number].axes.values()), default=LOWEST)
        if self.plan.keep is not Keep.ALL:
            floor = min(floor, self._full)  # a window's row needs the messages of both sides
        return max(axis.gone, axis.out_of_reach(floor))

    def _forget(self) -> None:
        """Drop the slices that are of no use any more."""
        leaving = [
            (side, axis, before)
            for number, side in enumerate(self._sides)
            for axis in side.axes.values()
            if (before := self._gone(number, axis)) > axis.gone
        ]
        if any(len(axis.store.slices) and axis.store.slices[0] < before for _, axis, before in leaving):
            self._show_waiting(_KINDS)
        for side, axis, before in leaving:
            side.counted["expired"] += axis.forget(before)[0]

    def _limit(self) -> None:
        """Drop the oldest windows beyond the limits of size."""
        while self.plan.retention.has_sizes and (found := self._beyond()) is not None:
            side, axis = found
            self._show_waiting(_KINDS)
            self._speak(axis.oldest()[1], Timing.EARLY)
            messages, size = axis.drop(axis.oldest()[1])
            side.counted.update(dropped_messages=messages, dropped_bytes=size, dropped_windows=1)
            self._forget()

    def _beyond(self) -> tuple[JoinSide, JoinAxis] | None:
        """Return the axis that must give a window: too many of its own, or else the oldest (of rows the fullest)."""
        limits = self.plan.retention
        held = [side.held for side in self._sides]
        too_much = (
            limits.max_messages is not None and sum(messages for messages, _ in held) > limits.max_messages
        ) or (limits.max_bytes is not None and sum(size for _, size in held) > limits.max_bytes)
        axes = [(side, axis) for side in self._sides for axis in side.axes.values() if len(axis.store.slices)]
        for side, axis in axes:
            if limits.max_windows is not None and axis.oldest()[0] > limits.max_windows:
                return side, axis
        if not (too_much and axes):
            return None
        if self.plan.is_rows:
            return max(axes, key=lambda one: int(one[1].store.index.rows.sum()))
        return min(axes, key=lambda one: one[1].oldest()[1])

    def _merge(self, log: str, tables: Sequence[pa.Table]) -> pa.Table:
        channel, side = divmod(MessageStore.place_of(log), 2)
        return self._sides[side].axes[channel].merge(log, tables)
