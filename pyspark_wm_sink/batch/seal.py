"""Seal a batch: check its report against the last record and return the record to publish.

Rule: values in, values out. Either every requirement holds and a Record is returned, or one error is raised and nothing
has changed. Requirements: every barrier is delivered by all channels and ids increase by one (snapshot=barrier). No
event of a source's channel stands behind its barrier. Watermarks increase (exactly-once).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from keyedwm.core.barriers import (
    BarrierCut,
    collect_cuts,
    delivered_twice,
    first_behind_barrier,
    first_incomplete,
    following_snapshot,
    preceding_snapshot,
    silent_sources,
    undelivered,
)
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import FencedError, InputError
from keyedwm.core.rows import ORDER, ControlKind, is_of_operator
from keyedwm.core.text import listed
from keyedwm.core.watermark import Guarantee
from pyspark_wm_sink.batch.advice import COPY
from pyspark_wm_sink.batch.monotone import WatermarkAdvances, check_coalesced, check_watermarks
from pyspark_wm_sink.batch.record import ChannelRecord, Reads, Record
from pyspark_wm_sink.batch.reports import BatchReport
from pyspark_wm_sink.options.sink_options import SnapshotMode


def seal(last: Record | None, report: BatchReport, mode: SnapshotMode, guarantee: Guarantee) -> Record:
    """Return the record of the batch, building on the last one.

    Raises InputError (barriers missing, out of turn, or overtaken) and RegressionError.
    """
    channels = {} if last is None else last.channels
    cuts = collect_cuts(report.control)
    # A batch without any row (a stateful operator's empty round) needs no barrier.
    if mode is SnapshotMode.BARRIER and (report.rows or report.control):
        _check_barriers(cuts, report, last, guarantee)
    watermarks = {(name, key): ms for name, c in channels.items() for key, ms in c.watermarks.items()}
    advances = check_watermarks(watermarks, report.control, guarantee)
    sources = _sources(last, cuts)
    # Each of united sources coalesces for itself, even in a batch that has rows of only one source.
    is_single = len(cuts) == 1 and len(cuts[0].arrived) == cuts[0].expected and len(sources) <= 1
    if mode is SnapshotMode.BARRIER and is_single:
        fallen = check_coalesced({} if last is None else last.coalesced, report.control, guarantee)
        advances = replace(advances, ignored=advances.ignored + fallen)
    channels_now = _channels(last, report, cuts, advances)
    return _record(last, report, mode, sources, channels_now, ignored=advances.ignored)


def last_status(rows: Iterable[ControlRow]) -> dict[str, ControlKind]:
    """Return each channel's last row that decides whether it is idle: an idle marker, or a row that wakes it."""
    silent = (ControlKind.BARRIER, ControlKind.RESET)
    telling = [row for row in rows if row.channel is not None and row.kind not in silent]
    telling.sort(key=lambda row: (-1 if row.offset is None else row.offset, ORDER[row.kind]))
    return {row.channel: row.kind for row in telling if row.channel is not None}


def check_replay(
    record: Record, report: BatchReport, where: str, guarantee: Guarantee, advice: Callable[[], str]
) -> None:
    """Compare a batch that Spark runs again with the record of its publication in `where`.

    Raises FencedError if the published batch ended at other offsets, or under exactly-once held other rows. Then
    another query has the same id, the checkpoint is an older copy, or the query is not deterministic. advice: returns
    how to continue.
    """
    batch = f"batch {report.batch} of query {report.query} is in {where}"
    differs = _other_places(record, report)
    if differs is not None:
        raise FencedError(f"{batch} with {differs}: {COPY}; {advice()}")
    if guarantee is not Guarantee.EXACTLY_ONCE:
        return
    if record.rows != report.rows:
        differs = f"{record.rows} rows, now it comes with {report.rows}"
    elif record.tops is not None and report.tops_digest() is not None and record.tops != report.tops_digest():
        differs = f"rows up to other offsets than it comes with now ({listed(sorted(report.event_tops))})"
    # If the plans are known and equal, the input is the same.
    causes = "" if _planned_ends(record, report) is not None else f"{COPY}, or "
    if differs is not None:
        raise FencedError(
            f"{batch} with {differs}: {causes}the query gives other rows when it runs again; the published rows "
            f"stand: {advice()}"
        )
    if record.content is not None and report.content not in {None, record.content}:
        raise FencedError(
            f"{batch} with as many rows, but of other content: {causes}the query was changed, or gives other rows when "
            f"it runs again (random numbers, the clock, sums of floats in another order); if the rows that are "
            f"published may stand{' and no copy is the cause' if causes else ''}, set replayCheck=counts, which "
            f"compares the number of rows and offsets only; else {advice()}"
        )


def _planned_ends(record: Record, report: BatchReport) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
    """Return where the published batch ended, and where this one ends; None if a part of either plan is unknown."""
    if record.reads is None or not record.reads.is_whole or report.plan is None or not report.plan.is_all_keyedwm:
        return None
    return record.reads.furthest(), report.plan.reads.furthest()


def _other_places(record: Record, report: BatchReport) -> str | None:
    """Describe a channel in which the two batches end at different places; None if there is none."""
    planned = _planned_ends(record, report)
    if planned is not None and planned[0] != planned[1]:
        there, here = planned
        channel = min(name for name in {**there, **here} if there.get(name) != here.get(name))
        return (
            f"{channel} read up to offset {there.get(channel, 'none')}, now it comes with offset "
            f"{here.get(channel, 'none')}"
        )
    for channel, (snapshot, offset) in sorted(report.delivered().items()):
        of_channel = record.channels.get(channel)
        if of_channel is None or (of_channel.snapshot, of_channel.offset) != (snapshot, offset):
            place_text = (
                "no barrier"
                if of_channel is None
                else f"snapshot {of_channel.snapshot} at next offset {of_channel.offset}"
            )
            return f"{place_text} for channel {channel}, now it comes with snapshot {snapshot} at next offset {offset}"
    return None


def _check_barriers(
    cuts: Sequence[BarrierCut], report: BatchReport, record: Record | None, guarantee: Guarantee
) -> None:
    """Check that each cut is whole and the next of its source; under exactly-once also the order of events."""
    known: Mapping[str, ChannelRecord] = {} if record is None else record.channels
    last = {name: channel.snapshot for name, channel in known.items()}
    if not cuts:
        if not known:
            raise _incomplete("none of the barrier rows of the first snapshot arrived")
        raise _incomplete(f"0 of {len(known)} barrier rows of snapshot {following_snapshot(last.values())} arrived")
    barrier = first_incomplete(cuts)
    if barrier is not None:
        absent = undelivered(cuts, known)
        raise _incomplete(
            f"{barrier.delivered} of {barrier.expected} barrier rows of snapshot {barrier.snapshot} arrived "
            f"({listed(barrier.arrived)}{'; not of ' + listed(absent) if absent else ''})"
        )
    silent = silent_sources(cuts, report.control)
    if silent:
        raise _incomplete(
            f"none of the barrier rows of source {silent[0]}, which has other control rows in this batch, arrived"
        )
    # An event names no source, but the source of a channel with rows has a batch.
    present = {row.channel for row in report.control if row.channel is not None} | set(_own_tops(report))
    lacking = undelivered(cuts, present)
    if lacking:
        raise _incomplete(
            f"the barrier row of channels {listed(lacking)}, which have other rows in this batch, did not arrive",
            f"; if topic or partition are columns of your own, {_DROP_OFFSET}",
        )
    for barrier in cuts:
        before = preceding_snapshot(barrier, last, _sources(record))
        if before is not None and barrier.snapshot != before + 1:
            raise InputError(
                f"snapshot {barrier.snapshot} of {_whose(barrier)} follows snapshot {before} of the last "
                f"batch, it must be {before + 1}: target, ledger or checkpoint is not the one that this query left, or "
                f"other batches were written at-least-once (see the runbook in docs/how-to/runbook.md)"
            )
    if guarantee is Guarantee.EXACTLY_ONCE:
        twice = delivered_twice(cuts)
        if twice is not None:
            raise InputError(
                f"channel {twice} comes from two sources of this query: load the topic once and unite frames of that, "
                f"or write with guarantee=at-least-once; write topics of the same name in two clusters in a query "
                f"each, or mirror one under another name"
            )
        _check_order(report)


# Rows with all three columns belong to the channel that these name.
_DROP_OFFSET = "leave the column offset out: rows without it belong to no channel"


def _incomplete(problem: str, otherwise: str = "") -> InputError:
    return InputError(
        f"{problem} and nothing of this batch was published: the pipeline before the sink filtered or dropped control "
        f"rows (or the source has barriers=false); keep the rows where control is not null, for example with "
        f'.where("control IS NOT NULL OR (...)"); use keyedwm.spark.deduplicate in the place of dropDuplicates, or set '
        f"snapshot=batch{otherwise}"
    )


def _whose(barrier: BarrierCut) -> str:
    return (
        f"channels {listed(barrier.arrived)}" if barrier.arrived else f"source {barrier.source}, which has no channel,"
    )


def _check_order(report: BatchReport) -> None:
    """Raise InputError for an event at or behind its channel's barrier."""
    delivered = report.delivered()
    channel = first_behind_barrier({name: offset for name, (_, offset) in delivered.items()}, _own_tops(report))
    if channel is not None:
        snapshot, offset = delivered[channel]
        raise InputError(
            f"channel {channel} has an event at offset {report.event_tops[channel]}, behind the barrier of snapshot "
            f"{snapshot} at offset {offset}: rows must not cross a barrier under exactly-once (if topic or partition "
            f"are columns of your own, {_DROP_OFFSET})"
        )


def _own_tops(report: BatchReport) -> Mapping[str, int]:
    """The highest offsets of channels whose barriers come with the rows.

    None once an operator delivers a barrier: its results may carry the offsets of its input, whose barriers end there.
    """
    of_operators = any(row.channel is not None and is_of_operator(row.channel) for row in report.barriers)
    return {} if of_operators else report.event_tops


def _sources(last: Record | None, cuts: Sequence[BarrierCut] = ()) -> dict[str, int]:
    """The last snapshot of each source, after the cuts, which are sorted by snapshot."""
    known = {} if last is None or last.sources is None else last.sources
    return {**known, **{barrier.source: barrier.snapshot for barrier in cuts if barrier.source is not None}}


def _channels(
    last: Record | None, report: BatchReport, cuts: Sequence[BarrierCut], advances: WatermarkAdvances
) -> dict[str, ChannelRecord]:
    """The state of each channel after the batch.

    A channel that the whole cut of its source lacks is gone, and dropped. Its source remembers its position, or emits a
    reset when the channel returns (rule 5). So no watermark passes that would have been an error before.
    """
    source_of = {channel: barrier.source for barrier in cuts for channel in barrier.arrived}
    whole = {barrier.source for barrier in cuts if barrier.is_whole and barrier.source is not None}
    before = {} if last is None else last.channels
    channels = {name: one for name, one in before.items() if name in source_of or one.source not in whole}
    for name, (snapshot, offset) in report.delivered().items():
        known = channels.get(name, ChannelRecord())
        channels[name] = replace(known, snapshot=snapshot, offset=offset, source=source_of[name])
    for name in advances.reset:
        channels[name] = replace(channels.get(name, ChannelRecord()), watermarks={})
    for (name, key), ms in advances.highest_ms.items():
        known = channels.get(name, ChannelRecord())
        channels[name] = replace(known, watermarks={**known.watermarks, key: ms})
    for name, kind in last_status(report.control).items():
        channels[name] = replace(channels.get(name, ChannelRecord()), idle=kind is ControlKind.IDLE)
    return channels


def _snapshot(last: Record | None, report: BatchReport, mode: SnapshotMode) -> int | None:
    """Return the number of the newest snapshot, None before the first barrier: each batch with content has its own.

    Of united sources each counts its own snapshots, so the highest number in a batch can be lower than the one before.
    Before the first barrier readers saw the batches' numbers (snapshot=batch), which can be higher, too.
    """
    closed = max((row.snapshot for row in report.barriers if row.snapshot is not None), default=None)
    if last is None:
        return closed
    before = last.snapshot
    if before is None and closed is not None and (mode is SnapshotMode.BATCH or last.rows or last.channels):
        before = last.batch
    if before is None:
        return closed
    has_content = bool(report.rows or report.control)
    return max(closed or 0, before + has_content)


def _reads_of(report: BatchReport) -> Reads | None:
    """Return how far the sources were read with the batch; None for a batch write."""
    if report.batch is None:
        return None
    return Reads(sources=None) if report.plan is None else report.plan.reads


def _record(
    last: Record | None,
    report: BatchReport,
    mode: SnapshotMode,
    sources: Mapping[str, int],
    channels: Mapping[str, ChannelRecord],
    *,
    ignored: int,
) -> Record:
    coalesced = {} if last is None else dict(last.coalesced)
    for row in report.control:
        if (
            row.kind is ControlKind.WATERMARK
            and row.channel is None
            and row.key is not None
            and row.watermark_ms is not None
        ):
            coalesced[row.key] = max(row.watermark_ms, coalesced.get(row.key, row.watermark_ms))
    return Record(
        query=report.query,
        run=report.run,
        batch=report.batch,
        attempt=report.attempt,
        snapshot=_snapshot(last, report, mode),
        rows=report.rows,
        ignored=ignored,
        channels=channels,
        sources=sources or None,
        coalesced=coalesced,
        tops=report.tops_digest(),
        content=report.content,
        reads=_reads_of(report),
    )
