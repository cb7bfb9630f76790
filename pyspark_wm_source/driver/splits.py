"""The division of a batch into tasks, and the control rows that the driver already knows.

Rule: everything follows from the end offset and the one before it, so a replayed batch is cut the same way. Few tasks:
a Python task costs about as much as 50,000 rows, so small channels share one, and channels without news need none.
Ranges are cut by `minPartitions` and `maxRecordsPerPartition` as Spark's own source does: records per task first, then
the number of tasks; small ranges stay whole; the parts of a range follow each other without a gap. `maxPartitions`
divides whole ranges among tasks. It may change at a restart, as no row depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from keyedwm.core.axis import NO_COUNTS
from keyedwm.core.control_row import ControlRow, channel_row
from keyedwm.core.rows import ControlKind
from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.options.source_options import LIMITS, Limits, SourceOptions
from pyspark_wm_source.values.offsets import NO_LIMITS, NOT_STARTED, Channel, CutLimits, QueryOffset
from pyspark_wm_source.values.ranges import ChannelRange, Split, group_of_notes


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlSettings:
    """The control rows that a batch has. axes: name → watermark key; the flags: whether the user wants such rows."""

    axes: Mapping[str, int]
    control: bool
    barriers: bool

    @staticmethod
    def of(options: SourceOptions) -> ControlSettings:
        """Return the settings of the options."""
        return ControlSettings(
            axes={name: axis.config.key for name, axis in options.axes.items()},
            control=options.emit_control,
            barriers=options.barriers,
        )


def splits(start: QueryOffset, end: QueryOffset, rows: ControlSettings, limits: Limits = LIMITS) -> list[Split]:
    """Cut the batch that ends at `end` into tasks, by the user's limits when it was planned."""
    known = (*_coalesced_rows(start, end), *_quiet_rows(start, end, barriers=rows.barriers)) if rows.control else ()
    groups = groups_of(list(_ranges(start, end)), end.limits, limits) or ([()] if known else [])
    return [
        Split(
            ranges=group,
            control=() if number else known,
            stamps={name: end.watermark_ms(key) for name, key in rows.axes.items()},
            batch=end.batch,
            channels=len(end.channels),
            source=end.source,
            group=end.group,
            state_key=end.state_key,
            now_ms=end.now_ms,
            ahead_ms=end.ahead_ms,
            notes=group_of_notes(end.group),
        )
        for number, group in enumerate(groups)
    ]


def parts_by_channel(end: QueryOffset) -> dict[TopicPartition, int]:
    """Return into how many parts the range of each channel with news is cut."""
    with_news = dict(end.channels_to_read())
    return dict(zip(with_news, parts_of([channel.read for channel in with_news.values()], end.limits), strict=True))


def _ranges(start: QueryOffset, end: QueryOffset) -> Iterator[ChannelRange]:
    """Channels with news, in order, whole or in parts."""
    parts = parts_by_channel(end)
    for tp, channel in end.channels_to_read():
        opening = _opening(channel) if channel.announced else ()
        whole = parts[tp] == 1
        for part, (first, last) in enumerate(equal_ranges(channel.start, channel.next_offset, parts[tp])):
            yield ChannelRange(
                channel=tp,
                start=first,
                end=last,
                counts=channel.counts if whole else NO_COUNTS,
                axes=channel.axes if whole else {},
                reset=part == 0 and _reset(start, tp, channel),
                woken=part == 0 and _woken(start, tp, channel),
                opening=opening if part == 0 else (),
                part=part,
                parts=parts[tp],
                topic_id=end.topic_ids.get(tp.topic),
                resets=channel.resets,
            )


def groups_of(ranges: list[ChannelRange], limits_of_batch: CutLimits, limits: Limits) -> list[tuple[ChannelRange, ...]]:
    """Join ranges until a group is worth a task; if the user asks for a number of tasks, each range has its own.

    If there are more groups than `maxPartitions`, this number of tasks reads nearly equal shares.
    """
    if limits_of_batch != NO_LIMITS:
        return [(one,) for one in ranges]
    groups: list[list[ChannelRange]] = []
    offsets = limits.offsets_per_task
    for one in ranges:
        if offsets >= limits.offsets_per_task:
            groups.append([])
            offsets = 0
        groups[-1].append(one)
        offsets += one.end - one.start
    if limits.most_tasks is not None and len(groups) > limits.most_tasks:
        return _even_groups(ranges, limits.most_tasks)
    return [tuple(group) for group in groups]


def _even_groups(ranges: Sequence[ChannelRange], count: int) -> list[tuple[ChannelRange, ...]]:
    """Divide ranges into `count` groups of nearly equal size: the largest range first, each to the smallest group."""
    groups: list[list[int]] = [[] for _ in range(count)]
    sizes = [(0, number) for number in range(count)]
    for index in sorted(range(len(ranges)), key=lambda at: ranges[at].start - ranges[at].end):
        size, number = heappop(sizes)
        groups[number].append(index)
        heappush(sizes, (size + ranges[index].end - ranges[index].start, number))
    return [tuple(ranges[index] for index in sorted(group)) for group in sorted(groups, key=min)]


def _opening(channel: Channel) -> tuple[tuple[int, int], ...]:
    """Watermarks that the planner itself moved: they stand before the first event."""
    announced = ((key, channel.axes[key].emitted_ms) for key in channel.announced)
    return tuple((key, ms) for key, ms in announced if ms is not None)


def _woken(start: QueryOffset, tp: TopicPartition, channel: Channel) -> bool:
    before = start.channels.get(tp)
    return before is not None and before.status is Status.IDLE and channel.status is Status.ACTIVE


def _reset(start: QueryOffset, tp: TopicPartition, channel: Channel) -> bool:
    """Whether operators must forget the channel's watermark: its state was lost, or it was perhaps away for a day."""
    before = start.channels.get(tp)
    if before is None and start.batch != NOT_STARTED and tp not in start.retired:
        return True
    return channel.resets > (0 if before is None else before.resets)


def _coalesced_rows(start: QueryOffset, end: QueryOffset) -> Iterator[ControlRow]:
    """The driver's own rows: a coalesced watermark that moved, and the marker of an idle spell that began.

    Rows contain no coalesced watermark below an earlier one: operators accept no decrease.

    A flush that moves with the clock starts a new spell: a watermark makes the channels active, so idle is emitted
    again after it.
    """
    for key, ms in sorted(end.coalesced.emitted.items()):
        told_ms = end.told_ms.get(key)
        if ms != start.watermark_ms(key) and (told_ms is None or ms > told_ms):
            yield ControlRow(kind=ControlKind.WATERMARK, key=key, watermark_ms=ms, source=end.source)
    has_advanced = end.coalesced.emitted != start.coalesced.emitted
    if end.coalesced.idle_spell and (has_advanced or not start.coalesced.idle_spell):
        yield ControlRow(kind=ControlKind.IDLE, source=end.source)


def _quiet_rows(start: QueryOffset, end: QueryOffset, *, barriers: bool) -> Iterator[ControlRow]:
    """Rows of the channels that have nothing to read: reset, (still) idle, woken but starved, and their barriers.

    A source without channels has one barrier, which names no channel: its snapshot is whole (rule 12).
    """
    source, count = end.source, len(end.channels)
    for tp, channel in sorted(end.channels.items()):
        if channel.read:
            continue
        at = channel.next_offset
        if _reset(start, tp, channel):
            yield channel_row(ControlKind.RESET, tp, at, source)
        if _woken(start, tp, channel):
            yield channel_row(ControlKind.ACTIVE, tp, at, source)
        for key in channel.announced:
            ms = channel.axes[key].emitted_ms
            yield channel_row(ControlKind.WATERMARK, tp, at, source, key=key, watermark_ms=ms)
        before = start.channels.get(tp)
        was_idle = before is not None and before.status is Status.IDLE
        if channel.status is Status.IDLE and (channel.announced or not was_idle):
            yield channel_row(ControlKind.IDLE, tp, at, source)
        if barriers:
            yield channel_row(ControlKind.BARRIER, tp, at, source, snapshot=end.batch, channels=count)
    if barriers and not end.channels:
        yield ControlRow(kind=ControlKind.BARRIER, snapshot=end.batch, channels=0, source=source)


def parts_of(sizes: Sequence[int], limits: CutLimits) -> list[int]:
    """Return into how many parts each range (of that many offsets, at least 1) is cut."""
    least_tasks, most_records = limits.least_tasks, limits.most_records
    parts = [1 if most_records is None else -(-size // most_records) for size in sizes]
    if least_tasks is None or sum(parts) >= least_tasks:
        return parts
    pieces = [size / count for size, count in zip(sizes, parts, strict=True)]
    small = [_share(piece, sum(sizes), least_tasks) == 1 for piece in pieces]
    large_total = sum(size for size, whole in zip(sizes, small, strict=True) if not whole)
    task_count = max(least_tasks - sum(count for count, whole in zip(parts, small, strict=True) if whole), 1)
    return [
        count if whole else min(size, count * _share(piece, large_total, task_count))
        for size, count, piece, whole in zip(sizes, parts, pieces, small, strict=True)
    ]


def equal_ranges(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Cut [start, end) into `parts` nearly equal ranges; the last ranges get the remainder."""
    if parts == 1:
        return [(start, end)]
    bounds = [start]
    for left in range(parts, 0, -1):
        bounds.append(bounds[-1] + (end - bounds[-1]) // left)
    return list(pairwise(bounds))


def _share(size: float, total: int, tasks: int) -> int:
    return max(int(size / total * tasks + 0.5), 1)
