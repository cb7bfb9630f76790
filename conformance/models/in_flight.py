"""Watermarks around asynchronous calls: one leaves only after the results of all items that came before it.

Rule: a model for the vectors; keyedwm has no asynchronous operator. Ordered calls answer in order of arrival; unordered
ones as they finish, and a watermark is released when the last item before it is finished.
"""

from __future__ import annotations


class InFlight:
    """Calls in flight with watermarks between them."""

    def __init__(self, *, ordered: bool, max_calls: int) -> None:
        self._ordered = ordered
        self._max_calls = max_calls
        self._queue: list[tuple] = []
        self._finished: set = set()
        self._sent: dict[int, int] = {}

    def item(self, name: object) -> bool:
        """Start a call; False when as many as allowed are in flight (watermarks do not count)."""
        if sum(entry[0] == "call" for entry in self._queue) >= self._max_calls:
            return False
        self._queue.append(("call", name))
        return True

    def watermark(self, key: int, time_ms: int) -> list[tuple]:
        """Queue a watermark; one right behind another of its key takes its place."""
        if self._queue and self._queue[-1][:2] == ("wm", key):
            self._queue.pop()
        self._queue.append(("wm", key, time_ms))
        return self._release([])

    def finish(self, names: list) -> list[tuple]:
        """Calls finish, in this order."""
        output: list[tuple] = []
        for name in names:
            self._finished.add(name)
            if not self._ordered:
                self._queue.remove(("call", name))
                output.append(("result", name))
            output = self._release(output)
        return self._release(output)

    def _release(self, output: list[tuple]) -> list[tuple]:
        newest: dict[int, int] = {}
        while self._queue:
            entry = self._queue[0]
            if entry[0] == "wm" and self._ordered:
                output = [*output, entry]
            elif entry[0] == "wm":
                newest[entry[1]] = max(entry[2], newest.get(entry[1], entry[2]))
            elif self._ordered and entry[1] in self._finished:
                output = [*output, ("result", entry[1])]
            else:
                break
            self._queue.pop(0)
        grown = {key: time_ms for key, time_ms in newest.items() if time_ms > self._sent.get(key, time_ms - 1)}
        self._sent.update(grown)
        return [*output, *(("wm", key, time_ms) for key, time_ms in grown.items())]
