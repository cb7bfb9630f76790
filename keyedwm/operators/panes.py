"""The panes of windows: why each one came, and which come before a window is complete."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keyedwm.config.validation import MS, expect_member, number_or_none, settle
from keyedwm.core.errors import OptionError
from keyedwm.operators.plan_checks import check_length


class Timing(Enum):
    """Why a pane came."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    EXPIRED = "expired"  # late rows that no window takes any more, shown by `late="emit"`


class EveryBy(Enum):
    """What an interval between panes is counted in."""

    CLOCK = "clock"  # wall-clock time
    EVENT = "event"  # event time: the watermark, or the highest event time where that completes windows


@dataclass(frozen=True, slots=True)
class Early:
    """Panes before the watermark: after so many new rows of a window, every so often if there is news, or both.

    by: whether `every_ms` is wall-clock time or event time.
    """

    rows: int | None = None
    every_ms: int | None = None
    by: EveryBy = EveryBy.CLOCK

    def __repr__(self) -> str:
        """As before there was `by`: the states of such plans name them by this text."""
        told = f"rows={self.rows!r}, every_ms={self.every_ms!r}"
        return f"Early({told})" if self.by is EveryBy.CLOCK else f"Early({told}, by={self.by.value!r})"

    @property
    def by_clock(self) -> bool:
        """Whether panes are due by wall-clock time."""
        return self.every_ms is not None and self.by is EveryBy.CLOCK

    @property
    def by_event(self) -> bool:
        """Whether panes are due by event time: whenever the watermark has come to a multiple of the interval."""
        return self.every_ms is not None and self.by is EveryBy.EVENT

    def next_ms(self, now_ms: int) -> int:
        """Return when panes are due next, by the clock so long after they were or, by event time, on the beat."""
        every_ms = self.every_ms or 0
        return now_ms + every_ms - (now_ms % every_ms if self.by_event else 0)

    def __post_init__(self) -> None:
        expect_member("by", self.by, EveryBy)
        settle(self, rows=number_or_none("the number of rows between early panes", self.rows))
        settle(self, every_ms=number_or_none("the interval between early panes", self.every_ms, MS))
        if self.rows is None and self.every_ms is None:
            raise OptionError("early panes need a number of rows, an interval, or both")
        for name, value in (("number of rows", self.rows), ("interval in ms", self.every_ms)):
            if value is not None and value < 1:
                raise OptionError(f"the {name} between early panes is {value}, it must be 1 or more")
        check_length("interval between early panes", self.every_ms or 0)
        if self.by is EveryBy.EVENT and self.every_ms is None:
            raise OptionError("early panes by event time need an interval, as in early(every='1 minute', by='event')")
