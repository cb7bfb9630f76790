"""Rows that a vector says were dropped, against those that were late in the product.

Rule: a row is late when no window takes it any more: a session ends a gap after its last row, and without a watermark
nothing is late. A vector may measure a row by its own time, or by the first row's: such a row is taken here, and what
comes of the windows that hold nothing else is set aside.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.stream_words import StreamConfig


class LateRows:
    """Follows the rows of one vector. told: its first window."""

    def __init__(self, stream: StreamConfig) -> None:
        steps = stream.vector["steps"]
        self._stream = stream
        self._checks_dropped = any("dropped" in step for step in steps)
        self._watermark_ms: int | None = None
        self._on_time: set[int] = set()
        self._late_times: set[int] = set()

    def agrees(self, step: Mapping, late_rows: int) -> bool:
        """Whether a step drops what the vector says, or the row is one that is taken here."""
        if step["do"] == "watermark" and step["ts"] != "max":
            self._watermark_ms = step["ts"]
        times = {row["event_time"] for row in self._stream.rows(step)}
        is_dropped = step.get("dropped", False)
        if is_dropped and not late_rows and times and all(map(self._is_taken_here, times)):
            self._late_times |= times
            return True
        if not is_dropped:
            self._on_time |= times
        return not self._checks_dropped or bool(late_rows) == is_dropped

    def holds_nothing_else(self, pane: Mapping) -> bool:
        """Whether all rows of a window are some that the vector dropped and that were taken here."""
        late_times, on_time = (
            [time for time in times if pane["start"] <= time < pane["end"]]
            for times in (self._late_times, self._on_time)
        )
        return bool(late_times) and not on_time

    def _is_taken_here(self, time_ms: int) -> bool:
        lateness_ms = self._stream.lateness_ms
        if self._watermark_ms is None:
            return bool(self._on_time) and time_ms < min(self._on_time) - lateness_ms
        gap_ms = self._stream.session.gap_ms if self._stream.session else 0
        return time_ms < self._watermark_ms - lateness_ms <= time_ms + gap_ms
