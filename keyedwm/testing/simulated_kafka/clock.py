"""Virtual time: it stands still until it is moved, and what is due happens as it passes."""

from __future__ import annotations

from collections.abc import Callable

START_MS = 1_700_000_000_000


class Clock:
    """Milliseconds since 1970 that only `pass_ms` moves."""

    def __init__(self, now_ms: float = START_MS) -> None:
        self.now_ms = float(now_ms)
        self.on_pass: list[Callable[[], None]] = []

    def pass_ms(self, span_ms: float) -> None:
        """Move on by so many milliseconds."""
        self.now_ms += span_ms
        for due in self.on_pass:
            due()
