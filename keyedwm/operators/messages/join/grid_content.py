"""Joined windows on a grid: windows of both sides with equal edges, or windows of one side with an unbounded side.

Rule: each pair comes once, when the later of its messages is emitted. Waiting messages are joined when their timer is
due, when their window is full, or before a message that they could pair with is dropped. With an outer `how`, and with
`keep` first or last, messages stay until both sides have completed their windows. If a limit of size drops them
earlier, their rows are emitted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import Flags, Ints, sorted_distinct
from keyedwm.core.lateness import has_ended
from keyedwm.operators.messages.grid import HIGHEST, LOWEST
from keyedwm.operators.messages.join.join_window_buffer import (
    EVERYTHING,
    FULL,
    JoinWindowBuffer,
    Waiting,
    reaching_back,
)
from keyedwm.operators.messages.join.pairs import (
    SideMessages,
    matches,
    one_pair_per_key,
    pair_outputs,
    unmatched_output,
    window_output,
)
from keyedwm.operators.messages.join.plan import LEFT, RIGHT, Keep, WindowJoinPlan
from keyedwm.operators.messages.join.side import AcceptedRows, JoinInputState
from keyedwm.operators.messages.listing import BufferedAxes
from keyedwm.operators.messages.message_counter import Messages
from keyedwm.operators.messages.window_content import ContentContext, WindowContent
from keyedwm.operators.panes import EveryBy, Now, PanePolicy, PaneTiming, WindowFilter
from keyedwm.operators.results import Output

SideAxis: TypeAlias = tuple[JoinInputState, JoinWindowBuffer]


class JoinedGrids(WindowContent):
    """Two inputs whose windows are joined."""

    def __init__(self, plan: WindowJoinPlan, context: ContentContext, state: Mapping[str, Any]) -> None:
        super().__init__(context)
        self._plan = plan
        axes = state.get("axes", {})
        self.sides = [JoinInputState(plan, one, context.logs, axes) for one in context.inputs]
        self._policy = PanePolicy(plan.early, plan.late, state.get("due", {}), by_window=True)
        self._full: int = state.get("full", LOWEST)  # windows that end by then have emitted their rows

    def open(self, messages: Messages, now_ms: int | None) -> Iterator[Output]:
        """Join messages of a side, in any order, and buffer them; now_ms: for pairs by the clock."""
        for accepted in self.sides[messages.input_number].accept_messages(messages):
            if self._plan.keep is Keep.ALL:
                yield from self._add(messages.input_number, accepted, now_ms)
            else:
                yield from self._buffer(messages.input_number, accepted)
        yield from self._fire_due()

    def due(self, watermark_ms: int, input_number: int = 0) -> Iterator[Output]:
        """Apply the watermark of a side; a lower watermark has no effect."""
        self.sides[input_number].watermark(watermark_ms)
        yield from self._fire_due()

    def _fire_due(self) -> Iterator[Output]:
        """Fire the windows that the lower watermark of both sides completed, then expire buffered messages."""
        yield from self._show_full()
        yield from self._fire_up_to(self._horizon())
        yield from self._forget()

    def next_due(self) -> int | None:
        """The first time at which a waiting message is shown."""
        return self._policy.next_timer_ms

    def fire(self, now_ms: int) -> Iterator[Output]:
        """Show the pairs that are due by the clock."""
        due = self._policy.due(EveryBy.CLOCK, now_ms)
        return self._show_waiting({timing: partial(_by_ends, is_due) for timing, is_due in due.items()})

    def shrink(self) -> Iterator[Output]:
        """Drop the oldest windows beyond the limits of size."""
        in_turn = [(side, axis) for side in self.sides for axis in side.in_turn()]
        while (fullest := self._over_retention(in_turn)) is not None:
            side, axis = fullest
            end = axis.oldest()[1]
            yield from self._show_waiting(self._may_match(end - axis.grid.size + axis.grid.step))
            yield from self._fire_up_to(end, PaneTiming.EARLY)
            messages, size = axis.drop(end)
            side.counter.release(messages, size, 1, over_limit=True)
            yield from self._forget()

    def end(self) -> Iterator[Output]:
        """Show the waiting messages, and clear the state."""
        yield from self._show_waiting(EVERYTHING)
        yield from self._fire_up_to(HIGHEST)
        for side in self.sides:
            for axis in side.axes.values():
                side.counter.release(axis.forget(HIGHEST)[0])
                axis.floor = HIGHEST

    def output_watermark_ms(self, watermark_ms: int) -> int:
        """Return the watermark of the pairs: late pairs are possible as long as a side accepts their messages.

        Pairs of rows have no event time, so no pair is behind a watermark.
        """
        if self._plan.is_rows:
            return watermark_ms
        windowed = [axes for side, axes in zip(self._plan.sides, self._axes(), strict=True) if not side.unbounded]
        floor = min(LOWEST if axis is None else axis.floor for axis in windowed)
        return min(watermark_ms, floor - self._plan.overlap)

    def message_count(self) -> int:
        """The number of messages that the sides hold."""
        return sum(side.totals[0] for side in self.sides)

    def state(self) -> dict[str, Any]:
        """The state of each axis by its place, and when waiting messages are due."""
        axes = {str(place): axis.state() for side in self.sides for place, axis in side.places()}
        return {"axes": axes, "due": self._policy.state(), **({} if self._full == LOWEST else {"full": self._full})}

    def of_input(self, number: int) -> BufferedAxes:
        """The messages of a side."""
        floor = LOWEST
        if self._plan.both_windowed and not self._plan.is_rows:
            floor = min(LOWEST if axis is None else axis.floor for axis in self._axes())
        return self.sides[number].listed(floor)

    def _all_axes(self) -> list[JoinWindowBuffer]:
        return [axis for side in self.sides for axis in side.axes.values()]

    def _axes(self) -> list[JoinWindowBuffer | None]:
        """Return the axis of event time of each side, None before its first message or watermark."""
        return [side.axes.get(0) for side in self.sides]

    def _add(self, number: int, accepted: AcceptedRows, now_ms: int | None) -> Iterator[Output]:
        """Join accepted messages that are due at once with buffered ones, then buffer the accepted messages."""
        axis, at = accepted.axis, accepted.messages.at
        expired = self._expired_before(number, axis)
        stays = axis.grid.slices(at) >= expired
        if not stays.all():
            yield from self._show_waiting(self._may_match(expired))  # a message that is not held must be joined now
        waits = {
            PaneTiming.EARLY: ~accepted.late & stays & self._policy.waits(PaneTiming.EARLY),
            PaneTiming.LATE: accepted.late & stays & self._policy.waits(PaneTiming.LATE),
        }
        at_once = accepted.filter(~(waits[PaneTiming.EARLY] | waits[PaneTiming.LATE]))
        new = [side.schema.empty_table() for side in self._plan.sides]
        new[number] = at_once.messages.rows
        late = [np.zeros(table.num_rows, bool) for table in new]
        late[number] = at_once.late
        yield from self._show(new, late)
        buffered = accepted.messages.filter(stays)
        self.sides[number].counter.release(len(at) - len(buffered))  # no future message can join the others
        if len(buffered):
            axis.buffer_messages(buffered, {kind: flags[stays] for kind, flags in waits.items()})
        for kind, flags in waits.items():
            self._policy.begin(kind, Now(now_ms, LOWEST), sorted_distinct(axis.grid.first_ends(at[flags])).tolist())

    def _buffer(self, number: int, accepted: AcceptedRows) -> Iterator[Output]:
        """Hold messages; a window that has emitted its row emits it again if the row changes."""
        axis = accepted.axis
        buffered = accepted.messages.filter(axis.grid.slices(accepted.messages.at) >= axis.expired_before)
        self.sides[number].counter.release(len(accepted.messages) - len(buffered))
        if not len(buffered):
            return
        axis.buffer_messages(buffered, {})
        offsets = self.sides[number].channels.offsets(buffered.rows)
        changed_ends = {
            end for start in sorted_distinct(axis.grid.slices(buffered.at)).tolist() for end in axis.grid.ends_of(start)
        }

        def is_new(sides: Sequence[SideMessages]) -> Flags:
            return axis.among(sides[number].rows, buffered.channels, offsets)

        for end in sorted(end for end in changed_ends if has_ended(end, self._full)):
            yield from self._window(end, PaneTiming.LATE, is_new, number)

    def _horizon(self) -> int:
        """Return the lower horizon of both sides."""
        horizons = [max((axis.horizon for axis in side.axes.values()), default=LOWEST) for side in self.sides]
        return min(horizons)

    def _fire_up_to(self, horizon: int, timing: PaneTiming = PaneTiming.ON_TIME) -> Iterator[Output]:
        """Show, up to this horizon of both sides, a row of each window (`keep`) or the unmatched messages."""
        if not self._plan.by_window or horizon <= self._full:
            return
        if self._plan.keep is Keep.ALL:
            for number in self._plan.outer:
                yield from self._emit_unmatched(number, horizon, timing)
        else:
            for end in self._ends(horizon):
                yield from self._window(end, timing)
        self._full = horizon

    def _ends(self, horizon: int) -> list[int]:
        """Return the ends up to this horizon of windows that may have rows."""
        axes = [self.sides[number].axes.get(0) for number in self._plan.outer or (LEFT,)]
        return sorted({end for axis in axes if axis is not None for end in axis.held_ends(self._full, horizon)})

    def _emit_unmatched(self, number: int, horizon: int, timing: PaneTiming) -> Iterator[Output]:
        """Yield the unmatched messages of a side whose last window ends by then."""
        axis, other = self.sides[number].axes.get(0), self.sides[1 - number]
        if axis is None:
            return
        ends = axis.grid.last_ends(axis.store.slices)
        rows = axis.store.read_slices(axis.store.slices[~has_ended(ends, self._full) & has_ended(ends, horizon)])
        own_messages = self.sides[number].side_messages(rows, np.zeros(rows.num_rows, bool))
        other_rows = other.visible(np.sort(own_messages.at))
        other_messages = other.side_messages(other_rows, np.zeros(other_rows.num_rows, bool))
        sides = (own_messages, other_messages) if number == LEFT else (other_messages, own_messages)
        unmatched = np.setdiff1d(np.arange(rows.num_rows), matches(self._plan, *sides).matched_places(number))
        yield from self._give_alone(number, own_messages, unmatched, timing)

    def _give_alone(self, number: int, messages: SideMessages, at: Ints, timing: PaneTiming) -> Iterator[Output]:
        if len(at):
            yield unmatched_output(self._plan, number, messages, at, timing=timing)

    def _window(
        self,
        end: int,
        timing: PaneTiming,
        is_new: Callable[[Sequence[SideMessages]], Flags] | None = None,
        number: int = LEFT,
    ) -> Iterator[Output]:
        """Yield the rows of a completely held window. is_new: the messages of a side of which a row must have one."""
        axes = self._axes()
        start = end - self._plan.grid().size
        if any(axis is None or start < axis.expired_before for axis in axes):
            return
        both = []
        for side, axis in zip(self.sides, axes, strict=True):
            rows = axis.store.read(start, end) if axis is not None else None
            both.append(side.side_messages(rows, np.zeros(0 if rows is None else rows.num_rows, bool)))
        left, right = both
        pairs = one_pair_per_key(self._plan, left, right)
        if is_new is not None:
            has_new = np.append(is_new(both), False)[pairs[number]]  # -1 is none
            pairs = pairs[LEFT][has_new], pairs[RIGHT][has_new]
        if len(pairs[LEFT]):
            yield window_output(self._plan, left, right, pairs, end=end, timing=timing)

    def _show_full(self) -> Iterator[Output]:
        """Show the waiting early messages of windows that have become full."""
        if self._plan.early_every_ms is not None and any(axis.fills() for axis in self._all_axes()):
            yield from self._show_waiting(FULL)

    def _show_waiting(self, which: Mapping[PaneTiming, Waiting]) -> Iterator[Output]:
        """Show waiting messages. which: for each kind, the filter of the messages to show."""
        kinds = [kind for kind in which if any(axis.waits(kind) for axis in self._all_axes())]
        if not kinds:
            return
        new, late = [], []
        for side in self.sides:
            tables = [side.waiting(kind, which[kind]) for kind in kinds]
            new.append(pa.concat_tables(tables))
            flags = [np.full(one.num_rows, kind is PaneTiming.LATE) for kind, one in zip(kinds, tables, strict=True)]
            late.append(np.concatenate(flags))
        yield from self._show(new, late)
        for kind in kinds:
            left = [np.empty(0, np.int64)]
            for axis in self._all_axes():
                ends = axis.waiting_for(kind)
                is_shown = which[kind](axis, ends)
                axis.clear_waiting(kind, is_shown)
                left.append(ends[~is_shown])
            self._policy.left(kind, np.concatenate(left).tolist())

    def _show(self, new: Sequence[pa.Table], late: Sequence[Flags]) -> Iterator[Output]:
        """Join new messages of both sides with each other, and with held messages that were shown."""
        both, counts = [], [table.num_rows for table in new]
        if not any(counts):
            return
        for number, side in enumerate(self.sides):
            other = 1 - number
            reach = (
                np.sort(self.sides[other].side_messages(new[other], late[other]).at)
                if self._plan.both_windowed
                else None
            )
            visible = side.visible(reach) if counts[other] else new[number].slice(0, 0)
            rows = pa.concat_tables([new[number], visible])
            both.append(side.side_messages(rows, np.append(late[number], np.zeros(visible.num_rows, bool))))
        left, right = both
        buffered = left.part(counts[LEFT])
        pairs = (
            matches(self._plan, left.part(0, counts[LEFT]), right),
            matches(self._plan, buffered, right.part(0, counts[RIGHT]), left_from=counts[LEFT]),
        )
        yield from pair_outputs(self._plan, left, right, pairs, self._logs.limits.piece_rows)
        for number in self._plan.outer:  # an unmatched message whose windows were all shown is emitted at once
            matched_places = np.concatenate([one.matched_places(number) for one in pairs])
            messages, places = both[number], np.setdiff1d(np.arange(counts[number]), matched_places)
            is_over = has_ended(self._plan.grid().last_ends(messages.at[places]), self._full)
            yield from self._give_alone(number, messages, places[is_over], PaneTiming.LATE)

    def _expired_before(self, number: int, axis: JoinWindowBuffer) -> int:
        """Return the first slice of an axis that is still needed."""
        if not self._plan.both_windowed or self._plan.is_rows:
            return max(axis.expired_before, axis.outlived())
        floor = max((one.floor for one in self.sides[1 - number].axes.values()), default=LOWEST)
        if self._plan.by_window:
            floor = min(floor, self._full)
        return max(axis.expired_before, axis.out_of_reach(floor))

    def _may_match(self, before: int) -> Mapping[PaneTiming, Waiting]:
        """Return which waiting messages could join a message before this place: with rows and unbounded sides, all."""
        if not self._plan.both_windowed or self._plan.is_rows:
            return EVERYTHING
        return reaching_back(self._plan.grid().size, before)

    def _forget(self) -> Iterator[Output]:
        """Drop the slices that are not needed."""
        leaving = [
            (side, axis, before)
            for number, side in enumerate(self.sides)
            for axis in side.axes.values()
            if (before := self._expired_before(number, axis)) > axis.expired_before
        ]
        some = [before for _, axis, before in leaving if len(axis.store.slices) and axis.store.slices[0] < before]
        if some:
            yield from self._show_waiting(self._may_match(max(some)))
        for side, axis, before in leaving:
            side.counter.release(axis.forget(before)[0])

    def _over_retention(self, in_turn: Sequence[SideAxis]) -> SideAxis | None:
        """Return the axis that must drop a window: with too many windows, else the oldest (for rows, the fullest).

        The first of equal axes has its turn.
        """
        limits = self._plan.retention
        totals = [side.totals for side in self.sides]
        too_much = (
            limits.max_messages is not None and sum(messages for messages, _ in totals) > limits.max_messages
        ) or (limits.max_bytes is not None and sum(size for _, size in totals) > limits.max_bytes)
        axes = [(side, axis) for side, axis in in_turn if len(axis.store.slices)]
        for side, axis in axes:
            if limits.max_windows is not None and axis.oldest()[0] > limits.max_windows:
                return side, axis
        if not (too_much and axes):
            return None
        if self._plan.is_rows:
            return max(axes, key=lambda one: int(one[1].store.index.rows.sum()))
        return min(axes, key=lambda one: one[1].oldest()[1])


def _by_ends(is_due: WindowFilter, _axis: JoinWindowBuffer, ends: Ints) -> Flags:
    """Return which messages are due, by the ends of their first windows."""
    return is_due(ends)
