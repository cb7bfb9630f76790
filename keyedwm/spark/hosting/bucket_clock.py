"""When all buckets of a store are woken by the clock: together, so that a batch of the clock has the barriers of all.

Rule: the times follow from the plan's intervals and the clock of the batches, which are the same in every bucket. A
bucket's content does not change them. They end when all panes of the last batch must have fired: an idle query rests.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessingTimers:
    """intervals_ms: of the panes by the clock, one at least. came_ms: of the last batch that brought something. due_ms:
    when the buckets are woken next, None if they rest.
    """

    intervals_ms: tuple[int, ...]
    came_ms: int | None
    due_ms: int | None

    def after_input(self, now_ms: int) -> ProcessingTimers:
        """Return the timers after a batch with input."""
        runs = self.due_ms is not None and now_ms < self.due_ms
        return ProcessingTimers(self.intervals_ms, now_ms, self.due_ms if runs else self._next_ms(now_ms))

    def after_clock(self, now_ms: int) -> ProcessingTimers:
        """Return the timers after a batch that only the clock made."""
        came_ms = now_ms if self.came_ms is None else self.came_ms
        rests = now_ms >= came_ms + max(self.intervals_ms)
        return ProcessingTimers(self.intervals_ms, came_ms, None if rests else self._next_ms(now_ms))

    def _next_ms(self, now_ms: int) -> int:
        return now_ms + min(self.intervals_ms)
