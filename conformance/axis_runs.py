"""Policies and throttles of the vectors, run by the product's vectorised `AxisRun`, an event at a time.

Rule: whatever a vector asks of a policy or a throttle is answered by `keyedwm.arrow.axis.AxisRun`; the scalar run of
`keyedwm.core` is asked too and must say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.disagreement import DisagreementError
from keyedwm.arrow.axis import AxisRun, late
from keyedwm.core.axis import AxisConfig, AxisState
from keyedwm.core.policy import FixedLag, Policy, PolicyRun
from keyedwm.core.throttle import NoThrottle, Throttle, ThrottleRun


@dataclass(frozen=True, slots=True)
class AxisPolicy:
    """A policy whose run is an `AxisRun` without a throttle."""

    policy: Policy

    @property
    def event_lag_ms(self) -> int | None:
        """The policy's own."""
        return self.policy.event_lag_ms

    def build(self, resume_from: Sequence[int] | None = None) -> PolicyRun:
        """The policy at its start, or going on from a snapshot."""
        return _AxisPolicyRun(self.policy, tuple(resume_from or ()))

    def concatenate(self, first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
        """The policy's own."""
        return self.policy.concatenate(first, then)


class _AxisPolicyRun:
    def __init__(self, policy: Policy, state: tuple[int, ...]) -> None:
        self._config = AxisConfig(0, policy, NoThrottle())
        self._scalar = policy.build(state)
        self._state = state

    def observe(self, event_ms: int, now_ms: int, /) -> None:
        self._scalar.observe(event_ms, now_ms)
        run = self._run(now_ms)
        _, watermarks = run.rows(np.array([event_ms], np.int64), None)
        self._state = run.state().policy_state()
        current_ms = self._config.policy.build(self._scalar.snapshot()).current(now_ms)
        expected = [] if current_ms is None else [min(current_ms, event_ms)]
        _agree(expected, watermarks.tolist())

    def current(self, now_ms: int, /) -> int | None:
        run = self._run(now_ms)
        watermark_ms = run.end()
        self._state = run.state().policy_state()
        _agree(self._scalar.current(now_ms), watermark_ms)
        return watermark_ms

    def snapshot(self) -> tuple[int, ...]:
        _agree(self._scalar.snapshot(), self._state)
        return self._state

    def _run(self, now_ms: int) -> AxisRun:
        return AxisRun(self._config, AxisState(policy=self._state), now_ms)


@dataclass(frozen=True, slots=True)
class AxisThrottle:
    """A throttle whose run is an `AxisRun` in which the watermark is the event time."""

    throttle: Throttle

    def build(self, resume_from: Sequence[int] | None = None) -> ThrottleRun:
        """The throttle at its start, or going on from a snapshot."""
        return _AxisThrottleRun(self.throttle, tuple(resume_from or ()))


class _AxisThrottleRun:
    def __init__(self, throttle: Throttle, state: tuple[int, ...]) -> None:
        self._config = AxisConfig(0, FixedLag(0), throttle)
        self._scalar = throttle.build(state)
        self._sent_ms = state[0] if state else None

    def admit(self, watermark_ms: int, /) -> int | None:
        run = AxisRun(self._config, AxisState(emitted_ms=self._sent_ms), 0)
        _, watermarks = run.rows(np.array([watermark_ms], np.int64), None)
        self._sent_ms = run.state().emitted_ms
        answer = int(watermarks[0]) if len(watermarks) else None
        _agree(self._scalar.admit(watermark_ms), answer)
        return answer

    def end_of_batch(self, watermark_ms: int, /) -> int | None:
        run = AxisRun(self._config, AxisState(policy=(watermark_ms,), emitted_ms=self._sent_ms), 0)
        answer = run.end()
        self._sent_ms = run.state().emitted_ms
        _agree(self._scalar.end_of_batch(watermark_ms), answer)
        return answer

    def snapshot(self) -> tuple[int, ...]:
        return () if self._sent_ms is None else (self._sent_ms,)


def is_late(event_ms: int, watermark_ms: int | None) -> bool:
    """Whether an event is late, as the reading task counts it."""
    return bool(late(np.array([event_ms], np.int64), None, watermark_ms)[0])


def _agree(scalar: object, vectorised: object) -> None:
    if scalar != vectorised:
        raise DisagreementError(f"the scalar run says {scalar}, the vectorised AxisRun {vectorised}")
