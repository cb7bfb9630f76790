"""Windows by the clock of a time zone: hours, days, weeks and months, as long as the clock makes them.

Rule: a frame begins when the clock of the zone first shows its beginning, or is put beyond it. If a clock that is put
back repeats whole frames, each of these frames exists twice: the day of 25 hours has 25 frames of an hour. Otherwise a
frame gets longer: the frame of two hours with the change has three hours. Frames are numbered one after the other, and
0 holds the epoch.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from keyedwm.arrow.columns import Ints
from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest, span_text

DAY_MS = 86_400_000
# Rules of summer time are known for these years; beyond them the first or the last offset holds.
_FIRST_YEAR, _LAST_YEAR = 1900, 2200
_MONTH_MS = 31 * DAY_MS  # of months beyond the table

Rules = tuple[tuple[int, int], ...]  # pairs: from this moment on (ms) the clock is ahead of UTC by this offset (ms)


@lru_cache(maxsize=16)
def zone_rules(zone: str) -> Rules:
    """Return the rules of a time zone, as this machine's data has them; raise OptionError for one that it lacks."""
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = available_timezones()
        hint = nearest(zone, known)
        advice = f"did you mean {hint!r}?" if hint else "a name of the IANA data such as 'Europe/Berlin' is expected"
        if not known:
            advice = "this machine has no time zone data: pip install tzdata"
        raise OptionError(f"the time zone {zone!r} is unknown: {advice}") from error

    def offset(moment: datetime) -> timedelta | None:
        return info.utcoffset(info.fromutc(moment))  # of UTC's date and time, under the name of the zone

    low, last = (datetime(year, 1, 1, tzinfo=info) for year in (_FIRST_YEAR, _LAST_YEAR))
    day, second = timedelta(days=1), timedelta(seconds=1)
    rules = [(low, offset(low))]
    while low < last:  # no clock is changed and changed back within a day
        high = following = low + day
        if (ahead := offset(high)) is rules[-1][1] or ahead == rules[-1][1]:
            low = following
            continue
        while high - low > second:
            middle = low + (high - low) // second // 2 * second
            low, high = (middle, high) if offset(middle) == rules[-1][1] else (low, middle)
        rules.append((high, offset(high)))
        low = following
    unit = timedelta(milliseconds=1)
    epoch = datetime(1970, 1, 1, tzinfo=info)
    return tuple(((moment - epoch) // unit, (ahead or timedelta()) // unit) for moment, ahead in rules)


@dataclass(frozen=True)
class ZoneFrames:
    """Frames of `step_ms` on a zone's clock, or of `months` if not 0; offset_ms: how much later they begin.

    rules: the zone's rules; they are part of the frames, so that all workers have the same rules.
    """

    rules: Rules
    step_ms: int
    months: int
    offset_ms: int

    def numbers(self, times: Ints) -> Ints:
        """Return the frame of each time."""
        starts, steps, firsts, counts = self._arrays
        run = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
        return firsts[run] + np.minimum((times - starts[run]) // steps[run], counts[run] - 1)

    def starts(self, numbers: Ints) -> Ints:
        """Return when frames begin."""
        starts, steps, firsts, _ = self._arrays
        run = np.maximum(np.searchsorted(firsts, numbers, side="right") - 1, 0)
        return starts[run] + (numbers - firsts[run]) * steps[run]

    def number(self, time_ms: int) -> int:
        """Return the frame of a time of any size."""
        runs, firsts = self._runs
        at = max(0, bisect_right(runs, (time_ms, 1 << 63)) - 1)
        start, step, count = runs[at]
        return firsts[at] + min((time_ms - start) // step, count - 1)

    def start(self, number: int) -> int:
        """Return when a frame begins."""
        runs, firsts = self._runs
        at = max(0, bisect_right(firsts, number) - 1)
        start, step, _ = runs[at]
        return start + (number - firsts[at]) * step

    @cached_property
    def _runs(self) -> tuple[list[tuple[int, int, int]], list[int]]:
        """Runs of frames of equal length, as start, length and count, and the number of the first frame of each."""
        runs = list(self._find_runs())
        start, step, _ = runs[-1]
        runs[-1] = (start, step, 1 << 62)
        firsts = [0]
        for _, _, count in runs[:-1]:
            firsts.append(firsts[-1] + count)
        at = max(0, bisect_right(runs, (0, 1 << 63)) - 1)
        epoch = firsts[at] + min(-runs[at][0] // runs[at][1], runs[at][2] - 1)
        return runs, [first - epoch for first in firsts]

    @cached_property
    def _arrays(self) -> tuple[Ints, Ints, Ints, Ints]:
        runs, firsts = self._runs
        starts, steps, counts = (np.array(column, np.int64) for column in zip(*runs, strict=True))
        return starts, steps, np.array(firsts, np.int64), counts

    def _find_runs(self) -> Iterator[tuple[int, int, int]]:
        step = self.step_ms
        ends = [*(ms for ms, _ in self.rules[1:]), _ms_of(_LAST_YEAR, 1)]
        clock_high, before = -(1 << 62), 0  # the highest time that the clock has shown, or begins to show again
        for number, ((begin, ahead), end) in enumerate(zip(self.rules, ends, strict=True)):
            low = begin + ahead
            if not number:
                low -= max(step, self.months * _MONTH_MS)
            elif ahead < before:
                clock_high = max(clock_high, begin + before)
                repeats = step and (before - ahead) % step == 0
                low = clock_high = low if repeats else max(low, clock_high)
            else:
                clock_high = max(clock_high, begin + before)
                low = max(low, clock_high)
                if any(point < low for point, _ in self._points(clock_high, low + 1)) and not self._begins(low):
                    yield begin, step or _MONTH_MS, 1
            for point, count in self._points(low, end + ahead):
                yield point - ahead, step or _MONTH_MS, count
            before = ahead

    def _begins(self, local_ms: int) -> bool:
        """Return whether a frame begins when the clock shows this."""
        return any(True for _ in self._points(local_ms, local_ms + 1))

    def _points(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield beginnings in `[low, high)` on the clock, each with the number of equal steps from it on."""
        if self.months:
            first, behind = (bisect_right(self._months, ms - 1) for ms in (low, high))
            yield from ((point, 1) for point in self._months[first:behind])
            return
        # Weeks begin on Monday, everything else counts from the first of January 1970, a Thursday.
        origin = self.offset_ms - (3 * DAY_MS if self.step_ms % (7 * DAY_MS) == 0 else 0)
        first = low + (origin - low) % self.step_ms
        if first < high:
            yield first, -(-(high - first) // self.step_ms)

    @cached_property
    def _months(self) -> Sequence[int]:
        """Return when the clock shows the beginnings of months, as if the clock were UTC's."""
        years = range(_FIRST_YEAR - 2 - self.months // 12, _LAST_YEAR + 2 + self.months // 12)
        return [
            _ms_of(year, month) + self.offset_ms
            for year in years
            for month in range(1, 13)
            if ((year - 1970) * 12 + month - 1) % self.months == 0
        ]


def _ms_of(year: int, month: int) -> int:
    return int(datetime(year, month, 1, tzinfo=timezone.utc).timestamp()) * 1_000


_MOST_MONTHS = 1_200
_SHORTEST_MONTH_MS = 28 * DAY_MS


@dataclass(frozen=True)
class ZonedWindow:
    """Windows of `frames_each` frames; a window begins with each frame.

    slide_ms: the distance of frames on the clock, whole days or a divisor of a day; or slide_months; the other is 0.
    rules: the zone's rules; by default from the data of the machine that makes the plan.
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
        """A short text that differs if the zone has other rules."""
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

    def names_of(self, frames: Ints) -> Ints:
        """Return the names of frames in the state: their starts, since new rules change the numbers of later frames."""
        return self.starts_of(frames)

    def frames_named(self, names: Ints) -> Ints:
        """Return the frames with these names."""
        return self.frames_of(names)


def refuse_zoned(window: object, who: str) -> None:
    """Raise OptionError for windows by a zone's clock, which cannot keep their messages."""
    if isinstance(window, ZonedWindow):
        raise OptionError(
            f"{who}: windows that keep their messages have one length, and those by the clock of {window.zone} (months "
            "are UTC's without a zone) have not: leave the zone out, or take aggregate without a store"
        )


# Each table is made once in a process, whatever travelled there.
_frames = lru_cache(maxsize=16)(ZoneFrames)
