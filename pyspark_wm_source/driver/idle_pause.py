"""A pause of the planner while nothing is new.

Rule: Spark plans again 10 ms after an answer without news, for each source of each query. So a source that had nothing
to read in twenty plannings plans every 50 ms only. An idle query then needs two thirds of the CPU time. The plannings
of a query whose other sources have records lie farther apart, so none of its sources pauses.
"""

from __future__ import annotations

import time

QUIET_PLANNINGS = 20
PAUSE_S = 0.035
INTERVAL_S = 0.05


class IdlePause:
    """The pause after a planning, by how many in a row had no news."""

    def __init__(self) -> None:
        self._quiet = 0
        self._answered_at_s = 0.0

    def after(self, *, is_new: bool) -> None:
        """Wait if this planning and many before it had no news, and the answer before is not long ago."""
        self._quiet = 0 if is_new else self._quiet + 1
        left_s = self._answered_at_s + INTERVAL_S - time.monotonic()
        if self._quiet > QUIET_PLANNINGS and left_s > 0:
            time.sleep(min(left_s, PAUSE_S))
        self._answered_at_s = time.monotonic()
