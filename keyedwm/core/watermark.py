"""The values of the algebra: watermark, idle marker, a channel's status, and the highest value some time ago.

Rule: a watermark `W` promises that no later event of its channel and key has event time `< W`; an event at `W` is on
time. Idle and done are a status, never a special watermark. All times are whole milliseconds in a signed 64-bit range.

A `History` (rules 6 and 7) is inclusive, and never early. `known_at(t)` is the highest value noted at or before `t`,
never one noted later. Only the points that can still matter are kept, at most MOST_POINTS: up to this number the answer
is exact. With more points, the one whose two neighbours are closest together is dropped. The answer may then be the
value of the point before it, which is lower: as if the dropped value had become known later, by about 2/MOST_POINTS of
the time looked back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from keyedwm.core.errors import InputError

MIN_MS = -(2**63)
MAX_MS = 2**63 - 1
MIN_KEY = -128
MAX_KEY = 127


class Status(Enum):
    """The status of a channel; the value is the stable code used in every encoding."""

    ACTIVE = 0
    IDLE = 1
    DONE = 2


class Guarantee(Enum):
    """How strict rules 1 and 12 are."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class Watermark:
    """No later event has event time below `time_ms` on the time axis `key` (a signed byte)."""

    key: int
    time_ms: int

    def __post_init__(self) -> None:
        check_key(self.key)
        check_time(self.time_ms)


@dataclass(frozen=True, slots=True)
class IdleMarker:
    """No event is expected for now; the marker has no key and counts for all keys (rule 3)."""


def check_key(key: int) -> None:
    """Raise InputError for a watermark key that is not a signed byte."""
    if not MIN_KEY <= key <= MAX_KEY:
        raise InputError(f"a watermark key is {key}, it must be from {MIN_KEY} to {MAX_KEY}")


def check_time(time_ms: int) -> None:
    """Raise InputError for a time that does not fit into 64 bits."""
    if not MIN_MS <= time_ms <= MAX_MS:
        raise InputError(f"a time is {time_ms} ms, it must fit into a signed 64-bit number")


def clamp_ms(time_ms: int) -> int:
    """The nearest time that fits into 64 bits."""
    return max(MIN_MS, min(MAX_MS, time_ms))


MOST_POINTS = 64


class History:
    """Rising (clock, value) points; a clock that goes back counts as unchanged."""

    def __init__(self, points: Iterable[tuple[int, int]] = ()) -> None:
        self._points: list[tuple[int, int]] = [(at_ms, value_ms) for at_ms, value_ms in points]

    def note(self, now_ms: int, value_ms: int) -> None:
        """Note that `value_ms` is known at `now_ms`; only a higher value adds a point."""
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
        """The highest value noted at or before `at_ms`; forget the points before that point."""
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
