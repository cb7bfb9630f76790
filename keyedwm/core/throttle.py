"""Throttles: the choice of the watermarks that are worth sending (rule 8).

Rule: a throttle turns the present watermark into the watermark to send, or into none; the watermarks that it sends
strictly increase. `admit` is called before every event, `end_of_batch` once after the last event of a batch. Frames
begin at `offset + n * size`, for every whole `n`, negative ones too (rule 11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from keyedwm.core.errors import FormatError, OptionError
from keyedwm.core.watermark import MAX_MS, clamp_ms


def floor_frame(time_ms: int, size_ms: int, offset_ms: int = 0) -> int:
    """The highest boundary at or below a time."""
    return clamp_ms(time_ms - (time_ms - offset_ms) % size_ms)


class ThrottleRun(Protocol):
    """A throttle with its state: the last watermark sent."""

    def admit(self, watermark_ms: int, /) -> int | None:
        """Return the watermark to send before the event that raised the watermark to `watermark_ms`, or None."""

    def end_of_batch(self, watermark_ms: int, /) -> int | None:
        """The watermark to send after the last event of a batch, or None."""

    def snapshot(self) -> tuple[int, ...]:
        """(last sent,) or ()."""


class Throttle(Protocol):
    """The configuration of a throttle."""

    def build(self, resume_from: Sequence[int] | None = None) -> ThrottleRun:
        """Return the throttle at its start, or as of a snapshot."""


@dataclass(frozen=True, slots=True)
class NoThrottle:
    """Every advance."""

    def build(self, resume_from: Sequence[int] | None = None) -> ThrottleRun:
        """State: (last sent,) or ()."""
        return _Run(resume_from)


@dataclass(frozen=True, slots=True)
class ThrottleByBatch:
    """One watermark per batch, after its events."""

    def build(self, resume_from: Sequence[int] | None = None) -> ThrottleRun:
        """State: (last sent,) or ()."""
        return _BatchRun(resume_from)


@dataclass(frozen=True, slots=True)
class ThrottleByFrame:
    """The frame boundary `offset + n * size` at or below the watermark; a size of 0 sends none at all (as Jet)."""

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.size_ms <= MAX_MS:
            raise OptionError(f"frameSize is {self.size_ms} ms, it must be 0 or more and fit into 64 bits")
        if not 0 <= self.offset_ms < max(self.size_ms, 1):
            raise OptionError(f"frameOffset is {self.offset_ms} ms, it must be 0 or more and below {self.size_ms} ms")

    def build(self, resume_from: Sequence[int] | None = None) -> ThrottleRun:
        """State: (last sent,) or ()."""
        return _FrameRun(self, resume_from)


@dataclass(frozen=True, slots=True)
class ThrottleByStep:
    """A watermark that is at least a step above the last one sent; the first always passes."""

    step_ms: int

    def __post_init__(self) -> None:
        if not 1 <= self.step_ms <= MAX_MS:
            raise OptionError(f"watermarkStep is {self.step_ms} ms, it must be 1 or more and fit into 64 bits")

    def build(self, resume_from: Sequence[int] | None = None) -> ThrottleRun:
        """State: (last sent,) or ()."""
        return _StepRun(self, resume_from)


class _Run:
    def __init__(self, resume_from: Sequence[int] | None) -> None:
        state = resume_from or ()
        if len(state) > 1:
            raise FormatError(f"the saved state of a throttle is {list(state)}, which it never writes")
        self._sent_ms = state[0] if state else None

    def admit(self, watermark_ms: int, /) -> int | None:
        return self._send(watermark_ms)

    def end_of_batch(self, watermark_ms: int) -> int | None:
        return self.admit(watermark_ms)

    def snapshot(self) -> tuple[int, ...]:
        return () if self._sent_ms is None else (self._sent_ms,)

    def _send(self, watermark_ms: int) -> int | None:
        if self._sent_ms is not None and watermark_ms <= self._sent_ms:
            return None
        self._sent_ms = watermark_ms
        return watermark_ms


class _BatchRun(_Run):
    def admit(self, _watermark_ms: int, /) -> int | None:
        return None

    def end_of_batch(self, watermark_ms: int) -> int | None:
        return self._send(watermark_ms)


class _FrameRun(_Run):
    def __init__(self, config: ThrottleByFrame, resume_from: Sequence[int] | None) -> None:
        super().__init__(resume_from)
        self._config = config

    def admit(self, watermark_ms: int, /) -> int | None:
        if not self._config.size_ms:
            return None
        return self._send(floor_frame(watermark_ms, self._config.size_ms, self._config.offset_ms))


class _StepRun(_Run):
    def __init__(self, config: ThrottleByStep, resume_from: Sequence[int] | None) -> None:
        super().__init__(resume_from)
        self._step_ms = config.step_ms

    def admit(self, watermark_ms: int, /) -> int | None:
        if self._sent_ms is not None and watermark_ms < self._sent_ms + self._step_ms:
            return None
        return self._send(watermark_ms)
