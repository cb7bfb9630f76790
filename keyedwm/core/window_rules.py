"""Rules of windows (rule 11, docs/reference/glossary.md): when an event is late, and whether touching sessions merge.

Rule: an event at t covers `[t, t + gap)`. With MERGE, intervals that touch merge, so a session closes only at W > end.
Then it makes no difference whether an event at the session's end comes before or after that watermark. With SEPARATE
only overlapping intervals merge, and a session closes at W >= end.
"""

from __future__ import annotations

from enum import Enum


class LateRule(Enum):
    """The rule that decides lateness.

    WINDOW is the default; FRAME and EVENT are Jet's, for windows and for sessions.
    """

    WINDOW = "window"  # late if no window that contains it is still open
    FRAME = "frame"  # late after its frame was emitted
    EVENT = "event"  # late below the watermark, even if its window is open


class LatePolicy(Enum):
    """The fate of late rows."""

    DROP = "drop"
    EMIT = "emit"
    FAIL = "fail"


class Touching(Enum):
    """The fate of two sessions, one of which starts where the other ends."""

    MERGE = "merge"
    SEPARATE = "separate"
