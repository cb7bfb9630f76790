"""The timers of a store's buckets: the same in all buckets, so that a batch of a timer has the barriers of all.

Rule: the timers depend only on the plan's intervals and the clock of the batches, which are the same in every bucket.
They end when all panes of the last input must have fired: an idle query plans no batches.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessingTimers:
    """intervals_ms: those of the panes by the clock, at least one. came_ms: the clock at the last batch with input.
    due_ms: the time of the next timer, None without one.
    """

    intervals_ms: tuple[int, ...]
    came_ms: int | None
    due_ms: int | None

    def after_input(self, now_ms: int) -> ProcessingTimers:
        """Return the timers after a batch with input."""
        runs = self.due_ms is not None and now_ms < self.due_ms
        return ProcessingTimers(self.intervals_ms, now_ms, self.due_ms if runs else self._next_ms(now_ms))

    def after_clock(self, now_ms: int) -> ProcessingTimers:
        """Return the timers after a batch that only a timer caused."""
        came_ms = now_ms if self.came_ms is None else self.came_ms
        rests = now_ms >= came_ms + max(self.intervals_ms)
        return ProcessingTimers(self.intervals_ms, came_ms, None if rests else self._next_ms(now_ms))

    def _next_ms(self, now_ms: int) -> int:
        return now_ms + min(self.intervals_ms)
