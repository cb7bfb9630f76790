"""When messages that wait to be joined are due by the clock.

Rule: early ones keep to the beat that the first of all began. Late ones of a window wait an interval from the first of
them, whatever waits of other windows. Where nothing waits nothing is due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.messages.join.join_timeline import JoinTimeline
from keyedwm.operators.panes import LateTimes, PaneTimer, Timing

# Which messages of an axis are meant, by the ends of the first windows that hold them.
Meant: TypeAlias = Callable[[JoinTimeline, Ints], Flags]


def all_of_them(_axis: JoinTimeline, ends: Ints) -> Flags:
    """Every message is meant."""
    return np.ones(len(ends), np.bool_)


def of_full_windows(axis: JoinTimeline, ends: Ints) -> Flags:
    """The messages of windows that are full on their side are meant."""
    return ends <= axis.full


def reaching_back(size: int, before: int) -> Mapping[Timing, Meant]:
    """Messages of which a window begins before this place, so that they could pair with a message before it.

    size: of the windows, which are of time and the same on both sides.
    """

    def meant(_axis: JoinTimeline, ends: Ints) -> Flags:
        return ends - size < before

    return {Timing.EARLY: meant, Timing.LATE: meant}


EVERYTHING: Mapping[Timing, Meant] = {Timing.EARLY: all_of_them, Timing.LATE: all_of_them}
FULL: Mapping[Timing, Meant] = {Timing.EARLY: of_full_windows}


class WaitingTimes:
    """Timers of waiting messages: one beat for early ones, one timer for each window of late ones.

    state: as `state` gave it.
    """

    def __init__(self, early_every_ms: int | None, late_every_ms: int | None, state: Mapping[str, Any]) -> None:
        self._early = PaneTimer(early_every_ms, keeps_beat=True, state=state.get(Timing.EARLY.value, (None, None)))
        self._late = LateTimes(late_every_ms, state.get(Timing.LATE.value, ()))

    def state(self) -> dict[str, Any]:
        """Return what a later instance needs to know, ready for JSON."""
        return {Timing.EARLY.value: self._early.state(), Timing.LATE.value: self._late.state()}

    @property
    def next_ms(self) -> int | None:
        """When something is due, None if nothing waits."""
        return min((at for at in (self._early.due_ms, self._late.due_ms) if at is not None), default=None)

    def begin(self, kind: Timing, now_ms: int, ends: Ints) -> None:
        """Messages of these windows begin to wait."""
        if kind is Timing.LATE:
            self._late.begin(now_ms, np.unique(ends).tolist())
        else:
            self._early.begin(now_ms)

    def due(self, now_ms: int) -> dict[Timing, Meant]:
        """Return what is due."""
        late = np.array(self._late.due(now_ms), np.int64)
        return ({Timing.EARLY: all_of_them} if self._early.is_due(now_ms) else {}) | (
            {Timing.LATE: lambda _, ends: np.isin(ends, late)} if len(late) else {}
        )

    def left(self, kind: Timing, ends: Ints) -> None:
        """Keep the timers of windows that still have waiting messages: of these, and no others."""
        if kind is Timing.LATE:
            self._late.keep(ends.tolist())
        elif not len(ends):
            self._early.end()
