"""Windows that count a key's messages in a topic and partition, in order of offset: places, from 0 on for each key.

Rule: all follows from how many messages of the key came there: which windows are complete, and how many of the last
messages are held for those that are not. The first of these windows holds every message that is held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from keyedwm.arrow.columns import Flags, Ints


@dataclass(frozen=True, slots=True)
class KeyGrid:
    """Windows of `size` places, one at every multiple of `step`, also before the first place where they overlap.

    known_ahead: a window is complete with its last message, and not with the first one behind it.
    """

    size: int
    step: int
    known_ahead: bool

    def first_starts(self, counts: Ints) -> Ints:
        """Return where the first window that is not complete starts, after so many messages."""
        done = counts if self.known_ahead else np.maximum(counts - 1, 0)
        return ((done - self.size) // self.step + 1) * self.step

    def held(self, counts: Ints) -> Ints:
        """Return how many of the last messages are held."""
        return np.maximum(counts - np.maximum(self.first_starts(counts), 0), 0)

    def begun(self, counts: Ints) -> Ints:
        """Return how many windows hold a message and are not complete."""
        return np.maximum(-((self.first_starts(counts) - counts) // self.step), 0)

    def in_a_gap(self, places: Ints) -> Flags:
        """Return which places no window holds."""
        return places % self.step >= self.size

    def rows_between(self, first: Ints, starts: Ints) -> Ints:
        """Return how many messages that windows hold lie from the place `first` to these starts."""
        if self.step <= self.size:
            return np.maximum(starts, 0) - first
        return (starts - first) // self.step * self.size

    def forgotten(self, counts: Ints) -> Ints:
        """Drop the counts of keys whose next row behaves like a new key's: return 0 for them."""
        as_new = (self.held(counts) == 0) & (self.first_starts(counts) == counts)
        return np.where(as_new, 0, counts)
