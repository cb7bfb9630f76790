"""A pause of the planner while nothing is new.

Rule: Spark plans again 10 ms after an answer without news, for each source of each query. So a source of a query that
had nothing to read for a third of a second answers later. The pause saves half of the CPU time of an idle query. A new
record then waits for one pause at most. A query that reads another source has batches between its plannings, so none of
its sources pauses.
"""

from __future__ import annotations

import time

QUIET_PLANNINGS = 20
PAUSE_S = 0.015
# A planning that comes later than this after the answer before follows a batch, or the pauses of several sources.
SAME_SPELL_S = 0.05


class IdlePause:
    """The pause after a planning, by how many plannings in quick succession had no news."""

    def __init__(self) -> None:
        self._quiet = 0
        self._answered_at_s = 0.0

    def before(self) -> None:
        """Note that a planning begins."""
        if time.monotonic() - self._answered_at_s > SAME_SPELL_S:
            self._quiet = 0

    def after(self, *, is_new: bool) -> None:
        """Wait if this planning and many before it had no news."""
        self._quiet = 0 if is_new else self._quiet + 1
        if self._quiet > QUIET_PLANNINGS:
            time.sleep(PAUSE_S)
        self._answered_at_s = time.monotonic()
