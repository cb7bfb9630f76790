"""The memory of a group coordinator that did not answer, so that not every batch waits for it again.

Rule: time is an argument. States in committed offsets are a hint: a planner that does not ask makes a recovery read,
and its results are the same.
"""

from __future__ import annotations

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 300.0


class Outage:
    """The time until which the coordinator is not asked, and why. The pause doubles each time it does not answer."""

    def __init__(self) -> None:
        self._why = ""
        self._pause_s = 0.0
        self._until_s = 0.0

    def note(self, why: str, now_s: float) -> bool:
        """Remember that the coordinator did not answer; return whether this outage is new, which needs a warning."""
        is_new = not self._pause_s
        self._pause_s = FIRST_PAUSE_S if is_new else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._why, self._until_s = why, now_s + self._pause_s
        return is_new

    def over(self) -> bool:
        """Remember that the coordinator answered; return whether that ends an outage."""
        was_out = self._pause_s > 0
        self._why, self._pause_s, self._until_s = "", 0.0, 0.0
        return was_out

    def is_paused(self, now_s: float) -> bool:
        """Return whether the coordinator is not to be asked now."""
        return now_s < self._until_s

    @property
    def why(self) -> str:
        """Why the last request failed; empty if it did not."""
        return self._why
