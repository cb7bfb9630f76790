"""Which task reads what, and the control rows that the driver already knows.

Rule: everything follows from the end offset and the one before it, so a replayed batch is cut the same way. Few tasks:
a Python task costs about as much as 50,000 rows, so small channels share one, and channels without news need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from keyedwm.arrow.rows import ControlRow, channel_row
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import Status
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import Range
from pyspark_wm_source.offsets import Channel, QueryOffset

OFFSETS_PER_TASK = 50_000


@dataclass(frozen=True, kw_only=True)
class Split(InputPartition):
    """One task: its channels' ranges, and control rows that stand before all others. Stamps: axis → coalesced ms."""

    ranges: tuple[Range, ...]
    control: tuple[ControlRow, ...]
    stamps: Mapping[str, int | None]
    batch: int
    channels: int
    group: str
    token: str
    now_ms: int


def splits(
    start: QueryOffset, end: QueryOffset, axes: Mapping[str, int], *, control: bool, barriers: bool
) -> list[Split]:
    """Cut the batch that ends at `end` into tasks; axes: name → watermark key; control: are control rows wanted."""
    known = (*_coalesced_rows(start, end), *_quiet_rows(start, end, barriers=barriers)) if control else ()
    groups = list(_groups(start, end)) or ([()] if known else [])
    return [
        Split(
            ranges=group,
            control=() if number else known,
            stamps={name: end.watermark_ms(key) for name, key in axes.items()},
            batch=end.batch,
            channels=len(end.channels),
            group=end.group,
            token=end.token,
            now_ms=end.now_ms,
        )
        for number, group in enumerate(groups)
    ]


def _groups(start: QueryOffset, end: QueryOffset) -> Iterator[tuple[Range, ...]]:
    """Channels with news, in order, until a group has enough to pay for its task."""
    held: list[Range] = []
    for tp, channel in end.moved():
        held.append(
            Range(
                channel=tp,
                start=channel.start,
                end=channel.next_offset,
                bad=channel.bad,
                axes=channel.axes,
                woken=_woken(start, tp, channel),
            )
        )
        if sum(r.end - r.start for r in held) >= OFFSETS_PER_TASK:
            yield tuple(held)
            held = []
    if held:
        yield tuple(held)


def _woken(start: QueryOffset, tp: TopicPartition, channel: Channel) -> bool:
    before = start.channels.get(tp)
    return before is not None and before.status is Status.IDLE and channel.status is Status.ACTIVE


def _coalesced_rows(start: QueryOffset, end: QueryOffset) -> Iterator[ControlRow]:
    """The driver's own rows: a coalesced watermark that moved, and the marker of an idle spell that began."""
    for key, ms in sorted(end.coalesced.emitted.items()):
        if ms != start.watermark_ms(key):
            yield ControlRow(kind=Kind.WATERMARK, key=key, watermark_ms=ms)
    if end.coalesced.idle_spell and not start.coalesced.idle_spell:
        yield ControlRow(kind=Kind.IDLE)


def _quiet_rows(start: QueryOffset, end: QueryOffset, *, barriers: bool) -> Iterator[ControlRow]:
    """Rows of the channels that have nothing to read: gone idle, woken but starved, and their barriers."""
    for tp, channel in sorted(end.channels.items()):
        if channel.read:
            continue
        if _woken(start, tp, channel):
            yield channel_row(Kind.ACTIVE, tp, channel.next_offset)
        for key in channel.announced:
            yield channel_row(
                Kind.WATERMARK, tp, channel.next_offset, key=key, watermark_ms=channel.axes[key].emitted_ms
            )
        before = start.channels.get(tp)
        if channel.status is Status.IDLE and (before is None or before.status is not Status.IDLE):
            yield channel_row(Kind.IDLE, tp, channel.next_offset)
        if barriers:
            count = len(end.channels)
            yield channel_row(Kind.BARRIER, tp, channel.next_offset, snapshot=end.batch, channels=count)
