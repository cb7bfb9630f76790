"""When a window shows a pane: early, on time or late. One policy for windows over frames, sessions and kept messages.

Theory. A window is open, then complete, then gone. An open one may show early panes, it shows its pane on time once,
and a complete one shows late panes. A row is unshown until a pane of its window reported it. Only windows with
unshown rows show early and late panes. So no pane is a repetition, and an idle query does not spin. Early and late
panes leave by one of three rules:

    at once      when rows came, in the same call
    by rows      when rows came, of the windows that have so many unshown ones
    by time      at a time of the wall clock, or of event time: the watermark, or what completes windows in its place

Early panes by time leave at the same times for all windows. Windows of kept messages show them at the multiples of the
interval from the first unshown row of all (a beat). Windows over frames show them an interval after the last ones, by
event time at its multiples. Late panes by time leave an interval after the first unshown row of a window. Sessions
move, so all their windows share this interval.

A window's operator calls the policy with rows: `begin` returns whether they wait for a time, and `fire_threshold` how
many unshown rows fire a pane at once. With time the operator asks which windows are `due`, shows them, and reports the
windows with unshown rows that are `left`. Windows over frames know the numbers of their rows: their further calls stand
in `frames/frame_panes.py`. The phases of windows of kept messages stand in `messages/window_buffer.py`.
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
    """Why a pane came."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    EXPIRED = "expired"  # late rows that no window takes any more, shown by `late="emit"`


class EveryBy(Enum):
    """The time by which an interval between panes is measured."""

    CLOCK = "clock"  # wall-clock time
    EVENT = "event"  # event time: the watermark, or the highest event time where that completes windows


@dataclass(frozen=True, slots=True)
class Early:
    """Panes before the watermark: after so many new rows of a window, every so often if there is news, or both.

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
        """Whether panes are due by event time: whenever the watermark has come to a multiple of the interval."""
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
    """Panes of complete windows: after so many late rows, so long after the first, or at once if neither is given."""

    rows: int | None = None
    every_ms: int | None = None
    by: EveryBy = EveryBy.CLOCK


class Now(NamedTuple):
    """Where time stands: wall-clock time, if it is known, and event time."""

    clock_ms: int | None
    event_ms: int

    def of(self, by: EveryBy) -> int | None:
        """Return one of them."""
        return self.clock_ms if by is EveryBy.CLOCK else self.event_ms


class PaneTimer:
    """The time at which panes of all windows are due next, None if they are not. state: as `state` gave it.

    keeps_beat: panes are due at multiples of the interval from the first news of all, else an interval after the first
    news since panes were shown.
    """

    def __init__(self, every_ms: int | None, *, keeps_beat: bool, state: Sequence[int | None] = (None, None)) -> None:
        self.every_ms, self._keeps_beat = every_ms, keeps_beat
        self.due_ms, self._began_ms = state

    def begin(self, now_ms: int, _ends: Iterable[int] = ()) -> None:
        """Called when there is news, which panes that are due already will show."""
        if self.due_ms is None and self.every_ms is not None:
            if self._began_ms is None or not self._keeps_beat:
                self._began_ms = now_ms
            self.due_ms = now_ms + self.every_ms - (now_ms - self._began_ms) % self.every_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether news is to be shown now."""
        return self.due_ms is not None and now_ms >= self.due_ms

    def due(self, now_ms: int) -> WindowFilter | None:
        """Return which windows show their news now: all of them, or None."""
        return (lambda ends: np.ones(len(ends), np.bool_)) if self.is_due(now_ms) else None

    def keep(self, ends: Collection[int]) -> None:
        """Called when the news of all windows but these was shown."""
        if not len(ends):
            self.due_ms = None

    def state(self) -> list[Any]:
        """Return the state for a later instance, ready for JSON."""
        return [self.due_ms, self._began_ms]


class LateTimes:
    """The times at which late panes of windows are due: an interval from a window's first news, whatever others have.

    every_ms: None if nothing is due by time. state: as `state` gave it.
    """

    def __init__(self, every_ms: int | None, state: Iterable[Any] = ()) -> None:
        self.every_ms = every_ms
        self._due_ms: dict[int, int] = dict(state)

    @property
    def due_ms(self) -> int | None:
        """The time at which something is due, None if no window has news."""
        return min(self._due_ms.values(), default=None)

    def begin(self, now_ms: int, ends: Iterable[int]) -> None:
        """Called when the windows with these ends have news."""
        if self.every_ms is not None:
            for end in ends:
                self._due_ms.setdefault(end, now_ms + self.every_ms)

    def due(self, now_ms: int) -> WindowFilter | None:
        """Return which windows show their news now, None if none does."""
        due = np.array([end for end, due_ms in self._due_ms.items() if due_ms <= now_ms], np.int64)
        return (lambda ends: np.isin(ends, due)) if len(due) else None

    def keep(self, ends: Collection[int]) -> None:
        """Called when the news of all windows but these was shown."""
        end_set = set(ends)
        self._due_ms = {end: due_ms for end, due_ms in self._due_ms.items() if end in end_set}

    def state(self) -> list[Any]:
        """Return the state for a later instance, ready for JSON."""
        return sorted(map(list, self._due_ms.items()))


# Which windows are meant, by their ends.
WindowFilter = Callable[[Ints], Flags]


class PanePolicy:
    """See the theory above. state: as `state` gave it. by_window: late panes by time are due window by window.

    keeps_beat: whether early panes by the clock keep the beat of the first news of all.
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
        """Called when windows with these ends have news. Return whether it waits for a time, if that is known."""
        at = now.of(self._by[timing])
        if at is None or not self.waits(timing):
            return False
        if len(ends):
            self._times[timing].begin(at, ends)
        return True

    def fire_threshold(self, timing: PaneTiming, *, waits: bool) -> int | None:
        """Called when windows have news; waits: for a time.

        Return with how many unshown rows a window shows a pane at once, None if it does with none.
        """
        if timing is PaneTiming.EARLY:
            return None if self._early is None else self._early.rows
        return self.late.rows if self.late.rows is not None else None if waits else 0

    def due(self, by: EveryBy, now_ms: int) -> dict[PaneTiming, WindowFilter]:
        """Called when time of a kind has moved. Return which windows show their news, late ones first."""
        filters = {timing: times.due(now_ms) for timing, times in self._times.items() if self._by[timing] is by}
        return {timing: is_due for timing, is_due in filters.items() if is_due is not None}

    def left(self, timing: PaneTiming, ends: Collection[int]) -> None:
        """Called when news was shown: it is left of the windows with these ends alone."""
        self._times[timing].keep(ends)

    def state(self) -> dict[str, Any]:
        """Called when the state is written. Return the state for a later instance, ready for JSON."""
        return {timing.value: times.state() for timing, times in self._times.items() if self.waits(timing)}


class AdditiveSetting(Enum):
    """The setting that makes results addable, by its word."""

    EARLY_OR_LATE = "panes"
    STORE = "store_panes"
    WHOLE = "whole_panes"

    @property
    def advice(self) -> str:
        """The remedy, for an error."""
        return _ADVICE[self]


_BY_HAND = "or take the last pane of each window and key from the column pane in a process(...)"
_ADVICE = {
    AdditiveSetting.EARLY_OR_LATE: (
        "give the first aggregate accumulating=False, so that each pane holds new rows only, or leave its early and "
        "lateness out"
    ),
    AdditiveSetting.STORE: (
        f"give the first aggregate accumulating=False, so that each pane holds new rows only, {_BY_HAND}"
    ),
    AdditiveSetting.WHOLE: (
        "they cannot hold only what is new: take the last row of each window and key in a process(...)"
    ),
}
