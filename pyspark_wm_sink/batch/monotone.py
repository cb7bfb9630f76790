"""Watermarks of one channel and key strictly increase (rule 1), within a batch and against the last one.

Rule: the order within a channel is the order of the offsets that the rows carry, whichever task reported a row first.
The coalescer's own check cannot replace this one: it processes watermarks in the order of arrival and also wakes
channels. Here a whole batch is checked before it is published, against the last published batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from keyedwm.arrow.instants import instant_text
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, RegressionError
from keyedwm.core.rows import ORDER, ControlKind
from keyedwm.core.watermark import Guarantee


@dataclass(frozen=True, kw_only=True, slots=True)
class WatermarkAdvances:
    """The last watermark (ms) of each (channel, key) that a batch moved, and how many regressions were ignored.

    reset: the channels whose earlier watermarks no longer count, for all keys.
    """

    highest_ms: Mapping[tuple[str, int], int]
    ignored: int
    reset: frozenset[str] = frozenset()


def check_watermarks(
    last: Mapping[tuple[str, int], int], rows: Iterable[ControlRow], guarantee: Guarantee
) -> WatermarkAdvances:
    """Check the channels' watermark rows of a batch, in any order, against the last published record.

    Under exactly-once, raises RegressionError for the first that does not increase; at-least-once ignores and counts
    them. A reset row restarts the channel: the source lost its state, and earlier watermarks do not count.
    """
    highest: dict[tuple[str, int], int] = {}
    reset: set[str] = set()
    ignored = 0
    kinds = (ControlKind.WATERMARK, ControlKind.RESET)
    of_channels = [row for row in rows if row.kind in kinds and row.channel is not None]
    for row in sorted(of_channels, key=_order):
        if row.kind is ControlKind.RESET and row.channel is not None:
            reset.add(row.channel)
            highest = {at: ms for at, ms in highest.items() if at[0] != row.channel}
            continue
        if row.channel is None or row.key is None or row.watermark_ms is None:
            raise InputError(f"a watermark row of channel {row.channel} has no key or no watermark, it must have both")
        at = (row.channel, row.key)
        before = highest.get(at, None if row.channel in reset else last.get(at))
        if before is None or row.watermark_ms > before:
            highest[at] = row.watermark_ms
        elif guarantee is Guarantee.AT_LEAST_ONCE:
            ignored += 1
        else:
            raise RegressionError(
                f"the watermark of channel {row.channel}, key {row.key} went from {instant_text(before)} to "
                f"{instant_text(row.watermark_ms)}, it must increase: a topic is read twice, control rows were changed "
                f"on the way, or a copy of this checkpoint has run (see the runbook in docs/how-to/runbook.md)"
            )
    return WatermarkAdvances(highest_ms=highest, ignored=ignored, reset=frozenset(reset))


def check_coalesced(last: Mapping[int, int], rows: Iterable[ControlRow], guarantee: Guarantee) -> int:
    """Check the coalesced watermarks of one source, which may stay but never fall; returns how many were ignored.

    Raises RegressionError under exactly-once.
    """
    ignored = 0
    for row in rows:
        if row.kind is not ControlKind.WATERMARK or row.channel is not None or row.key is None:
            continue
        before = last.get(row.key)
        if before is None or row.watermark_ms is None or row.watermark_ms >= before:
            continue
        if guarantee is Guarantee.EXACTLY_ONCE:
            raise RegressionError(
                f"the coalesced watermark of key {row.key} went from {instant_text(before)} to "
                f"{instant_text(row.watermark_ms)}, it must not fall"
            )
        ignored += 1
    return ignored


def _order(row: ControlRow) -> tuple[str, int, int]:
    """Order by offset, a reset first; other rows, as of operators, keep the order of arrival."""
    return (row.channel or "", -1 if row.offset is None else row.offset, ORDER[row.kind])
