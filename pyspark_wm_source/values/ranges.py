"""The work of one reading task, as the planner sends it to an executor: ranges of channels, with their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.control_row import ControlRow
from keyedwm.core.pickles import pickled_by_fields
from keyedwm.kafka.client.values import TopicPartition


@pickled_by_fields
@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRange:
    """The part of one channel that one task reads, and the channel's state at its start.

    reset: the channel's state was lost before this batch. resets: how often that has happened. woken: the channel was
    idle until this batch. opening: watermarks (key, ms) due before its first event. A channel whose range is cut has
    several `parts`: each starts from a neutral state and has no watermark rows (docs/design/state.md).
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
    """A channel's state behind its range.

    in_parts: the range was read in parts, so its watermark was not emitted yet. lossy: the range was read again and
    records were missing, so the watermark may be lower than the emitted one.
    """

    next_offset: int
    counts: Counts
    axes: Mapping[int, AxisState]
    in_parts: bool = False
    lossy: bool = False


@dataclass(frozen=True, kw_only=True)
class Split(InputPartition):
    """One task: its channels' ranges, and control rows that stand before all others.

    stamps: axis → coalesced ms. source: the id that its control rows carry. ahead_ms: watermark key → how far an event
    time may be ahead. notes: the consumer group of notes about unknown ids, empty for none.
    """

    ranges: tuple[ChannelRange, ...]
    control: tuple[ControlRow, ...]
    stamps: Mapping[str, int | None]
    batch: int
    channels: int
    source: str
    group: str
    state_key: str = field(repr=False)
    now_ms: int
    ahead_ms: Mapping[int, int] = field(default_factory=dict)
    notes: str = ""


def group_of_notes(group: str) -> str:
    """Name the consumer group in which a query notes the ids that no schema has."""
    return f"{group}-unknown"


def part_group(group: str, part: int, parts: int) -> str:
    """Name the consumer group in which the state of one part of a range is left."""
    return group if parts == 1 else f"{group}-{part}"
