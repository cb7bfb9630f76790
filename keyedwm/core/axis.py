"""One channel on one time axis: policy, then cap, then throttle (DESIGN rules 7 and 8). The scalar reference.

Rule: the watermark that an event makes true stands before it and never makes it late: whatever the clock says, it is
at most the event's own time. Where a batch ends the cap falls away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keyedwm.core.errors import FormatError
from keyedwm.core.policy import Policy
from keyedwm.core.throttle import Throttle
from keyedwm.core.watermark import check_key


@dataclass(frozen=True, slots=True)
class AxisConfig:
    """What makes the watermarks of one key."""

    key: int
    policy: Policy
    throttle: Throttle

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class AxisState:
    """One channel and key at rest: the policy's state and the last watermark sent (None: none yet)."""

    policy: tuple[int, ...] = ()
    emitted_ms: int | None = None

    def as_list(self) -> list:
        """[emitted or null, policy numbers ...] for JSON."""
        return [self.emitted_ms, *self.policy]

    @classmethod
    def from_list(cls, value: Sequence) -> AxisState:
        """The inverse of `as_list`."""
        if not value or any(type(number) is not int for number in value[1:]):
            raise FormatError(f"the saved state of a time axis is {value!r}, it must be [emitted, numbers ...]")
        return cls(policy=tuple(value[1:]), emitted_ms=value[0])


class Axis:
    """Runs event by event; `AxisRun` in keyedwm.arrow does the same for whole batches."""

    def __init__(self, config: AxisConfig, state: AxisState | None = None) -> None:
        state = state or AxisState()
        self._policy = config.policy.build(state.policy)
        self._throttle = config.throttle.build(() if state.emitted_ms is None else (state.emitted_ms,))

    def observe(self, event_ms: int, now_ms: int) -> int | None:
        """Take one event; the watermark to send before it, or None."""
        self._policy.observe(event_ms, now_ms)
        watermark_ms = self._policy.current(now_ms)
        return None if watermark_ms is None else self._throttle.admit(min(watermark_ms, event_ms))

    def end(self, now_ms: int) -> int | None:
        """The batch ends, or nothing came: the watermark to send now, or None."""
        watermark_ms = self._policy.current(now_ms)
        return None if watermark_ms is None else self._throttle.settle(watermark_ms)

    def state(self) -> AxisState:
        """Everything the next step depends on."""
        sent = self._throttle.snapshot()
        return AxisState(policy=self._policy.snapshot(), emitted_ms=sent[0] if sent else None)


def concatenate(config: AxisConfig, first: AxisState, then: AxisState) -> AxisState:
    """The state after two consecutive ranges of rows, the second run on its own from a neutral state.

    What the second sent on its own does not count: nobody was told, and `end` sends what is due.
    """
    return AxisState(policy=config.policy.concatenate(first.policy, then.policy), emitted_ms=first.emitted_ms)
