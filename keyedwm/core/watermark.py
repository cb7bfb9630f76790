"""The values of the algebra: watermark, idle marker, and a channel's status.

Rule: a watermark `W` promises that no later event of its channel and key has event time `< W`; an event at `W` is on
time. Idle and done are a status, never a magic watermark. All times are whole milliseconds in a signed 64-bit range.
"""

from __future__ import annotations

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
    """Nothing is to be expected for now; it has no key and counts for all of them (rule 3)."""


def check_key(key: int) -> None:
    """Refuse a watermark key that is not a signed byte."""
    if not MIN_KEY <= key <= MAX_KEY:
        raise InputError(f"a watermark key is {key}, it must be from {MIN_KEY} to {MAX_KEY}")


def check_time(time_ms: int) -> None:
    """Refuse a time that does not fit into 64 bits."""
    if not MIN_MS <= time_ms <= MAX_MS:
        raise InputError(f"a time is {time_ms} ms, it must fit into a signed 64-bit number")


def clamp_ms(time_ms: int) -> int:
    """The nearest time that fits into 64 bits."""
    return max(MIN_MS, min(MAX_MS, time_ms))
