"""Calls in flight with control rows between them: the outputs that are allowed when a call finishes (`async_map`).

Rule: a control row is emitted after the results of all calls that were started before it, and control rows keep their
order. Ordered: results are emitted in the order of the calls, and no result overtakes a control row. Unordered: a
result is emitted as soon as its call is finished. It may overtake a control row, since a control row may be emitted
later, but never too early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from keyedwm.core.errors import OutOfTurnError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A call, by its number."""

    number: Hashable


@dataclass(frozen=True, slots=True)
class ControlEntry(Generic[T]):
    """A control row.

    subject: what the row reports (a watermark's channel and key). If two adjacent rows have the same subject, the
    second is enough. None for a row that must not be dropped.
    """

    row: T
    subject: Hashable | None = None


class InFlight(Generic[T]):
    """Calls that were started, and the outputs that wait for them.

    capacity: the most calls; control rows do not count.
    """

    def __init__(self, *, ordered: bool, capacity: int) -> None:
        self._ordered = ordered
        self._capacity = capacity
        self._queue: deque[Call | ControlEntry[T]] = deque()
        self._running: set[Hashable] = set()
        self._finished: set[Hashable] = set()  # finished, and waiting for their turn

    @property
    def is_full(self) -> bool:
        """Whether a further call has to wait; an ordered result that waits for its turn counts, too."""
        return len(self._running) + (len(self._finished) if self._ordered else 0) >= self._capacity

    @property
    def is_empty(self) -> bool:
        """Whether all outputs were emitted."""
        return not self._queue

    def start(self, call: Call) -> None:
        """Start a call. Raises OutOfTurnError if `capacity` calls are in flight."""
        if self.is_full:
            raise OutOfTurnError(f"call {call.number} was started while {self._capacity} are in flight")
        self._queue.append(call)
        self._running.add(call.number)

    def control(self, row: ControlEntry[T]) -> list[Call | ControlEntry[T]]:
        """Add a control row; return the outputs."""
        last = self._queue[-1] if self._queue else None
        if isinstance(last, ControlEntry) and row.subject is not None and last.subject == row.subject:
            self._queue.pop()
        self._queue.append(row)
        return self._released()

    def finish(self, call: Call) -> list[Call | ControlEntry[T]]:
        """Finish a call; return the outputs, in order."""
        self._running.remove(call.number)
        self._finished.add(call.number)
        if self._ordered:
            return self._released()
        return [call, *self._released()]

    def _released(self) -> list[Call | ControlEntry[T]]:
        outputs: list[Call | ControlEntry[T]] = []
        while self._queue:
            first = self._queue[0]
            if isinstance(first, Call):
                if first.number not in self._finished:
                    break
                self._finished.remove(first.number)
            if self._ordered or isinstance(first, ControlEntry):
                outputs.append(first)
            self._queue.popleft()
        return outputs
