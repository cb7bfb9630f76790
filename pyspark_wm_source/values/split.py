"""The work of one reading task, as the planner sends it to an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from keyedwm.core.control_row import ControlRow
from pyspark_wm_source.values.ranges import ChannelRange


@dataclass(frozen=True, kw_only=True)
class Split(InputPartition):
    """One task: its channels' ranges, and control rows that stand before all others.

    stamps: axis → coalesced ms. source: the id that its control rows carry.
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


def part_group(group: str, part: int, parts: int) -> str:
    """Name the consumer group in which the state of one part of a range is left."""
    return group if parts == 1 else f"{group}-{part}"
