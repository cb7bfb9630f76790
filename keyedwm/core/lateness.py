"""Lateness, decided once for all operators (rules 1 and 11): the rows and windows that a watermark has passed.

Rule: a watermark W promises that no event below W follows.

- A row at t is behind W if `t < W`. A row at W is on time.
- A window has rows below its end. It has ended by a horizon H if `end <= H`. A window that has ended by W is complete.
  A window that has ended by `W - lateness` is expired, and accepts no rows.
- A session that merges with an event exactly at its end can still grow at W = end. Its horizon is 1 ms lower.

A row is late if every window around it is expired. If only the row itself decides (`LateRule.EVENT`, joins, duplicates,
running aggregates), it is late if it is behind the watermark.

`is_behind` and `has_ended` compare numbers, or columns element by element.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from keyedwm.core.errors import InputError
from keyedwm.core.window_rules import LatePolicy, Touching

# The watermark if there is none: below every event time and window end, and far from the limits of int64.
NEVER = -(2**62)

_Other_contra = TypeVar("_Other_contra", contravariant=True)
_Answer_co = TypeVar("_Answer_co", covariant=True)


class Instant(Protocol[_Other_contra, _Answer_co]):
    """A number, or a column of numbers."""

    def __lt__(self, other: _Other_contra, /) -> _Answer_co: ...

    def __le__(self, other: _Other_contra, /) -> _Answer_co: ...


def is_behind(time: Instant[_Other_contra, _Answer_co], watermark: _Other_contra) -> _Answer_co:
    """Return whether a row at this time is behind the watermark."""
    return time < watermark


def has_ended(end: Instant[_Other_contra, _Answer_co], horizon: _Other_contra) -> _Answer_co:
    """Return whether a window with this end has ended by the horizon."""
    return end <= horizon


def delay_ms(lateness_ms: int = 0, touching: Touching = Touching.SEPARATE) -> int:
    """Return how far the horizon of windows or sessions is below the watermark."""
    return lateness_ms + (touching is Touching.MERGE)


def horizon_ms(watermark_ms: int | None, lateness_ms: int = 0, touching: Touching = Touching.SEPARATE) -> int:
    """Return the horizon at a watermark; NEVER if the watermark is None."""
    return NEVER if watermark_ms is None else watermark_ms - delay_ms(lateness_ms, touching)


def check_late(
    policy: LatePolicy, rows: int, time_ms: int, watermark_ms: int | None, *, per_key: bool = False, who: str = ""
) -> None:
    """Raise InputError for late rows that `late="fail"` forbids.

    time_ms: the time of the earliest late row. per_key: whether keys have their own watermarks. who: the beginning of
    the message.
    """
    if policy is not LatePolicy.FAIL:
        return
    behind, allow = f"the watermark of {watermark_ms} ms", "more lateness or a longer watermark lag"
    if per_key:
        floor = "is not there yet" if watermark_ms is None else f"is {watermark_ms} ms"
        behind = f"the watermarks of their keys, each at least `W - behind`, which {floor}"
        allow = "more lateness, or a larger `lag` or `behind` in per_key"
    raise InputError(
        f"{who}{rows} rows were late (earliest: {time_ms} ms), behind {behind}; allow {allow}, or choose late='drop' "
        "or late='emit'"
    )
