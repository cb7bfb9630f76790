"""The settings in a plan for a watermark of each data key.

Theory: W is the coalesced watermark. A key's own watermark is its highest event time less `lag`. The effective
watermark of a key is the higher of its own watermark and `W - behind`; a window of the key closes when the effective
watermark has passed the window's end. So no key waits for another key. Below `W - behind` all windows of every key are
closed: a key whose own watermark is below `W - behind` need not be stored. The watermark of the results is `W -
behind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from keyedwm.config.validation import MS, expect_member, names, number, number_or_none, set_fields
from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest, span_text
from keyedwm.operators.plan_checks import check_length, check_named_once


class Partitions(Enum):
    """The partition that a key's own watermark follows if the key comes from several."""

    SLOWEST = "slowest"  # of the partitions whose watermark for the key is at most `behind` below W
    FASTEST = "fastest"


@dataclass(frozen=True, slots=True)
class PerKey:
    """by: the key columns that own a watermark, None for all. idle_ms: if a key has no row while W rises by this much,
    its windows close by W.
    """

    lag_ms: int
    behind_ms: int
    by: tuple[str, ...] | None = None
    idle_ms: int | None = None
    partitions: Partitions = Partitions.SLOWEST

    def __post_init__(self) -> None:
        set_fields(self, lag_ms=number("the lag of keys", self.lag_ms, MS))
        set_fields(self, behind_ms=number("how far keys may be behind", self.behind_ms, MS))
        set_fields(self, idle_ms=number_or_none("the time after which a key is idle", self.idle_ms, MS))
        set_fields(self, by=None if self.by is None else names("by of per_key", self.by))
        expect_member("partitions", self.partitions, Partitions)
        check_length("lag of keys", self.lag_ms)
        check_length("time that keys may be behind", self.behind_ms)
        if self.lag_ms < 0:
            raise OptionError(f"per_key: the lag is {self.lag_ms} ms, it must be 0 or more")
        if self.behind_ms < self.lag_ms:
            raise OptionError(
                f"per_key: behind={span_text(self.behind_ms)} is below lag={span_text(self.lag_ms)}, so that no key "
                "would ever have a watermark of its own that counts: behind must be the longer one"
            )
        if self.idle_ms is not None and self.idle_ms < 1:
            raise OptionError(f"per_key: idle is {self.idle_ms} ms, it must be 1 or more; without idle no key is idle")
        if self.by is not None and not self.by:
            raise OptionError(
                "per_key: by=() leaves no key that could own a watermark: name a key column, or leave it out"
            )

        check_named_once("per_key: by", self.by or ())

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> PerKey:
        """Return the watermarks of a plan's description."""
        by = description["by"]
        partitions = Partitions(description["partitions"])
        return cls(**{**description, "by": None if by is None else tuple(by), "partitions": partitions})

    @property
    def slowest(self) -> bool:
        """Whether a watermark follows the slowest partition of its key."""
        return self.partitions is Partitions.SLOWEST

    def check_plan(self, by: tuple[str, ...], lateness_ms: int, most_rows: int | None) -> None:
        """Raise OptionError for a plan that cannot have such watermarks; by: its key columns."""
        if not by:
            raise OptionError(
                "key_watermark: without key columns there is one watermark: leave per_key out, or give by"
            )
        unknown = [name for name in self.by or () if name not in by]
        if unknown:
            hint = nearest(unknown[0], by)
            raise OptionError(
                f"per_key: by names {unknown[0]!r}, which is not among the key columns {', '.join(map(repr, by))}: a "
                "watermark is owned by one of them, or by a list of some" + (f"; did you mean {hint}?" if hint else "")
            )
        if lateness_ms > self.behind_ms:
            raise OptionError(
                f"the allowed lateness of {span_text(lateness_ms)} is beyond behind={span_text(self.behind_ms)}, where "
                "every window of every key is closed: make behind longer, or lateness shorter"
            )
        if most_rows is not None:
            raise OptionError(
                "max_rows_per_batch holds closed windows back by one watermark for all keys, which is not there with "
                "key_watermark: leave one of them out"
            )
