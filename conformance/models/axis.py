"""One channel on one time axis, event by event: policy, then cap, then throttle (rules 7 and 8). The scalar model.

Rule: the watermark that an event makes true stands before it and never makes it late: whatever the clock says, it is
at most the event's own time. Where a batch ends the cap falls away.
"""

from __future__ import annotations

from keyedwm.core.axis import AxisConfig, AxisState


class Axis:
    """Runs event by event; `AxisRun` of keyedwm.arrow.axis does the same for whole batches."""

    def __init__(self, config: AxisConfig, state: AxisState | None = None) -> None:
        state = state or AxisState()
        self._policy = config.policy.build(state.policy_state())
        self._throttle = config.throttle.build(() if state.emitted_ms is None else (state.emitted_ms,))

    def observe(self, event_ms: int, now_ms: int) -> int | None:
        """Take one event; the watermark to send before it, or None."""
        self._policy.observe(event_ms, now_ms)
        watermark_ms = self._policy.current(now_ms)
        return None if watermark_ms is None else self._throttle.admit(min(watermark_ms, event_ms))

    def end(self, now_ms: int) -> int | None:
        """The batch ends, or nothing came: the watermark to send now, or None."""
        watermark_ms = self._policy.current(now_ms)
        return None if watermark_ms is None else self._throttle.end_of_batch(watermark_ms)

    def state(self) -> AxisState:
        """Everything the next step depends on."""
        throttle_state = self._throttle.snapshot()
        return AxisState(policy=self._policy.snapshot(), emitted_ms=throttle_state[0] if throttle_state else None)


def is_late(event_ms: int | None, watermark_ms: int | None) -> bool:
    """Whether an event stands below the watermark; without one of the two it does not (dropping is a policy)."""
    return event_ms is not None and watermark_ms is not None and event_ms < watermark_ms
