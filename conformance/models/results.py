"""What the models of window operators answer: a window's result, or that an event was late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WindowResult:
    """One emission for the window `[start_ms, end_ms)` of a data key."""

    start_ms: int
    end_ms: int
    key: object
    value: object


@dataclass(frozen=True, slots=True)
class Late:
    """The event was late, and nothing changed."""
