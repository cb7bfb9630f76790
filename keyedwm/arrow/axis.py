"""One channel on one time axis over whole record batches (rules 7 and 8; scalar model: conformance/models/axis.py).

Rule: at one clock reading the watermarks and their rows are those of the scalar model. At a fixed clock every policy is
`max(base, highest event - lag)`, capped at the event's own time, so one compiled loop serves all policies.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from keyedwm.core.axis import AxisConfig, AxisState
from keyedwm.core.lateness import is_behind
from keyedwm.core.throttle import NoThrottle, ThrottleByBatch, ThrottleByFrame, ThrottleByStep
from keyedwm.core.watermark import MAX_MS, MIN_MS
from keyedwm.runtime.compiled import compiled

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NONE: Final = MIN_MS  # in the loop, if the flag beside it says so: no watermark yet, or none sent yet
_EVERY: Final = 0
_FRAME: Final = 1
_STEP: Final = 2
_NEVER: Final = 3

_NOWHERE: Final = np.empty(0, np.int64)


class AxisRun:
    """The watermarks of one channel and key in a batch planned at `now_ms`: call `rows` for each run, then `end`."""

    def __init__(self, config: AxisConfig, state: AxisState, now_ms: int) -> None:
        self._config = config
        self._now_ms = now_ms
        self._policy = config.policy.build(state.policy_state())
        self._throttle = config.throttle.build(() if state.emitted_ms is None else (state.emitted_ms,))
        self._loop = _loop_settings(config)

    def rows(self, event_ms: Int64s, valid: Bools | None) -> tuple[Int64s, Int64s]:
        """Run event times in row order.

        event_ms: int64, one per row. valid: false for a row without an event time; None if every row has one.
        Returns positions and watermarks (int64): each watermark row stands before the row at its position.
        """
        top, has_rows = _top(event_ms, valid) if valid is not None else _top_of_all(event_ms)
        if not has_rows:
            return _NOWHERE, _NOWHERE
        base_ms = self._base()
        lag_ms = self._config.policy.event_lag_ms
        self._policy.observe(int(top), self._now_ms)
        kind, size_ms, offset_ms = self._loop
        if kind == _NEVER or (base_ms is None and lag_ms is None):
            return _NOWHERE, _NOWHERE
        emitted = self._throttle.snapshot()
        positions, watermarks = _admitted(
            event_ms,
            valid if valid is not None else np.empty(0, np.bool_),
            (_NONE if base_ms is None else base_ms, base_ms is not None),
            (lag_ms or 0, lag_ms is not None),
            (kind, size_ms, offset_ms),
            (emitted[0] if emitted else _NONE, bool(emitted)),
        )
        if len(watermarks):
            self._throttle = self._config.throttle.build((int(watermarks[-1]),))
        return positions, watermarks

    def _base(self) -> int | None:
        """The watermark at this clock reading if an event came now that does not raise it."""
        run = self._config.policy.build(self._policy.snapshot())
        run.observe(MIN_MS, self._now_ms)
        return run.current(self._now_ms)

    def end(self) -> int | None:
        """End the batch; return the watermark to send after its last row, or None."""
        watermark_ms = self._policy.current(self._now_ms)
        return None if watermark_ms is None else self._throttle.end_of_batch(watermark_ms)

    def state(self) -> AxisState:
        """The state that the next batch starts from."""
        emitted = self._throttle.snapshot()
        return AxisState(policy=self._policy.snapshot(), emitted_ms=emitted[0] if emitted else None)


def late(event_ms: Int64s, valid: Bools | None, watermark_ms: int | None) -> Bools:
    """Mark the events below the watermark. No row is marked without a watermark, or without an event time."""
    if watermark_ms is None:
        return np.zeros(len(event_ms), np.bool_)
    behind = is_behind(event_ms, watermark_ms)
    return behind if valid is None else behind & valid


def _loop_settings(config: AxisConfig) -> tuple[int, int, int]:
    throttle = config.throttle
    if isinstance(throttle, ThrottleByBatch):
        return _NEVER, 0, 0
    if isinstance(throttle, ThrottleByFrame):
        return (_FRAME, throttle.size_ms, throttle.offset_ms) if throttle.size_ms else (_NEVER, 0, 0)
    if isinstance(throttle, ThrottleByStep):
        return _STEP, throttle.step_ms, 0
    if isinstance(throttle, NoThrottle):
        return _EVERY, 0, 0
    raise TypeError(f"throttle {throttle!r} has no vectorised form")


def _top_of_all(event_ms: Int64s) -> tuple[int, bool]:
    return (int(event_ms.max()), True) if len(event_ms) else (_NONE, False)


@compiled
def _top(event_ms: Int64s, valid: Bools) -> tuple[int, bool]:
    top = _NONE
    has_rows = False
    for row in range(len(event_ms)):
        if valid[row]:
            has_rows = True
            top = max(top, event_ms[row])
    return top, has_rows


@compiled
def _admitted(  # noqa: PLR0917  compiled code takes no keywords
    event_ms: Int64s,
    valid: Bools,
    base: tuple[int, bool],
    lag: tuple[int, bool],
    throttle: tuple[int, int, int],
    emitted: tuple[int, bool],
) -> tuple[Int64s, Int64s]:
    base_ms, has_base = base
    lag_ms, moved_by_events = lag
    kind, size_ms, offset_ms = throttle
    emitted_ms, has_emitted = emitted
    positions = np.empty(len(event_ms), np.int64)
    watermarks = np.empty(len(event_ms), np.int64)
    count = 0
    due_ms = _NONE  # a candidate below it reaches no new frame boundary
    watermark_ms = base_ms
    has_watermark = has_base
    for row in range(len(event_ms)):
        if len(valid) and not valid[row]:
            continue
        event = event_ms[row]
        if moved_by_events and event >= _NONE + lag_ms and (not has_watermark or event - lag_ms > watermark_ms):
            watermark_ms = event - lag_ms
            has_watermark = True
        if not has_watermark:
            continue
        candidate = min(watermark_ms, event)
        if kind == _FRAME:
            if candidate < due_ms:
                continue
            rest = (candidate % size_ms - offset_ms) % size_ms
            due_ms = candidate + (size_ms - rest) if candidate <= MAX_MS - (size_ms - rest) else MAX_MS
            candidate = candidate - rest if candidate >= _NONE + rest else _NONE
        if has_emitted and candidate <= emitted_ms:
            continue
        # Unsigned, the distance to the last watermark sent cannot overflow.
        if kind == _STEP and has_emitted and np.uint64(candidate - emitted_ms) < np.uint64(size_ms):
            continue
        emitted_ms = candidate
        has_emitted = True
        positions[count] = row
        watermarks[count] = candidate
        count += 1
    return positions[:count].copy(), watermarks[:count].copy()
