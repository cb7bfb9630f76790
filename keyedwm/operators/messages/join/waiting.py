"""Which messages that wait to be joined are meant: all, those of full windows, or those that a leaving one may meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.operators.messages.join.join_timeline import JoinTimeline
from keyedwm.operators.panes import Timing

# Which messages of an axis are meant, by the ends of the first windows that hold them.
Waiting: TypeAlias = Callable[[JoinTimeline, Ints], Flags]


def all_of_them(_axis: JoinTimeline, ends: Ints) -> Flags:
    """Every message is meant."""
    return np.ones(len(ends), np.bool_)


def of_full_windows(axis: JoinTimeline, ends: Ints) -> Flags:
    """The messages of windows that are full on their side are meant."""
    return ends <= axis.full


def reaching_back(size: int, before: int) -> Mapping[Timing, Waiting]:
    """Messages of which a window begins before this place, so that they could pair with a message before it.

    size: of the windows, which are of time and the same on both sides.
    """

    def meant(_axis: JoinTimeline, ends: Ints) -> Flags:
        return ends - size < before

    return {Timing.EARLY: meant, Timing.LATE: meant}


EVERYTHING: Mapping[Timing, Waiting] = {Timing.EARLY: all_of_them, Timing.LATE: all_of_them}
FULL: Mapping[Timing, Waiting] = {Timing.EARLY: of_full_windows}
