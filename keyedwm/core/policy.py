"""How one channel and key turn event times (and a clock given as an argument) into a watermark (rule 7).

Rule: a policy is frozen configuration; `build(resume_from)` makes the object that holds state. Its snapshot is a tuple
of integers. Observing the highest event time of a run at one clock reading leaves the same state as observing every
event of the run. So a whole batch runs at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.core.watermark import MAX_MS, MIN_MS, History, clamp_ms


class PolicyRun(Protocol):
    """A policy with its state."""

    def observe(self, event_ms: int, now_ms: int, /) -> None:
        """Process one event time at a clock reading."""

    def current(self, now_ms: int, /) -> int | None:
        """The watermark at a clock reading, before any cap; None if there is none yet."""

    def snapshot(self) -> tuple[int, ...]:
        """Everything the next answer depends on."""


class Policy(Protocol):
    """The configuration of a policy."""

    @property
    def event_lag_ms(self) -> int | None:
        """How far the watermark is behind an event when the event is observed; None if events do not move it."""

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """Return the policy at its start, or as of a snapshot."""

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """Return the state after two consecutive ranges of rows, each run alone (`then` from the start)."""


def _check_span(name: str, span_ms: int) -> None:
    if not 0 <= span_ms <= MAX_MS:
        raise OptionError(f"{name} is {span_ms} ms, it must be 0 or more and fit into 64 bits")


def _check_state(policy: str, state: Sequence[int], fits: bool) -> None:
    if not fits:
        raise FormatError(f"the saved state of policy {policy} is {list(state)}, which it never writes")


class _Run:
    """The state that most policies have: one watermark, which the highest event time less a lag raises."""

    def __init__(self, policy: str, lag_ms: int, state: Sequence[int], *, fits: bool) -> None:
        _check_state(policy, state, fits=fits)
        self._lag_ms = lag_ms
        self._watermark_ms = state[0] if state else None

    def observe(self, event_ms: int, _now_ms: int, /) -> None:
        if event_ms >= MIN_MS + self._lag_ms:  # an event whose difference does not fit in 64 bits is ignored
            self._raise(event_ms - self._lag_ms)

    def current(self, _now_ms: int, /) -> int | None:
        return self._watermark_ms

    def snapshot(self) -> tuple[int, ...]:
        return () if self._watermark_ms is None else (self._watermark_ms, *self._more())

    def _more(self) -> tuple[int, ...]:
        """The numbers after the watermark in the state."""
        return ()

    def _raise(self, watermark_ms: int | None) -> None:
        if watermark_ms is not None and (self._watermark_ms is None or watermark_ms > self._watermark_ms):
            self._watermark_ms = watermark_ms


class _NoWatermarksRun:
    """Without any state."""

    def observe(self, _event_ms: int, _now_ms: int, /) -> None:
        pass

    def current(self, _now_ms: int, /) -> int | None:
        return None

    def snapshot(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class FixedLag:
    """The highest event time less a lag."""

    lag_ms: int

    def __post_init__(self) -> None:
        _check_span("watermarkLag", self.lag_ms)

    @property
    def event_lag_ms(self) -> int | None:
        """The lag."""
        return self.lag_ms

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """State: (watermark,) or ()."""
        return _Run("fixedLag", self.lag_ms, resume_from or (), fits=len(resume_from or ()) <= 1)

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """The higher watermark."""
        return max(tuple(first), tuple(then))


@dataclass(frozen=True, slots=True)
class LagAndDelay:
    """The highest event time less a lag, or the highest event time known a delay ago, whichever is higher."""

    lag_ms: int
    delay_ms: int

    def __post_init__(self) -> None:
        _check_span("watermarkLag", self.lag_ms)
        _check_span("watermarkDelay", self.delay_ms)

    @property
    def event_lag_ms(self) -> int:
        """The lag; without a delay an event is known at once."""
        return self.lag_ms if self.delay_ms else 0

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """State: (watermark, clock, top, clock, top, ...), oldest first, or ()."""
        return _LagAndDelayRun(self, resume_from or ())

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """The higher watermark, and one history."""
        if not first or not then:
            return tuple(first or then)
        history = History(zip(first[1::2], first[2::2], strict=True))
        for at_ms, top_ms in zip(then[1::2], then[2::2], strict=True):
            history.note(at_ms, top_ms)
        return (max(first[0], then[0]), *(number for point in history.points() for number in point))


class _LagAndDelayRun(_Run):
    def __init__(self, config: LagAndDelay, state: Sequence[int]) -> None:
        super().__init__("lagAndDelay", config.event_lag_ms, state, fits=not state or len(state) % 2 == 1)
        self._delay_ms = config.delay_ms
        self._history = History(zip(state[1::2], state[2::2], strict=True))

    def observe(self, event_ms: int, now_ms: int, /) -> None:
        super().observe(event_ms, now_ms)
        if event_ms >= MIN_MS + self._lag_ms:
            self._history.note(now_ms, event_ms)

    def current(self, now_ms: int, /) -> int | None:
        self._raise(self._history.known_at(now_ms - self._delay_ms))
        return self._watermark_ms

    def _more(self) -> tuple[int, ...]:
        return tuple(number for point in self._history.points() for number in point)


@dataclass(frozen=True, slots=True)
class LagAndLull:
    """The highest event time less a lag; after a lull without events it rises with the clock."""

    lag_ms: int
    lull_ms: int

    def __post_init__(self) -> None:
        _check_span("watermarkLag", self.lag_ms)
        _check_span("watermarkLull", self.lull_ms)

    @property
    def event_lag_ms(self) -> int | None:
        """The lag."""
        return self.lag_ms

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """State: (watermark, clock from which it grows) or ()."""
        return _LagAndLullRun(self, resume_from or ())

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """The higher watermark, which rises a lull after the last event."""
        return (max(first[0], then[0]), then[1]) if first and then else tuple(first or then)


class _LagAndLullRun(_Run):
    def __init__(self, config: LagAndLull, state: Sequence[int]) -> None:
        super().__init__("lagAndLull", config.lag_ms, state, fits=len(state) in (0, 2))
        self._lull_ms = config.lull_ms
        self._grows_from_ms = state[1] if state else 0

    def observe(self, event_ms: int, now_ms: int, /) -> None:
        super().observe(event_ms, now_ms)
        self._grows_from_ms = now_ms + self._lull_ms

    def current(self, now_ms: int, /) -> int | None:
        if self._watermark_ms is not None and now_ms > self._grows_from_ms:
            self._watermark_ms = clamp_ms(self._watermark_ms + now_ms - self._grows_from_ms)
            self._grows_from_ms = now_ms
        return self._watermark_ms

    def _more(self) -> tuple[int, ...]:
        return (self._grows_from_ms,)


@dataclass(frozen=True, slots=True)
class TimestampAndWallClockLag:
    """The highest event time less a lag, or the wall clock less another lag, whichever is higher."""

    lag_ms: int
    wall_clock_lag_ms: int

    def __post_init__(self) -> None:
        _check_span("watermarkLag", self.lag_ms)
        _check_span("wallClockLag", self.wall_clock_lag_ms)

    @property
    def event_lag_ms(self) -> int | None:
        """The lag behind events."""
        return self.lag_ms

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """State: (watermark,) or ()."""
        return _TimestampAndWallClockRun(self, resume_from or ())

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """The higher watermark."""
        return max(tuple(first), tuple(then))


class _TimestampAndWallClockRun(_Run):
    def __init__(self, config: TimestampAndWallClockLag, state: Sequence[int]) -> None:
        super().__init__("timestampAndWallClockLag", config.lag_ms, state, fits=len(state) <= 1)
        self._wall_clock_lag_ms = config.wall_clock_lag_ms

    def current(self, now_ms: int, /) -> int | None:
        self._raise(clamp_ms(now_ms - self._wall_clock_lag_ms))
        return self._watermark_ms


@dataclass(frozen=True, slots=True)
class RealTimeLag:
    """The wall clock less a lag, independent of events.

    It goes back with the clock. The channel's watermark does not, because its throttle sends only higher
    watermarks.
    """

    lag_ms: int

    def __post_init__(self) -> None:
        _check_span("wallClockLag", self.lag_ms)

    @property
    def event_lag_ms(self) -> int | None:
        """None: events do not move it."""
        return None

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """State: ()."""
        _check_state("realTimeLag", resume_from or (), fits=not resume_from)
        return _RealTimeRun(self.lag_ms)

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """Return both states joined, which are empty for this policy."""
        return (*first, *then)


class _RealTimeRun(_NoWatermarksRun):
    def __init__(self, lag_ms: int) -> None:
        self._lag_ms = lag_ms

    def current(self, now_ms: int, /) -> int | None:
        return clamp_ms(now_ms - self._lag_ms)


@dataclass(frozen=True, slots=True)
class NoWatermarks:
    """Never a watermark."""

    @property
    def event_lag_ms(self) -> int | None:
        """None: events do not move it."""
        return None

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """State: ()."""
        _check_state("none", resume_from or (), fits=not resume_from)
        return _NoWatermarksRun()

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """Return both states joined, which are empty for this policy."""
        return (*first, *then)


def state_from(policy: Policy, watermark_ms: int | None, now_ms: int) -> tuple[int, ...]:
    """Return the state of a policy that continues another policy's watermark at a clock reading.

    A policy whose state is not known here restarts; its throttle knows the floor, too.
    """
    if watermark_ms is None:
        return ()
    if isinstance(policy, LagAndLull):
        return (watermark_ms, clamp_ms(now_ms + policy.lull_ms))
    return (watermark_ms,) if isinstance(policy, (FixedLag, LagAndDelay, TimestampAndWallClockLag)) else ()
