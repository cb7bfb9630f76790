"""The highest value that was known some time ago (rules 6 and 7).

Rule: inclusive, and never early. `known_at(t)` is the highest value noted at or before `t`, never one noted later. Only
the points that can still matter are kept, at most MOST_POINTS: up to so many the answer is exact. Of more, the point
between the nearest neighbours is dropped, so that an answer may be the value of the point before it: lower, as if that
value had become known a little later (by about two gaps, where MOST_POINTS gaps make up the time looked back).
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_POINTS = 64


class History:
    """Rising (clock, value) points; a clock that goes back is taken as standing still."""

    def __init__(self, points: Iterable[tuple[int, int]] = ()) -> None:
        self._points: list[tuple[int, int]] = [(at_ms, value_ms) for at_ms, value_ms in points]

    def note(self, now_ms: int, value_ms: int) -> None:
        """Take note that `value_ms` is known at `now_ms`; only a higher value adds a point."""
        if self._points:
            last_at_ms, last_value_ms = self._points[-1]
            if value_ms <= last_value_ms:
                return
            if now_ms <= last_at_ms:
                self._points[-1] = (last_at_ms, value_ms)
                return
        self._points.append((now_ms, value_ms))
        if len(self._points) > MOST_POINTS:
            at = [at_ms for at_ms, _ in self._points]
            del self._points[min(range(1, len(at) - 1), key=lambda i: at[i + 1] - at[i - 1])]

    def known_at(self, at_ms: int) -> int | None:
        """The highest value noted at or before `at_ms`; earlier points than that one are forgotten."""
        count = 0
        for point_at_ms, _ in self._points:
            if point_at_ms > at_ms:
                break
            count += 1
        if not count:
            return None
        del self._points[: count - 1]
        return self._points[0][1]

    def points(self) -> tuple[tuple[int, int], ...]:
        """The points, oldest first."""
        return tuple(self._points)
