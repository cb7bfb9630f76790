"""The limits of the source that no option sets, in one value that its parsed options carry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """offsets_per_task: small ranges share a task up to so many, since a Python task costs about as much.

    recovery_slice_s: how long one call of the planner reads for a recovery read.
    """

    offsets_per_task: int = 50_000
    recovery_slice_s: float = 5.0


LIMITS = Limits()
