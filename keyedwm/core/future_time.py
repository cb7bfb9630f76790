"""Event times too far ahead of the clock: the options `maxEventTimeAhead` and `onFutureTime` as values.

Rule: one event of the year 3000 must not move a watermark there, as every later event would be late. What is too far
ahead is judged by the append time that a broker gave the record, else by the clock of the batch's planning, which
stands in the offset: so a replay judges alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keyedwm.core.errors import OptionError

_MOST_MS = 2**62  # any event time less this fits into 64 bits


class OnFuture(Enum):
    """The fate of a row with such a time; each is counted."""

    IGNORE = "ignore"  # the row is as it is, its time does not move the watermark
    NULL = "null"  # the row has no event time
    FAIL = "fail"  # the query ends


@dataclass(frozen=True, slots=True)
class FutureTime:
    """How far ahead an event time may be (ms, inclusive), and what becomes of the rows beyond."""

    ahead_ms: int
    on: OnFuture = OnFuture.IGNORE

    def __post_init__(self) -> None:
        if not 0 <= self.ahead_ms <= _MOST_MS:
            raise OptionError(f"maxEventTimeAhead is {self.ahead_ms} ms, it must be from 0 to {_MOST_MS} ms")
