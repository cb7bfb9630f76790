"""Watermarks of one channel and key strictly increase (DESIGN rule 1), within a batch and against the last one.

Rule: the order inside a channel is the one the rows carry, their offset; which task brought a row first means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from keyedwm.arrow.rows import ControlRow
from keyedwm.core.errors import InputError, RegressionError
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import Guarantee

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rise:
    """The last watermark (ms) of each (channel, key) that a batch moved, and how many regressions were swallowed."""

    reached: Mapping[tuple[str, int], int]
    swallowed: int


def rise(last: Mapping[tuple[str, int], int], rows: Iterable[ControlRow], guarantee: Guarantee) -> Rise:
    """Check the channels' watermark rows of a batch, in any order, against what was published before.

    Raises RegressionError for the first that does not increase (exactly-once); at-least-once swallows and counts.
    """
    reached: dict[tuple[str, int], int] = {}
    swallowed = 0
    of_channels = [row for row in rows if row.kind is Kind.WATERMARK and row.channel is not None]
    for row in sorted(of_channels, key=_order):
        if row.channel is None or row.key is None or row.watermark_ms is None:
            raise InputError(f"a watermark row of channel {row.channel} has no key or no watermark, it must have both")
        at = (row.channel, row.key)
        before = reached.get(at, last.get(at))
        if before is None or row.watermark_ms > before:
            reached[at] = row.watermark_ms
        elif guarantee is Guarantee.AT_LEAST_ONCE:
            swallowed += 1
        else:
            raise RegressionError(
                f"the watermark of channel {row.channel}, key {row.key} went from {shown(before)} to "
                f"{shown(row.watermark_ms)}, it must increase"
            )
    return Rise(reached=reached, swallowed=swallowed)


def _order(row: ControlRow) -> tuple[str, int, int]:
    """Order by offset; rows of one offset carry no order among them, so the lower watermark comes first.

    Rows without an offset (an operator's channel) keep the order in which they arrived.
    """
    if row.offset is None:
        return (row.channel or "", -1, 0)
    return (row.channel or "", row.offset, row.watermark_ms or 0)


def shown(time_ms: int) -> str:
    """Show a time in epoch ms and in ISO, as far as the calendar reaches."""
    try:
        iso = (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{time_ms} ms"
    return f"{time_ms} ms ({iso.replace('+00:00', 'Z')})"
