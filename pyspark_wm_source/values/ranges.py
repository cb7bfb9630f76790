"""The range of one channel that one task reads, with the channel's state at its start, and the state at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.core.axis import AxisState, Counts
from keyedwm.kafka.client.values import TopicPartition


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRange:
    """The part of one channel that one task reads, and the channel's state at its start.

    reset: its state was lost before this batch; resets: how often that has happened. woken: it was idle until this
    batch. opening: watermarks (key, ms) due before its first event. A channel whose range is cut has several `parts`:
    each starts from a neutral state and has no watermark rows (docs/design/state.md).
    """

    channel: TopicPartition
    start: int
    end: int
    counts: Counts
    axes: Mapping[int, AxisState]
    reset: bool = False
    woken: bool = False
    opening: tuple[tuple[int, int], ...] = ()
    part: int = 0
    parts: int = 1
    topic_id: str | None = None
    resets: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeResult:
    """A channel's state once its range was read.

    cut: it was read in parts, so its watermark was not emitted yet. lossy: it was read again and not
    every record was there any more, so the watermark in it may be lower than what was emitted.
    """

    next_offset: int
    counts: Counts
    axes: Mapping[int, AxisState]
    cut: bool = False
    lossy: bool = False
