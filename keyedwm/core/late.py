"""When an event is late (rule 11 and docs/reference/glossary.md): a status, and what becomes of it: a policy."""

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
