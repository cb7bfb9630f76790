"""How long windows and their messages are kept.

Rule: the first limit that is reached counts. A window is dropped as a whole, with the slices that no other window
needs; the oldest window first.
"""

from __future__ import annotations

from dataclasses import dataclass

from keyedwm.config.validation import MS, number_or_none, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.operators.plan_checks import check_length

MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Limits of one store; at least one of them is given.

    time_ms: how long after its end, in event time, a window accepts late messages. max_windows: the most windows with a
    message (per channel, if they count its offsets). max_messages, max_bytes: the most held messages, and their most
    bytes in Arrow.
    """

    time_ms: int | None = None
    max_windows: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        set_fields(self, time_ms=number_or_none("the retention of a store", self.time_ms, MS))
        for name in ("max_windows", "max_messages", "max_bytes"):
            set_fields(self, **{name: number_or_none(f"the {name} of a store", getattr(self, name))})
        limits = {
            "retention in ms": self.time_ms,
            "max_windows": self.max_windows,
            "max_messages": self.max_messages,
            "max_bytes": self.max_bytes,
        }
        if all(limit is None for limit in limits.values()):
            raise OptionError(
                "a store without a limit would keep every message for ever: give a retention, max_windows, "
                "max_messages or max_bytes"
            )
        for name, limit in limits.items():
            if limit is not None and not 1 <= limit <= MOST:
                right = "1 or more" if limit < 1 else f"{MOST} or less"
                raise OptionError(f"the {name} of a store is {limit}, it must be {right}")
        check_length("retention of a store", self.time_ms or 0)

    @property
    def has_sizes(self) -> bool:
        """Whether limits other than time are set."""
        return (self.max_windows, self.max_messages, self.max_bytes) != (None, None, None)
