"""When a window shows a pane: early, on time or late. One policy for windows over frames and sessions.

Theory. A window is open, then complete, then gone. Two ends of its operator decide which, and neither goes back:

    the window is   while                    rows that come to it     when the phase ends
    open            complete < end           may show an early pane   it shows its pane on time, once
    complete        kept < end <= complete   show a late pane         nothing
    gone            end <= kept              are expired              -

`complete` follows the watermark, and `kept` lies the allowed lateness behind it. Of each window three numbers are known
(`Shown`): how many panes it showed, how many rows the last one covered, and whether it was shown on time. A row is
unshown until a pane of its window covers it, so `unshown = rows - shown.rows` decides by number of rows, and
`unshown > 0` decides by time. Panes that accumulate leave the rows where they are and raise `shown.rows` to them.
Panes that discard take the rows away and leave 0. Nothing is unshown after a pane, so no pane is a repetition.

Where windows merge (sessions), the unshown rows of the whole are those of its parts, and its panes are counted on from
the highest count. A session that takes a new row counts as not shown on time: it is open again if it has grown beyond
`complete`, and shows a late pane if it has not.

Early panes by time keep a beat. It begins with the first batch, with or without rows, so that all buckets fire
together: a batch that only the clock makes must have the barriers of all. By event time it is that of the multiples of
the interval. At the beat each open window with unshown rows shows a pane, whatever batches brought the rows.

Stores use `PaneTimer` and `LateTimes` of this file alone; their phases stand in `messages/timeline.py`, where `horizon`
is `complete` and `floor` is `kept`. With `key_watermark` each key has a `complete` of its own: see
`frames/per_key_windows.py`.

The calls of a batch: `on_rows` and `on_merge` while rows are taken, `at_once` when they are held, `closed` when the
watermark has moved, `due` for early panes by time, `fired` for panes that leave, `state` when state is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.config.validation import MS, expect_member, number_or_none, settle
from keyedwm.core.errors import OptionError
from keyedwm.operators.kernels import add_by_group, highest_by_group
from keyedwm.operators.plan_checks import check_length


class Timing(Enum):
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
        settle(self, rows=number_or_none("the number of rows between early panes", self.rows))
        settle(self, every_ms=number_or_none("the interval between early panes", self.every_ms, MS))
        if self.rows is None and self.every_ms is None:
            raise OptionError("early panes need a number of rows, an interval, or both")
        for name, value in (("number of rows", self.rows), ("interval in ms", self.every_ms)):
            if value is not None and value < 1:
                raise OptionError(f"the {name} between early panes is {value}, it must be 1 or more")
        check_length("interval between early panes", self.every_ms or 0)
        if self.by is EveryBy.EVENT and self.every_ms is None:
            raise OptionError("early panes by event time need an interval, as in early(every='1 minute', by='event')")


@dataclass(frozen=True, slots=True)
class Shown:
    """Panes shown so far, window by window. rows: of the last pane; on_time: 1 once the window was shown on time."""

    panes: Ints
    rows: Ints
    on_time: Ints

    def take(self, places: Ints) -> Shown:
        """Return those at these places."""
        return Shown(self.panes[places], self.rows[places], self.on_time[places])


def all_shown(pieces: Sequence[Shown]) -> Shown:
    """Return those of some windows behind each other."""
    columns = zip(*((one.panes, one.rows, one.on_time) for one in pieces), strict=True)
    return Shown(*map(np.concatenate, columns))


class PaneTimer:
    """When panes by time are due next, None if they are not. state: as `state` gave it.

    keeps_beat: panes are due at multiples of the interval from the first news of all, else an interval after the first
    news since panes were shown.
    """

    def __init__(self, every_ms: int | None, *, keeps_beat: bool, state: Sequence[int | None] = (None, None)) -> None:
        self._every_ms, self._keeps_beat = every_ms, keeps_beat
        self.due_ms, self._began_ms = state

    def begin(self, now_ms: int) -> None:
        """Called when there is news, which panes that are due already will show."""
        if self.due_ms is None and self._every_ms is not None:
            if self._began_ms is None or not self._keeps_beat:
                self._began_ms = now_ms
            self.due_ms = now_ms + self._every_ms - (now_ms - self._began_ms) % self._every_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether news is to be shown now."""
        return self.due_ms is not None and now_ms >= self.due_ms

    def end(self) -> None:
        """Called when all news was shown."""
        self.due_ms = None

    def state(self) -> list[int | None]:
        """Return what a later instance needs to know, ready for JSON."""
        return [self.due_ms, self._began_ms]


def pane_timer_of(early: Early | None, state: Sequence[int | None] | None = None) -> PaneTimer:
    """Return the beat of early panes that rest without news; by event time it is that of the interval's multiples."""
    if early is None:
        return PaneTimer(None, keeps_beat=True)
    return PaneTimer(early.every_ms, keeps_beat=True, state=state or (None, 0 if early.by_event else None))


class LateTimes:
    """When the late panes of each window are due: an interval from its first news, whatever other windows have.

    every_ms: None if nothing is due by time. state: as `state` gave it.
    """

    def __init__(self, every_ms: int | None, state: Iterable[Any] = ()) -> None:
        self._every_ms = every_ms
        self._due_ms: dict[int, int] = dict(state)

    @property
    def due_ms(self) -> int | None:
        """When something is due, None if no window has news."""
        return min(self._due_ms.values(), default=None)

    def begin(self, now_ms: int, ends: Iterable[int]) -> None:
        """Called when the windows with these ends have news."""
        if self._every_ms is not None:
            for end in ends:
                self._due_ms.setdefault(end, now_ms + self._every_ms)

    def due(self, now_ms: int) -> list[int]:
        """Return the ends of the windows whose news is to be shown now."""
        return [end for end, due_ms in self._due_ms.items() if due_ms <= now_ms]

    def keep(self, ends: Iterable[int]) -> None:
        """Called when the news of all windows but these was shown."""
        kept = set(ends)
        self._due_ms = {end: due_ms for end, due_ms in self._due_ms.items() if end in kept}

    def state(self) -> list[list[int]]:
        """Return what a later instance needs to know, ready for JSON."""
        return sorted(map(list, self._due_ms.items()))


class PanePolicy:
    """See the theory above. state: as `state` gave it."""

    def __init__(self, early: Early | None, lateness_ms: int, *, accumulating: bool, state: Mapping[str, Any]) -> None:
        self._early, self._lateness_ms = early, lateness_ms
        self.has_panes = early is not None or lateness_ms > 0
        self.accumulating = accumulating or not self.has_panes
        self.by_rows = early is not None and early.rows is not None
        self.by_time = early is not None and early.every_ms is not None
        every_ms, by_event = (None, False) if early is None else (early.every_ms, early.by_event)
        self._beat = PaneTimer(every_ms, keeps_beat=by_event, state=(state.get("due_ms"), 0 if by_event else None))

    @property
    def next_timer_ms(self) -> int | None:
        """When early panes by the clock are due."""
        return self._beat.due_ms if self._early is not None and self._early.by_clock else None

    def on_rows(self, now_ms: int | None) -> None:
        """Called when a batch brings rows, before they are held: the clock's beat begins with the first one."""
        if self._early is not None and self._early.by_clock and now_ms is not None:
            self._beat.begin(now_ms)

    def on_merge(self, parts: Shown, windows: Ints, has_new: Flags) -> Shown:
        """Called when windows become one. windows: the number of the one that each part is in, now or as a new one;
        has_new: which of them take new rows. Return what was shown of each.
        """
        count = len(has_new)
        on_time = highest_by_group(parts.on_time, windows, count)
        on_time[has_new] = 0
        return Shown(highest_by_group(parts.panes, windows, count), add_by_group(parts.rows, windows, count), on_time)

    def at_once(self, unshown: Ints, is_complete: Flags) -> tuple[Flags, Flags]:
        """Called when new rows of windows are held. Return which windows show a late pane, and which an early one."""
        if self._early is None or self._early.rows is None:
            return is_complete, np.zeros(len(unshown), bool)
        return is_complete, ~is_complete & (unshown >= self._early.rows)

    def closed(self, shown: Shown, is_complete: Flags) -> Flags:
        """Called when the watermark has moved. Return which windows show their pane on time now."""
        return is_complete & (shown.on_time == 0)

    def due(self, by: EveryBy, now_ms: int) -> bool:
        """Called when time of a kind has moved. Return whether open windows with unshown rows show an early pane."""
        if self._early is None or self._early.every_ms is None or self._early.by is not by:
            return False
        self._beat.begin(now_ms)
        if not self._beat.is_due(now_ms):
            return False
        self._beat.end()
        self._beat.begin(now_ms)
        return True

    def fired(self, shown: Shown, rows: Ints, timing: Timing) -> Shown:
        """Called when a pane of each of some windows leaves. rows: they hold; return what is shown of them then."""
        shown_rows = rows if self.accumulating else np.zeros(len(rows), np.int64)
        return Shown(shown.panes + 1, shown_rows, np.full(len(rows), int(timing is not Timing.EARLY)))

    def is_last(self, timing: Timing) -> bool:
        """Whether no pane of a window follows one of this timing."""
        return timing is Timing.EXPIRED or (timing is Timing.ON_TIME and not self._lateness_ms)

    def state(self) -> dict[str, Any]:
        """Called when the state is written. Return what a later instance needs to know, ready for JSON."""
        return {"due_ms": self._beat.due_ms}
