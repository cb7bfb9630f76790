"""Whether two sessions that touch are one (rule 11).

Rule: an event at t covers `[t, t + gap)`. With MERGE intervals that touch are one, so a session closes only at
W > end, and it makes no difference whether an event at its end or that watermark came first. With SEPARATE only
overlapping ones merge, and a session closes at W >= end.
"""

from __future__ import annotations

from enum import Enum


class Touching(Enum):
    """The fate of two sessions, one of which starts where the other ends."""

    MERGE = "merge"
    SEPARATE = "separate"
