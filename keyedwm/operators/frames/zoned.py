"""Windows by the clock of a time zone: hours, days, weeks and months, as long as the clock makes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from keyedwm.arrow.columns import Ints
from keyedwm.core.errors import OptionError
from keyedwm.core.text import span_text
from keyedwm.operators.frames.zone_rules import DAY_MS, Rules, ZoneFrames, zone_rules

_MOST_MONTHS = 1_200
_SHORTEST_MONTH_MS = 28 * DAY_MS


@dataclass(frozen=True)
class ZonedWindow:
    """Windows of `frames_each` frames, one from each frame on.

    slide_ms: how far frames lie apart on the clock, whole days or a part of one; or slide_months, and the other is 0.
    rules: of the zone, its data where the plan is made if they are not given.
    """

    zone: str
    slide_ms: int
    slide_months: int = 0
    frames_each: int = 1
    offset_ms: int = 0
    rules: Rules = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if bool(self.slide_ms) == bool(self.slide_months) or self.slide_ms < 0 or self.frames_each < 1:
            raise OptionError(
                f"a window of {self.frames_each} times {self.slide_ms} ms or {self.slide_months} months: one "
                "of them is expected, above 0"
            )
        if not 0 <= self.slide_months * self.frames_each <= _MOST_MONTHS:
            raise OptionError(f"a window of more than {_MOST_MONTHS} months: take a shorter one")
        if self.slide_ms % DAY_MS and (self.slide_ms > DAY_MS or DAY_MS % self.slide_ms):
            raise OptionError(
                f"windows of a time zone every {span_text(self.slide_ms)}: whole days are expected, or a divisor of "
                "a day"
            )
        if self.slide_ms % DAY_MS and self.frames_each * self.slide_ms >= DAY_MS:
            raise OptionError(
                f"a window of {span_text(self.frames_each * self.slide_ms)} every {span_text(self.slide_ms)} of a time "
                "zone: days differ in length there, so take a slide of whole days, or a size below a day"
            )
        if not 0 <= self.offset_ms < (self.slide_ms or _SHORTEST_MONTH_MS):
            raise OptionError(
                f"the offset of a window is {self.offset_ms} ms, it must be 0 or more and below "
                f"{'28 days, as it is of months' if self.slide_months else 'the slide'}"
            )
        object.__setattr__(self, "rules", self.rules or zone_rules(self.zone))

    @property
    def rules_digest(self) -> str:
        """A short text that differs where a zone has other rules."""
        return hashlib.sha256(repr(self.rules).encode()).hexdigest()[:16]

    @cached_property
    def frames(self) -> ZoneFrames:
        """The frames on the clock of the zone."""
        return _frames(self.rules, self.slide_ms, self.slide_months, self.offset_ms)

    def frames_of(self, times: Ints) -> Ints:
        """Return the number of the frame of each time."""
        return self.frames.numbers(times)

    def starts_of(self, frames: Ints) -> Ints:
        """Return when frames begin."""
        return self.frames.starts(frames)

    def frame_of(self, time_ms: int) -> int:
        """Return the number of the frame of a time."""
        return self.frames.number(time_ms)

    def start_of(self, frame: int) -> int:
        """Return when a frame begins."""
        return self.frames.start(frame)

    def noted(self, frames: Ints) -> Ints:
        """Return what stands for frames in the state: their starts, since new rules number later ones anew."""
        return self.starts_of(frames)

    def read_noted(self, noted: Ints) -> Ints:
        """Return the frames that such numbers stand for."""
        return self.frames_of(noted)


def refuse_zoned(window: object, who: str) -> None:
    """Raise OptionError for windows by a zone's clock, where windows keep their messages."""
    if isinstance(window, ZonedWindow):
        raise OptionError(
            f"{who}: windows that keep their messages have one length, and those by the clock of {window.zone} (months "
            "are UTC's without a zone) have not: leave the zone out, or take aggregate without a store"
        )


# Each table is made once in a process, whatever travelled there.
_frames = lru_cache(maxsize=16)(ZoneFrames)
