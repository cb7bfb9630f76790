"""Which task reads what, and the control rows that the driver already knows.

Rule: everything follows from the end offset and the one before it, so a replayed batch is cut the same way. Few tasks:
a Python task costs about as much as 50,000 rows, so small channels share one, and channels without news need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from keyedwm.arrow.rows import ControlRow, channel_row
from keyedwm.core.counts import Counts
from keyedwm.core.rows import Kind
from keyedwm.core.watermark import Status
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import Range
from pyspark_wm_source.cutting import cut, parts_of
from pyspark_wm_source.offsets import Channel, QueryOffset
from pyspark_wm_source.options import SourceOptions

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Cutting:
    """How a batch is cut: axes name → watermark key; are control and barrier rows wanted; Spark's two limits."""

    axes: Mapping[str, int]
    control: bool
    barriers: bool
    least_tasks: int | None = None
    most_records: int | None = None

    @staticmethod
    def of(options: SourceOptions) -> Cutting:
        """Take what cutting needs from the options."""
        return Cutting(
            axes={name: axis.config.key for name, axis in options.axes.items()},
            control=options.emit_control,
            barriers=options.barriers,
            least_tasks=options.least_tasks,
            most_records=options.most_records,
        )

    def parts(self, end: QueryOffset) -> dict[TopicPartition, int]:
        """Return into how many parts each channel's range is cut."""
        moved = dict(end.moved())
        sizes = [channel.read for channel in moved.values()]
        return dict(
            zip(moved, parts_of(sizes, least_tasks=self.least_tasks, most_records=self.most_records), strict=True)
        )


def splits(start: QueryOffset, end: QueryOffset, how: Cutting) -> list[Split]:
    """Cut the batch that ends at `end` into tasks."""
    known = (*_coalesced_rows(start, end), *_quiet_rows(start, end, barriers=how.barriers)) if how.control else ()
    groups = groups_of(list(_ranges(start, end, how)), how) or ([()] if known else [])
    return [
        Split(
            ranges=group,
            control=() if number else known,
            stamps={name: end.watermark_ms(key) for name, key in how.axes.items()},
            batch=end.batch,
            channels=len(end.channels),
            group=end.group,
            token=end.token,
            now_ms=end.now_ms,
        )
        for number, group in enumerate(groups)
    ]


def part_group(group: str, part: int, parts: int) -> str:
    """Name the consumer group in which the state of one part of a range is left."""
    return group if parts == 1 else f"{group}-{part}"


def _ranges(start: QueryOffset, end: QueryOffset, how: Cutting) -> Iterator[Range]:
    """Channels with news, in order, whole or in parts."""
    parts = how.parts(end)
    for tp, channel in end.moved():
        opening = _opening(channel) if channel.announced else ()
        whole = parts[tp] == 1
        for part, (first, last) in enumerate(cut(channel.start, channel.next_offset, parts[tp])):
            yield Range(
                channel=tp,
                start=first,
                end=last,
                counts=channel.counts if whole else Counts(),
                axes=channel.axes if whole else {},
                woken=part == 0 and _woken(start, tp, channel),
                opening=opening if part == 0 else (),
                part=part,
                parts=parts[tp],
            )


def groups_of(ranges: list[Range], how: Cutting) -> list[tuple[Range, ...]]:
    """Join ranges until a group has enough to pay for its task; a user who asks for tasks gets one per range."""
    if how.least_tasks is not None or how.most_records is not None:
        return [(one,) for one in ranges]
    groups: list[list[Range]] = []
    offsets = OFFSETS_PER_TASK
    for one in ranges:
        if offsets >= OFFSETS_PER_TASK:
            groups.append([])
            offsets = 0
        groups[-1].append(one)
        offsets += one.end - one.start
    return [tuple(group) for group in groups]


def _opening(channel: Channel) -> tuple[tuple[int, int], ...]:
    """Watermarks that the planner itself moved: they stand before the first event."""
    told = ((key, channel.axes[key].emitted_ms) for key in channel.announced)
    return tuple((key, ms) for key, ms in told if ms is not None)


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
