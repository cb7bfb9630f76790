"""Calls in flight with control rows between them: what may leave when a call finishes (`async_map`).

Rule: a control row leaves after the results of all calls that were started before it, and control rows keep their
order. Ordered, results leave in the order of the calls, and no control row is overtaken. Unordered, a result leaves as
soon as its call is finished; it may overtake a control row, since a control row may only be emitted later, never too
early.
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
class Between(Generic[T]):
    """A control row.

    stands_for: what it is about (a watermark's channel and key). Of two adjacent rows about the same the second is
    enough; None for a row that must not be dropped.
    """

    row: T
    stands_for: Hashable | None = None


class InFlight(Generic[T]):
    """Calls that were started, and what waits for them. capacity: how many at most; control rows do not count."""

    def __init__(self, *, ordered: bool, capacity: int) -> None:
        self._ordered = ordered
        self._capacity = capacity
        self._queue: deque[Call | Between[T]] = deque()
        self._running: set[Hashable] = set()
        self._finished: set[Hashable] = set()  # finished, and waiting for their turn

    @property
    def is_full(self) -> bool:
        """Whether a further call has to wait; an ordered result that waits for its turn takes up room."""
        return len(self._running) + (len(self._finished) if self._ordered else 0) >= self._capacity

    @property
    def is_empty(self) -> bool:
        """Whether everything has left."""
        return not self._queue

    def start(self, call: Call) -> None:
        """Take a call. Raises OutOfTurnError if as many as may be are in flight."""
        if self.is_full:
            raise OutOfTurnError(f"call {call.number} was started while {self._capacity} are in flight")
        self._queue.append(call)
        self._running.add(call.number)

    def control(self, row: Between[T]) -> list[Call | Between[T]]:
        """Take a control row; returns what leaves."""
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Between) and row.stands_for is not None and last.stands_for == row.stands_for:
            self._queue.pop()
        self._queue.append(row)
        return self._released()

    def finish(self, call: Call) -> list[Call | Between[T]]:
        """A call is finished; returns what leaves, in order."""
        self._running.remove(call.number)
        self._finished.add(call.number)
        if self._ordered:
            return self._released()
        return [call, *self._released()]

    def _released(self) -> list[Call | Between[T]]:
        left: list[Call | Between[T]] = []
        while self._queue:
            first = self._queue[0]
            if isinstance(first, Call):
                if first.number not in self._finished:
                    break
                self._finished.remove(first.number)
            if self._ordered or isinstance(first, Between):
                left.append(first)
            self._queue.popleft()
        return left
