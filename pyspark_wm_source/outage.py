"""The memory of a group coordinator that did not answer: whoever asks again at once waits again in every batch.

Rule: time is an argument. States in committed offsets are a hint, so not to ask costs a recovery read and nothing else.
"""

from __future__ import annotations

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 300.0


class Outage:
    """Since when, and why, the coordinator is not asked; each time that it does not answer the pause doubles."""

    def __init__(self) -> None:
        self._why = ""
        self._pause_s = 0.0
        self._until_s = 0.0

    def note(self, why: str, now_s: float) -> bool:
        """Remember that it did not answer. True if it had answered before: that is worth a warning."""
        is_new = not self._pause_s
        self._pause_s = FIRST_PAUSE_S if is_new else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._why, self._until_s = why, now_s + self._pause_s
        return is_new

    def over(self) -> bool:
        """It answered. True if it did not before."""
        was_out = self._pause_s > 0
        self._why, self._pause_s, self._until_s = "", 0.0, 0.0
        return was_out

    def is_paused(self, now_s: float) -> bool:
        """Whether not to ask."""
        return now_s < self._until_s

    @property
    def why(self) -> str:
        """Why the last question failed; empty where it did not."""
        return self._why
