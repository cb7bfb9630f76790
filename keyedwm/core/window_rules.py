"""Rules of windows (rule 11, docs/reference/glossary.md): when an event is late, and whether touching sessions are one.

Rule: an event at t covers `[t, t + gap)`. With MERGE, intervals that touch are one, so a session closes only at
W > end. Then the order of an event at its end and of that watermark makes no difference. With SEPARATE only overlapping
intervals merge, and a session closes at W >= end.
"""

from __future__ import annotations

from enum import Enum


class LateRule(Enum):
    """The question that decides. WINDOW is the default; FRAME and EVENT are Jet's, for windows and for sessions."""

    WINDOW = "window"  # late if no window that would take it is still open
    FRAME = "frame"  # late once the frame it falls into was emitted
    EVENT = "event"  # late below the watermark, whatever is open


class LatePolicy(Enum):
    """The fate of late rows."""

    DROP = "drop"
    EMIT = "emit"
    FAIL = "fail"


class Touching(Enum):
    """The fate of two sessions, one of which starts where the other ends."""

    MERGE = "merge"
    SEPARATE = "separate"
