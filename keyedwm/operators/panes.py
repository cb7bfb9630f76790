"""When a window shows a pane: early, on time or late. One policy for windows over frames, sessions and kept messages.

Theory. A window is open, then complete, then gone. An open window may show early panes. A window shows its on-time pane
once, when it becomes complete. A complete window shows late panes. A row is unshown until a pane of its window reported
it. Only windows with unshown rows show early and late panes. So no pane is a repetition, and an idle query does not
spin. Early and late panes are emitted by one of three rules:

    at once      when rows came, in the same call
    by rows      when rows came, of the windows that have so many unshown ones
    by time      at a time of the wall clock, or of event time: the watermark, or what completes windows in its place

Early panes by time are emitted at the same times for all windows. Windows of kept messages show them at multiples of
the interval, counted from the first unshown row of all windows (a beat). Windows over frames show them an interval
after the last early panes; by event time, at multiples of the interval. Late panes by time are emitted an interval
after the first unshown row of a window. Sessions move, so all sessions share this interval.

A window's operator calls the policy with rows: `begin` returns whether they wait for a time, and `fire_threshold` how
many unshown rows fire a pane at once. With time the operator asks which windows are `due`, shows them, and reports the
windows with unshown rows that are `left`. Windows over frames know the numbers of their rows: see
`frames/frame_panes.py` for their further calls, and `messages/window_buffer.py` for the phases of windows of kept
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.config.validation import MS, expect_member, number_or_none, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.operators.plan_checks import check_length


class PaneTiming(Enum):
    """Why a pane was emitted."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    EXPIRED = "expired"  # late rows that no window accepts any more, shown by `late="emit"`


class EveryBy(Enum):
    """The time by which an interval between panes is measured."""

    CLOCK = "clock"  # wall-clock time
    EVENT = "event"  # event time: the watermark, or the highest event time if messages complete windows


@dataclass(frozen=True, slots=True)
class Early:
    """Panes before the watermark: after `rows` new rows of a window, after each interval with new rows, or both.

    by: whether `every_ms` is wall-clock time or event time.
    """

    rows: int | None = None
    every_ms: int | None = None
    by: EveryBy = EveryBy.CLOCK

    @property
    def by_clock(self) -> bool:
        """Whether panes are due by wall-clock time."""
        return self.every_ms is not None and self.by is EveryBy.CLOCK

    @property
    def by_event(self) -> bool:
        """Whether panes are due by event time: each time the watermark reaches a multiple of the interval."""
        return self.every_ms is not None and self.by is EveryBy.EVENT

    def __post_init__(self) -> None:
        expect_member("by", self.by, EveryBy)
        set_fields(self, rows=number_or_none("the number of rows between early panes", self.rows))
        set_fields(self, every_ms=number_or_none("the interval between early panes", self.every_ms, MS))
        if self.rows is None and self.every_ms is None:
            raise OptionError("early panes need a number of rows, an interval, or both")
        for name, value in (("number of rows", self.rows), ("interval in ms", self.every_ms)):
            if value is not None and value < 1:
                raise OptionError(f"the {name} between early panes is {value}, it must be 1 or more")
        check_length("interval between early panes", self.every_ms or 0)
        if self.by is EveryBy.EVENT and self.every_ms is None:
            raise OptionError("early panes by event time need an interval, as in early(every='1 minute', by='event')")


@dataclass(frozen=True, slots=True)
class Late:
    """Panes of complete windows: after `rows` late rows, an interval after the first, or at once if neither is set."""

    rows: int | None = None
    every_ms: int | None = None
    by: EveryBy = EveryBy.CLOCK


class Now(NamedTuple):
    """The present time: wall-clock time, if it is known, and event time."""

    clock_ms: int | None
    event_ms: int

    def of(self, by: EveryBy) -> int | None:
        """Return the time of this kind."""
        return self.clock_ms if by is EveryBy.CLOCK else self.event_ms


class PaneTimer:
    """The time at which panes of all windows are due next, None if no pane is. state: the result of `state`.

    keeps_beat: panes are due at multiples of the interval from the very first new row. Otherwise they are due an
    interval after the first new row since the last panes.
    """

    def __init__(self, every_ms: int | None, *, keeps_beat: bool, state: Sequence[int | None] = (None, None)) -> None:
        self.every_ms, self._keeps_beat = every_ms, keeps_beat
        self.due_ms, self._began_ms = state

    def begin(self, now_ms: int, _ends: Iterable[int] = ()) -> None:
        """Called when there are new rows; panes that are due already will show them."""
        if self.due_ms is None and self.every_ms is not None:
            if self._began_ms is None or not self._keeps_beat:
                self._began_ms = now_ms
            self.due_ms = now_ms + self.every_ms - (now_ms - self._began_ms) % self.every_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether new rows are to be shown now."""
        return self.due_ms is not None and now_ms >= self.due_ms

    def due(self, now_ms: int) -> WindowFilter | None:
        """Return which windows show their new rows now: all of them, or None."""
        return (lambda ends: np.ones(len(ends), np.bool_)) if self.is_due(now_ms) else None

    def keep(self, ends: Collection[int]) -> None:
        """Called when the new rows of all windows except these were shown."""
        if not len(ends):
            self.due_ms = None

    def state(self) -> list[Any]:
        """Return the state for a later instance, ready for JSON."""
        return [self.due_ms, self._began_ms]


class LateTimes:
    """The times at which late panes are due: for each window, an interval after its own first new row.

    every_ms: None if no pane is due by time. state: the result of `state`.
    """

    def __init__(self, every_ms: int | None, state: Iterable[Any] = ()) -> None:
        self.every_ms = every_ms
        self._due_ms: dict[int, int] = dict(state)

    @property
    def due_ms(self) -> int | None:
        """The time at which a pane is due, None if no window has new rows."""
        return min(self._due_ms.values(), default=None)

    def begin(self, now_ms: int, ends: Iterable[int]) -> None:
        """Called when the windows with these ends have new rows."""
        if self.every_ms is not None:
            for end in ends:
                self._due_ms.setdefault(end, now_ms + self.every_ms)

    def due(self, now_ms: int) -> WindowFilter | None:
        """Return which windows show their new rows now, None if no window does."""
        due = np.array([end for end, due_ms in self._due_ms.items() if due_ms <= now_ms], np.int64)
        return (lambda ends: np.isin(ends, due)) if len(due) else None

    def keep(self, ends: Collection[int]) -> None:
        """Called when the new rows of all windows except these were shown."""
        end_set = set(ends)
        self._due_ms = {end: due_ms for end, due_ms in self._due_ms.items() if end in end_set}

    def state(self) -> list[Any]:
        """Return the state for a later instance, ready for JSON."""
        return sorted(map(list, self._due_ms.items()))


# Selects windows by their ends.
WindowFilter = Callable[[Ints], Flags]


class PanePolicy:
    """See the theory above. state: the result of `state`. by_window: late panes by time are due window by window.

    keeps_beat: whether early panes by the clock are due at multiples of the interval from the very first new row.
    """

    def __init__(
        self, early: Early | None, late: Late | None, state: Mapping[str, Any], *, by_window: bool = False,
        keeps_beat: bool = True,
    ) -> None:  # fmt: skip
        late = late or Late()
        self._early, self.late = early, late
        self._by = {PaneTiming.LATE: late.by, PaneTiming.EARLY: EveryBy.CLOCK if early is None else early.by}
        by_event, every_ms = self._by[PaneTiming.EARLY] is EveryBy.EVENT, None if early is None else early.every_ms
        began = state.get(PaneTiming.EARLY.value) or (None, 0 if by_event else None)
        known = state.get(PaneTiming.LATE.value)
        self._times: dict[PaneTiming, PaneTimer | LateTimes] = {
            PaneTiming.LATE: LateTimes(late.every_ms, known or ())
            if by_window
            else PaneTimer(late.every_ms, keeps_beat=False, state=known or (None, None)),
            PaneTiming.EARLY: PaneTimer(every_ms, keeps_beat=by_event or keeps_beat, state=began),
        }

    def waits(self, timing: PaneTiming) -> bool:
        """Whether panes of a timing wait for a time."""
        return self._times[timing].every_ms is not None

    @property
    def next_timer_ms(self) -> int | None:
        """The time at which panes by the clock are due, None if nothing waits."""
        due = [one.due_ms for timing, one in self._times.items() if self._by[timing] is EveryBy.CLOCK]
        return min((at for at in due if at is not None), default=None)

    def begin(self, timing: PaneTiming, now: Now, ends: Collection[int]) -> bool:
        """Called when windows with these ends have new rows. Return whether these wait for a time, if time is known."""
        at = now.of(self._by[timing])
        if at is None or not self.waits(timing):
            return False
        if len(ends):
            self._times[timing].begin(at, ends)
        return True

    def fire_threshold(self, timing: PaneTiming, *, waits: bool) -> int | None:
        """Called when windows have new rows. waits: whether they wait for a time.

        Return the number of unshown rows with which a window shows a pane at once, None if it never does.
        """
        if timing is PaneTiming.EARLY:
            return None if self._early is None else self._early.rows
        return self.late.rows if self.late.rows is not None else None if waits else 0

    def due(self, by: EveryBy, now_ms: int) -> dict[PaneTiming, WindowFilter]:
        """Called when clock or event time has advanced. Return which windows show new rows, late windows first."""
        filters = {timing: times.due(now_ms) for timing, times in self._times.items() if self._by[timing] is by}
        return {timing: is_due for timing, is_due in filters.items() if is_due is not None}

    def left(self, timing: PaneTiming, ends: Collection[int]) -> None:
        """Called when new rows were shown: only the windows with these ends still have some."""
        self._times[timing].keep(ends)

    def state(self) -> dict[str, Any]:
        """Called when the state is written. Return the state for a later instance, ready for JSON."""
        return {timing.value: times.state() for timing, times in self._times.items() if self.waits(timing)}


class RepeatedTotals(Enum):
    """Why the rows of a result cannot be added up: which panes repeat the total of a window."""

    EARLY_OR_LATE = "panes"
    STORE = "store_panes"
    WHOLE = "whole_panes"

    @property
    def advice(self) -> str:
        """The remedy, for an error."""
        return _ADVICE[self]


_BY_HAND = "or take the last pane of each window and key from the column pane in a process(...)"
_ADVICE = {
    RepeatedTotals.EARLY_OR_LATE: (
        "give the first aggregate accumulating=False, so that each pane holds new rows only, or leave its early and "
        "lateness out"
    ),
    RepeatedTotals.STORE: (
        f"give the first aggregate accumulating=False, so that each pane holds new rows only, {_BY_HAND}"
    ),
    RepeatedTotals.WHOLE: (
        "they cannot hold only what is new: take the last row of each window and key in a process(...)"
    ),
}
