"""A pause of the planner while nothing is new.

Rule: Spark plans again 10 ms after an answer without news, for each source of each query. So a source that had nothing
to read for a third of a second answers later. The pause saves half of the CPU time of an idle query. A new record then
waits for one pause at most; a source under load never pauses.
"""

from __future__ import annotations

import time

QUIET_PLANNINGS = 20
PAUSE_S = 0.015


class IdlePause:
    """The pause after a planning, by how many in a row had no news."""

    def __init__(self) -> None:
        self._quiet = 0

    def after(self, *, is_new: bool) -> None:
        """Wait if this planning and many before it had no news."""
        self._quiet = 0 if is_new else self._quiet + 1
        if self._quiet > QUIET_PLANNINGS:
            time.sleep(PAUSE_S)
