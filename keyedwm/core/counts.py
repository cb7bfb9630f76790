"""Counts of a channel's events, from the first batch on.

Rule: counts travel with the channel's state, so that they too are the same after a replay or a restart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """bad: event times that could not be read; late: events below the coalesced watermark stamped on their batch.

    With several time axes an event counts once for each. control: records with the reserved header that are no rows
    and were not read as control records either. future: event times too far ahead (option `maxEventTimeAhead`).
    """

    bad: int = 0
    late: int = 0
    control: int = 0
    future: int = 0

    def plus(self, more: Counts) -> Counts:
        """Return the sum."""
        return Counts(
            self.bad + more.bad, self.late + more.late, self.control + more.control, self.future + more.future
        )
