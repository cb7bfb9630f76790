"""A buffer of windows on a grid: by event time for all channels together, or by the offsets of one channel.

Theory. Messages lie on the line at their event time or offset, in slices: the shortest stretches that no edge of a
window cuts. So a window is a run of slices, and a slice is stored once for all its windows. Two marks move
along the line, and neither goes back:

    the window is   while                     a message that comes to it     when the phase ends
    open            horizon < end             may show an early pane         it shows its pane on time, once
    complete        floor < end <= horizon    shows a late pane, or waits    waiting panes come
    gone            end <= floor              is rejected                    -

The horizon is the watermark, the highest event time, or the next offset, as the plan says. The floor is the retention
behind it, or a limit of size moves the floor to the end of the oldest window. A slice is dropped with its last window:
the first slice that is kept begins with the first window that ends behind the floor.

So the phase of a window when a message arrives depends on the input before it, and not on how the input was cut. If
messages move the horizon, the horizon for each is the highest place before it (`horizons_before`). They are still
buffered many at a time: up to the first message that reaches back into a window which earlier messages of the call have
expired (`before_outlived`).

For each key and window the pane log has the number of panes shown, and a mark: how many messages the last pane covered,
or, for panes of new messages only, the number of the last call that it covered (`ARRIVAL`). Each pane is computed from
all messages, since a late message can be at any place in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, sorted_distinct
from keyedwm.core.lateness import has_ended
from keyedwm.operators.frames.plan import SlidingWindow
from keyedwm.operators.messages.channels import Channels
from keyedwm.operators.messages.grid import LOWEST, Grid
from keyedwm.operators.messages.grid_buffer import GridBuffer
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.message_plan import ARRIVAL
from keyedwm.operators.messages.messages import MessageStore
from keyedwm.operators.messages.pending_panes import PendingPanes
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.results import key_numbers, keyed, panes
from keyedwm.operators.panes import EveryBy, Now, PanePolicy, PaneTiming
from keyedwm.operators.results import Output
from keyedwm.operators.state.key_dictionary import KeyDictionary
from keyedwm.operators.state.pane_log import PaneLog
from keyedwm.operators.state.store import TableLogs

_FIRST_LOOK = 256
_PANES = "panes-"


class WindowBuffer(GridBuffer):
    """The windows of one line, and their held messages.

    place: its number among the operator's lines; for windows of rows, the number of the channel.
    """

    def __init__(
        self,
        plan: StorePlan,
        grid: Grid,
        channels: Channels,
        logs: TableLogs,
        *,
        place: int,
        state: Mapping[str, Any],
    ) -> None:
        super().__init__(grid, plan.retention, state)
        self._plan, self._channels, self._place = plan, channels, place
        self._arrivals = state.get("arrivals", 0)
        self.store = MessageStore(plan, channels, logs, place, self.outlived())
        rest = (grid.origin + grid.size) % grid.step
        self._ends = SlidingWindow(grid.step, grid.step, rest)
        self._panes = PaneLog(plan, self._ends, logs, f"{_PANES}{place}-")
        self._policy = PanePolicy(plan.early, plan.late, state, by_window=True)
        self._pending = {
            timing: PendingPanes(plan, f"{timing.value}-{place}", logs)
            for timing in (PaneTiming.LATE, PaneTiming.EARLY)
            if self._policy.waits(timing) or (timing is PaneTiming.LATE and plan.late_rows is not None)
        }

    def state(self) -> dict[str, Any]:
        """Return the state for a later instance, ready for JSON."""
        arrivals = {} if self._plan.accumulating else {"arrivals": self._arrivals}
        horizon, floor = (None if mark == LOWEST else mark for mark in (self.horizon, self.floor))
        return {"horizon": horizon, "floor": floor, **arrivals, **self._policy.state()}

    @property
    def dropped_end(self) -> int:
        """Windows that end up to here are gone."""
        return self.floor

    @property
    def next_timer_ms(self) -> int | None:
        """The time at which panes by the clock are due, None if nothing is pending."""
        return self._policy.next_timer_ms

    def before_outlived(self, at: Ints) -> int:
        """Return how many messages, each of which moves the horizon, can be buffered in one step.

        These are the messages before one that expires a window of a message which a later window still needs. The
        search doubles from `_FIRST_LOOK`.
        """
        top, begin, size = self.horizon, 0, _FIRST_LOOK
        while begin < len(at):
            some = at[begin : begin + size]
            outlived = self._outlived(some, horizons_before(some, top))
            if outlived.any():
                return begin + int(np.argmax(outlived))
            top, begin, size = max(top, int(some.max())), begin + size, 2 * size
        return len(at)

    def _outlived(self, at: Ints, horizons: Ints) -> Flags:
        """Return which places have a window that is expired by a horizon which this line has not applied yet."""
        floors, first = self.floors(horizons), self.grid.last_end_by(at) + self.grid.step
        has_risen = floors > self.floor
        return has_risen & has_ended(first, floors) & ~has_ended(self.grid.last_ends(at), floors)

    def buffer_messages(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Hold messages that are not expired; yield their immediate panes: late panes, and early panes by count."""
        if not len(messages):
            return
        rows, at = messages.rows, messages.at
        keys = KeyDictionary(self._plan.key_fields)
        numbers, slices = key_numbers(self._plan, keys, rows), self.grid.slices(at)
        self.store.add(self._numbered(rows), at, messages.channels, slices)
        late, open_ = self._changed(numbers, slices)
        now = Now(now_ms, self.horizon)
        for timing, changed in ((PaneTiming.LATE, late), (PaneTiming.EARLY, open_)):
            waits, is_timed = self._policy.begin(timing, now, changed), self._policy.waits(timing)
            if timing in self._pending and (waits or not is_timed):
                self._pending[timing].add(keys, changed)
            enough = self._policy.fire_threshold(timing, waits=waits)
            if enough is not None:
                yield from self._show(keys, changed, timing, enough=enough)

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Return messages as they are held: with the number of this call, if panes hold only new messages."""
        if self._plan.accumulating:
            return rows
        self._arrivals += 1
        return rows.append_column(self._plan.stored_schema.field(ARRIVAL), pa.repeat(self._arrivals, rows.num_rows))

    def advance(self, horizon: int) -> Iterator[Output]:
        """Yield the on-time panes of the windows that end by then, in order of their ends."""
        if horizon <= self.horizon:
            return
        for end in self.held_ends(max(self.horizon, self.floor), horizon):
            self.horizon = end
            keys = KeyDictionary(self._plan.key_fields)
            yield from self._emit(keys, end, self._read(end), PaneTiming.ON_TIME)
        self.horizon = horizon
        yield from self._show_due(EveryBy.EVENT, horizon)

    def expire(self, last: int) -> Iterator[Output]:
        """Expire the windows that end by then; yield their pending panes. `forgotten` then drops their slices."""
        last = int(self.grid.last_end_by(last))
        if last <= self.floor:
            return
        keys = KeyDictionary(self._plan.key_fields)
        if PaneTiming.LATE in self._pending:
            leaving, left = self._pending[PaneTiming.LATE].pop_due(keys, lambda ends: has_ended(ends, last))
            self._policy.left(PaneTiming.LATE, left)
            yield from self._show(keys, leaving, PaneTiming.LATE, enough=int(self._plan.late_rows is not None))
        self.floor = last
        self._panes.forget((last - self._ends.offset_ms) // self._ends.slide_ms)

    def forgotten(self) -> tuple[int, int]:
        """Drop the slices of expired windows; return how many messages they held, and their bytes."""
        return self.store.forget(self.outlived())

    def show_unfinished(self, end: int) -> Iterator[Output]:
        """Yield the last pane of a window that must be dropped before it is complete."""
        if not has_ended(end, self.horizon):
            yield from self._emit(
                KeyDictionary(self._plan.key_fields), end, self._read(end), PaneTiming.EARLY, last=True
            )

    def on_timer(self, now_ms: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock."""
        yield from self._show_due(EveryBy.CLOCK, now_ms)

    def _show_due(self, by: EveryBy, at: int) -> Iterator[Output]:
        """Yield the panes that are due by the clock or by event time."""
        for timing, is_due in self._policy.due(by, at).items():
            keys = KeyDictionary(self._plan.key_fields)
            due, left = self._pending[timing].pop_due(keys, is_due)
            self._policy.left(timing, left)
            behind = self.floor if timing is PaneTiming.LATE else max(self.horizon, self.floor)
            due_keys = {end: numbers for end, numbers in due.items() if not has_ended(end, behind)}
            yield from self._show(keys, due_keys, timing)

    def _read(self, end: int) -> pa.Table:
        return self.store.read(end - self.grid.size, end)

    def _changed(self, numbers: Ints, slices: Ints) -> tuple[dict[int, Ints], dict[int, Ints]]:
        """Return the keys with new messages in complete and in open windows, by the windows' ends, ascending."""
        wants_open = self._plan.early is not None
        late: dict[int, list[Ints]] = {}
        open_: dict[int, list[Ints]] = {}
        for start in sorted_distinct(slices).tolist():
            ends = self.grid.ends_of(start)
            if not (wants_open or has_ended(ends[0], self.horizon)):
                break  # so are all later slices
            numbers_here = sorted_distinct(numbers[slices == start])
            for end in ends:
                if has_ended(end, self.floor):
                    continue
                if has_ended(end, self.horizon):
                    late.setdefault(end, []).append(numbers_here)
                elif wants_open:
                    open_.setdefault(end, []).append(numbers_here)
        merged = (
            {end: sorted_distinct(np.concatenate(numbers_here)) for end, numbers_here in sorted(one.items())}
            for one in (late, open_)
        )
        return next(merged), next(merged)

    def _show(
        self, keys: KeyDictionary, changed: Mapping[int, Ints], timing: PaneTiming, enough: int = 0
    ) -> Iterator[Output]:
        """Yield a pane for these keys of windows.

        enough: only windows with this number of messages more than the last pane.
        """
        for end, numbers_here in sorted(changed.items()):
            rows = self._read(end)
            is_changed = np.isin(key_numbers(self._plan, keys, rows), numbers_here)
            yield from self._emit(keys, end, rows.filter(pa.array(is_changed)), timing, enough=enough)

    def _emit(
        self, keys: KeyDictionary, end: int, rows: pa.Table, timing: PaneTiming, *, enough: int = 0, last: bool = False
    ) -> Iterator[Output]:
        if not rows.num_rows:
            return
        messages = keyed(self._plan, self._channels, keys, rows)
        number = (end - self._ends.offset_ms) // self._ends.slide_ms
        ends = np.full(len(messages), number, np.int64)
        index, before = self._panes.emitted(keys, messages.keys, ends)
        marks = messages.counts
        if not self._plan.accumulating:  # the mark is an arrival; complete windows need no new messages
            marks = np.full_like(marks, self._arrivals)
            messages, before = messages.since(before), np.zeros_like(before)
            enough = max(enough, int(not last and timing is not PaneTiming.ON_TIME))
        if enough:
            due = np.flatnonzero(messages.counts - before >= enough)
            messages, ends, index, marks = messages.take_groups(due), ends[due], index[due], marks[due]
        if not len(messages):
            return
        self._panes.append(keys, messages.keys, ends, index + 1, marks)
        end_of_each = np.full(len(messages), end)
        edges = end_of_each - self.grid.size, end_of_each
        channels: list[pa.Array] = []
        if self._plan.is_rows:
            channels = self._channels.columns(self._plan.schema, np.full(len(messages), self._place))
        yield panes(self._plan, keys, messages, edges, channels=channels, timing=timing, index=index, last=last)


def horizons_before(at: Ints, before: int) -> Ints:
    """Return the horizon for each message if messages move it: the highest place before its own."""
    horizons = np.full(len(at), before)
    horizons[1:] = np.maximum(np.maximum.accumulate(at)[:-1], before)
    return horizons
