"""Time bounds between the axes of two sides: every match obeys them, and so old rows may be forgotten.

Rule: axes are numbered, the left side's first. `least[a][b] = c` stands for "in every match, time b >= time a + c";
one bound follows from others: b >= a + c and d >= b + e give d >= a + c + e. So the table is closed over all axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from keyedwm.core.errors import OptionError
from keyedwm.operators.plan_checks import FARTHEST_MS

# Beyond every event time, and still far from the ends of 64 bits.
UNBOUNDED = 2**61


@dataclass(frozen=True, slots=True)
class Bound:
    """`low <= time of the right axis - time of the left axis <= high`, in ms; None without a bound.

    left, right: numbers of the axes within their sides, from 0.
    """

    left: int
    right: int
    low_ms: int | None
    high_ms: int | None

    def __post_init__(self) -> None:
        for ms in (self.low_ms, self.high_ms):
            if ms is not None and abs(ms) > FARTHEST_MS:
                raise OptionError(f"a time bound is {ms} ms, it must be within {FARTHEST_MS} ms (140,000 years)")
        if self.low_ms is not None and self.high_ms is not None and self.low_ms > self.high_ms:
            raise OptionError(f"the time bound from {self.low_ms} ms to {self.high_ms} ms is empty: exchange its ends")


@dataclass(frozen=True)
class TimeBounds:
    """All bounds of a join, closed. left, right: the names of the sides' axes."""

    left: Sequence[str]
    right: Sequence[str]
    user_bounds: Sequence[Bound]

    def __post_init__(self) -> None:
        if not any(ms is not None for row in self._across(to_left=True) for ms in row):
            raise OptionError(
                f"join: nothing bounds how far {_listed(self.right)} may be ahead of {_listed(self.left)}, so rows of "
                f"the left side could never be forgotten: give the upper bound of the difference"
            )
        if not any(ms is not None for row in self._across(to_left=False) for ms in row):
            raise OptionError(
                f"join: nothing bounds how far {_listed(self.right)} may be behind {_listed(self.left)}, so rows of "
                f"the right side could never be forgotten: give the lower bound of the difference"
            )
        if any((ms or 0) > 0 for ms in (self.least[axis][axis] for axis in range(len(self.least)))):
            raise OptionError("join: the time bounds contradict each other, no two rows can obey all of them")

    @cached_property
    def least(self) -> list[list[int | None]]:
        """The table of the rule, by axis and axis."""
        lefts = len(self.left)
        count = lefts + len(self.right)
        table: list[list[int | None]] = [[None] * count for _ in range(count)]
        for bound in self.user_bounds:
            a, b = bound.left, lefts + bound.right
            table[a][b] = _highest(table[a][b], bound.low_ms)
            table[b][a] = _highest(table[b][a], None if bound.high_ms is None else -bound.high_ms)
        for via in range(count):
            for a in range(count):
                for b in range(count):
                    one, two = table[a][via], table[via][b]
                    if one is not None and two is not None:
                        table[a][b] = _highest(table[a][b], one + two)
        return table

    @property
    def main(self) -> Bound:
        """The pair of axes for the look-up of rows: with the fewest open ends, then with the smallest width."""
        pairs = [self._pair(left, right) for left in range(len(self.left)) for right in range(len(self.right))]
        return min(pairs, key=_width)

    @property
    def others(self) -> list[Bound]:
        """The user's bounds that the look-up by the main pair does not check."""
        main = self.main
        return [bound for bound in self.user_bounds if (bound.left, bound.right) != (main.left, main.right)]

    def forgets(self, axis: int) -> dict[int, int]:
        """Return what a watermark T of this axis forgets: axis of the other side → c, for rows below T + c."""
        lefts = len(self.left)
        others = range(lefts, len(self.least)) if axis < lefts else range(lefts)
        return {other: ms for other in others if (ms := self.least[axis][other]) is not None}

    @property
    def limited(self) -> frozenset[int]:
        """The axes that some bound points at: only their watermarks are passed on."""
        return frozenset(other for axis in range(len(self.least)) for other in self.forgets(axis))

    def _pair(self, left: int, right: int) -> Bound:
        b = len(self.left) + right
        back = self.least[b][left]
        return Bound(left, right, self.least[left][b], None if back is None else -back)

    def _across(self, *, to_left: bool) -> list[list[int | None]]:
        lefts = len(self.left)
        if to_left:
            return [row[:lefts] for row in self.least[lefts:]]
        return [row[lefts:] for row in self.least[:lefts]]


def _highest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _width(bound: Bound) -> tuple[int, int, int, int]:
    ends = (bound.low_ms, bound.high_ms)
    missing = ends.count(None)
    width = 0 if bound.low_ms is None or bound.high_ms is None else bound.high_ms - bound.low_ms
    return missing, width, bound.left, bound.right


def _listed(names: Sequence[str]) -> str:
    return " or ".join(names)


class JoinHorizons:
    """The watermarks of all axes, and the horizons that follow from them, below which rows are forgotten."""

    def __init__(self, bounds: TimeBounds, received: Mapping[int, int]) -> None:
        self._bounds = bounds
        self.received = dict(received)

    def rise(self, axis: int, time_ms: int) -> bool:
        """Take a watermark; return whether it increased."""
        if axis in self.received and time_ms <= self.received[axis]:
            return False
        self.received[axis] = time_ms
        return True

    def forgotten_below(self, axis: int) -> int | None:
        """Return the forget limit: rows with a time of this axis below it match no future row."""
        limit_ms: int | None = None
        for other, time_ms in self.received.items():
            ms = self._bounds.forgets(other).get(axis)
            if ms is not None:
                limit_ms = _highest(limit_ms, time_ms + ms)
        return limit_ms

    @property
    def passed_on(self) -> dict[int, int]:
        """The output watermarks: for each axis the lower of its limit and its watermark."""
        limits = {axis: self.forgotten_below(axis) for axis in sorted(self.received)}
        return {axis: min(ms, self.received[axis]) for axis, ms in limits.items() if ms is not None}
