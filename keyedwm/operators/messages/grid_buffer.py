"""The messages of one axis in windows on a grid, for a store and for a side of a join.

Rule: two marks move along the axis, and neither goes back; each is `LOWEST` before it exists. The horizon completes
windows. The floor is the end of the last window that accepts no more messages: it follows the horizon at the distance
of the retention, and a limit of size can raise it further.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from keyedwm.arrow.columns import Flags, Ints
from keyedwm.core.lateness import has_ended
from keyedwm.operators.messages.grid import HIGHEST, LOWEST, Grid
from keyedwm.operators.messages.messages import MessageStore
from keyedwm.operators.messages.plan import Reason
from keyedwm.operators.messages.retention import Retention


class GridBuffer(ABC):
    """One axis: event time, or the offsets of a channel. state: the marks of an earlier instance, empty at first."""

    store: MessageStore

    def __init__(self, grid: Grid, retention: Retention, state: Mapping[str, Any]) -> None:
        self.grid, self._kept_for = grid, retention.time_ms
        marks = (state.get(name) for name in ("horizon", "floor"))
        self.horizon, self.floor = (LOWEST if mark is None else mark for mark in marks)

    @property
    def complete(self) -> int:
        """A listing shows the windows that end up to here as complete."""
        return self.horizon

    @property
    @abstractmethod
    def dropped_end(self) -> int:
        """Windows that end up to here have lost messages."""

    def floors(self, horizons: Ints) -> Ints:
        """Return the floor at each of these horizons."""
        if self._kept_for is None:
            return np.full(len(horizons), self.floor)
        floors = np.maximum(self.floor, self.grid.last_end_by(horizons - self._kept_for))
        return np.where(horizons > LOWEST, floors, self.floor)

    def reasons(self, at: Ints, horizons: Ints) -> dict[Reason, Flags]:
        """Return which messages no window accepts, by reason. horizons: the horizon for each message."""
        gap = self.grid.in_a_gap(at)
        expired = has_ended(self.grid.last_ends(at), self.floors(horizons))
        return {Reason.GAP: gap, Reason.RETENTION: expired & ~gap}

    def outlived(self) -> int:
        """Return the first slice of a window that accepts messages."""
        return LOWEST if self.floor == LOWEST else int(self.grid.first_starts(self.floor))

    def held_ends(self, above: int, by: int) -> list[int]:
        """Return the ends in `(above, by]` of windows that hold a message, ascending."""
        lows, highs = self.grid.held_ends(self.store.slices, above, by)
        spans = zip(lows.tolist(), highs.tolist(), strict=True)
        return [end for low, high in spans for end in range(low, high + 1, self.grid.step)]

    def oldest_held(self, above: int) -> tuple[int, int]:
        """Return how many windows with an end above this one hold a message, and the first of their ends."""
        lows, highs = self.grid.held_ends(self.store.slices, above, HIGHEST)
        return int(((highs - lows) // self.grid.step + 1).sum()), int(lows[0]) if len(lows) else HIGHEST

    def oldest(self) -> tuple[int, int]:
        """Return how many windows hold all their messages, and the first of their ends."""
        return self.oldest_held(self.dropped_end)
