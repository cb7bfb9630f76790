"""When messages that wait to be joined are due by the clock.

Rule: early ones keep to the beat that the first of all began. Late ones of a window wait an interval from the first of
them, whatever waits of other windows. Where nothing waits nothing is due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.messages.join.axis import JoinAxis
from keyedwm.operators.panes import Timing

# Which messages of an axis are meant, by the ends of the first windows that hold them.
Meant: TypeAlias = Callable[[JoinAxis, Ints], Flags]


def all_of_them(_axis: JoinAxis, ends: Ints) -> Flags:
    """Every message is meant."""
    return np.ones(len(ends), np.bool_)


def of_full_windows(axis: JoinAxis, ends: Ints) -> Flags:
    """The messages of windows that are full on their side are meant."""
    return ends <= axis.full


def reaching_back(size: int, before: int) -> Mapping[Timing, Meant]:
    """Messages that could meet one at a place before this: one of their windows begins before it.

    size: of the windows, which are of time and the same on both sides.
    """

    def meant(_axis: JoinAxis, ends: Ints) -> Flags:
        return ends - size < before

    return {Timing.EARLY: meant, Timing.LATE: meant}


EVERYTHING: Mapping[Timing, Meant] = {Timing.EARLY: all_of_them, Timing.LATE: all_of_them}
FULL: Mapping[Timing, Meant] = {Timing.EARLY: of_full_windows}


class WaitingTimes:
    """facts: as `facts` gave them; an earlier keyedwm knew one time of all late messages that wait on these axes."""

    def __init__(
        self, early_every_ms: int | None, late_every_ms: int | None, facts: Mapping[str, Any], axes: Sequence[JoinAxis]
    ) -> None:
        self._early_every_ms, self._late_every_ms = early_every_ms, late_every_ms
        self._early_ms, self._began_ms = facts.get(Timing.EARLY.value, (None, None))
        together_ms, _ = facts.get(Timing.LATE.value, (None, None))
        self._late_ms: dict[int, int] = dict(facts.get("windows", ()))  # by the window's end
        if together_ms is not None and not self._late_ms:
            for axis in axes:
                self._late_ms |= dict.fromkeys(axis.waiting_for(Timing.LATE).tolist(), together_ms)

    def facts(self) -> dict[str, Any]:
        """Return what a later instance needs to know, ready for JSON."""
        late_ms = min(self._late_ms.values(), default=None)
        told = {Timing.EARLY.value: [self._early_ms, self._began_ms], Timing.LATE.value: [late_ms, None]}
        return told | ({"windows": sorted(map(list, self._late_ms.items()))} if self._late_ms else {})

    @property
    def next_ms(self) -> int | None:
        """When something is due, None if nothing waits."""
        return min((at for at in (self._early_ms, *self._late_ms.values()) if at is not None), default=None)

    def begin(self, kind: Timing, now_ms: int, ends: Ints) -> None:
        """Messages of these windows begin to wait."""
        if kind is Timing.LATE and self._late_every_ms is not None:
            for end in np.unique(ends).tolist():
                self._late_ms.setdefault(end, now_ms + self._late_every_ms)
        elif kind is Timing.EARLY and self._early_every_ms is not None and self._early_ms is None:
            began_ms = now_ms if self._began_ms is None else self._began_ms
            self._early_ms = now_ms + self._early_every_ms - (now_ms - began_ms) % self._early_every_ms
            self._began_ms = began_ms

    def due(self, now_ms: int) -> dict[Timing, Meant]:
        """Return what is due."""
        late = np.array([end for end, due_ms in self._late_ms.items() if due_ms <= now_ms], np.int64)
        early = self._early_ms is not None and self._early_ms <= now_ms
        return ({Timing.EARLY: all_of_them} if early else {}) | (
            {Timing.LATE: lambda _, ends: np.isin(ends, late)} if len(late) else {}
        )

    def left(self, kind: Timing, ends: Ints) -> None:
        """Messages of these windows wait on, and no others."""
        if kind is Timing.LATE:
            kept = set(ends.tolist())
            self._late_ms = {end: due_ms for end, due_ms in self._late_ms.items() if end in kept}
        elif not len(ends):
            self._early_ms = None
