"""Windows on an axis of whole numbers (event time in ms, or offsets), and the slices of their messages.

Rule: a window is a whole number of slices, for any step. Slices are cut at the starts and ends of windows, so each step
has one or two slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from keyedwm.arrow.columns import Flags, Ints

# Lower and higher than every place.
LOWEST = -(2**62)
HIGHEST = 2**62


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows `[start, start + size)` with a start at every `origin + n * step`; a step beyond the size leaves gaps.

    first: no window begins before it, and no place is before it; None without a first place.
    """

    size: int
    step: int
    origin: int = 0
    first: int | None = field(default=None, repr=False)  # the state's note has the text of the others

    def last_starts(self, at: Ints) -> Ints:
        """Return the start of the last window that begins at or before each place."""
        return at - (at - self.origin) % self.step

    def last_ends(self, at: Ints) -> Ints:
        """Return the end of the last window that begins at or before each place; a place at or after it is in a gap."""
        return self.last_starts(at) + self.size

    def in_a_gap(self, at: Ints) -> Flags:
        """Return which places no window holds."""
        return at >= self.last_ends(at)

    def slices(self, at: Ints) -> Ints:
        """Return the start of the slice of each place; each place is in a window."""
        starts, rest = self.last_starts(at), self.size % self.step
        if self.step > self.size or not rest:
            return starts
        return np.where(at >= starts + rest, starts + rest, starts)

    def ends_of(self, slice_start: int) -> range:
        """Return the ends of all windows that hold a slice, ascending."""
        last = slice_start - (slice_start - self.origin) % self.step + self.size
        first = last - (last - slice_start - 1) // self.step * self.step
        return range(int(self._from_first(first)), last + 1, self.step)

    def last_end_by(self, at: Ints | int) -> Ints:
        """Return the last end of a window at or before each place."""
        return np.asarray(at) - (np.asarray(at) - self.origin - self.size) % self.step

    def first_starts(self, at: Ints | int) -> Ints:
        """Return the start of the first window that ends behind each place, also of one before the first window."""
        return self.last_end_by(at) + self.step - self.size

    def first_ends(self, at: Ints) -> Ints:
        """Return the end of the first window that ends behind each place."""
        return self._from_first(self.last_end_by(at) + self.step)

    def held_ends(self, slices: Ints, above: int, by: int) -> tuple[Ints, Ints]:
        """Return the ends in `(above, by]` of windows that hold one of these slices, as spans (first, last).

        slices: their starts, ascending. The cost depends on the number of slices, not of ends.
        """
        lasts = self.last_ends(slices)
        firsts = self._from_first(lasts - (lasts - slices - 1) // self.step * self.step)
        highs = np.minimum(lasts, self.last_end_by(by))
        lows = np.maximum(firsts, self.last_end_by(above) + self.step)
        lows[1:] = np.maximum(lows[1:], highs[:-1] + self.step)  # ascending: each adds the ends after the last one
        some = lows <= highs
        return lows[some], highs[some]

    def _from_first(self, ends: Ints | int) -> Ints:
        """Return the ends, raised to the end of the first window."""
        return np.asarray(ends) if self.first is None else np.maximum(ends, self.first + self.size)
