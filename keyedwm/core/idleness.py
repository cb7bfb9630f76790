"""When a source channel is idle, exactly (rule 10).

Rule: the log must prove that a channel is idle: the next offset is the log end AND no record came for the timeout
(inclusive). A backlog held by a rate limit, a slow task or a stopped job is never idleness.
"""

from __future__ import annotations

from dataclasses import dataclass

from keyedwm.core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Idleness:
    """The idle timeout of a source; None switches idleness off."""

    timeout_ms: int | None

    def __post_init__(self) -> None:
        if self.timeout_ms is not None and self.timeout_ms <= 0:
            raise OptionError(f"idleTimeout is {self.timeout_ms} ms, it must be above 0, or none")

    def is_idle(self, *, quiet_since_ms: int, now_ms: int, caught_up: bool) -> bool:
        """Whether a channel that last had a record (or was added) at `quiet_since_ms` is idle now."""
        return caught_up and self.timeout_ms is not None and now_ms - quiet_since_ms >= self.timeout_ms
