"""How long windows and their messages are kept, and what was dropped because it was too much.

Rule: the limit that is reached first counts. A window goes as a whole, with the slices that no other window needs; the
oldest goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from keyedwm.config.validation import MS, number_or_none, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.operators.plan_checks import check_length

MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Limits of one store; at least one of them is given.

    time_ms: so long after its end, in event time, a window takes late messages. max_windows: so many windows (of a
    channel, where they count its offsets) that hold a message. max_messages, max_bytes: of all messages held, bytes in
    Arrow.
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
        """Whether something beside time limits the store."""
        return (self.max_windows, self.max_messages, self.max_bytes) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCounts:
    """Counts of all messages since the store was new: taken = held + expired + dropped.

    given: all rows that came. taken: messages stored. replayed: messages that had been taken or rejected before.
    rejected: messages returned with a reason. expired: messages that left with their last window in due course.
    dropped_messages, dropped_bytes, dropped_windows: removed by a limit of size.
    """

    given: int = 0
    taken: int = 0
    replayed: int = 0
    rejected: int = 0
    expired: int = 0
    dropped_messages: int = 0
    dropped_bytes: int = 0
    dropped_windows: int = 0

    def since(self, before: StoreCounts) -> StoreCounts:
        """Return the counts since then."""
        return StoreCounts(**{name: getattr(self, name) - getattr(before, name) for name in _NAMES})

    @classmethod
    def together(cls, counts: Iterable[StoreCounts]) -> StoreCounts:
        """Return the sums of several, as of the sides of a join."""
        several = list(counts)
        return cls(**{name: sum(getattr(one, name) for one in several) for name in _NAMES})


_NAMES = [one.name for one in fields(StoreCounts)]
