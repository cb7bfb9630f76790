"""Reading one split on an executor: fetch, run the policies, lay out rows, and leave the state in Kafka at the end.

Rule: the committed state is a hint (DESIGN section 5.3). A commit that is lost or refused costs the planner a recovery
read, so it is logged and never fails a task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from keyedwm.arrow.rows import ControlRow, Events, RowBuilder, channel_row, pack
from keyedwm.core.encoding import encode_committed
from keyedwm.core.event_time import Place
from keyedwm.core.inline import HEADER
from keyedwm.core.rows import HEADERS, Kind
from keyedwm.kafka.cluster import Cluster, shared
from keyedwm.kafka.errors import Code
from keyedwm.kafka.records import Records, Wanted
from keyedwm.kafka.values import TopicPartition
from keyedwm.worker import task_number
from pyspark_wm_source.channel import After, ChannelRun, EventTimeRun, Observed, Range
from pyspark_wm_source.fetching import fetch
from pyspark_wm_source.options import SourceOptions
from pyspark_wm_source.propagated import PropagatedRun
from pyspark_wm_source.splits import Split, part_group

LOG = logging.getLogger("keyedwm.source")


def scan(split: Split, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one split in `schema`; a channel's rows come in its order."""
    states: list[tuple[Range, After]] = []
    if options.stage is None:
        yield from pack(_rows(split, options, RowBuilder(schema, split.stamps), states))
    else:
        from pyspark_wm_source.staging import StagedRows

        staged = StagedRows(options.stage, split.stamps)
        yield from staged.shipped(_rows(split, options, staged, states), task_number())
    if states and split.group:
        _leave(split, shared(options.client), states)


def recover(
    cluster: Cluster, ranges: Sequence[Range], options: SourceOptions, stamps: Mapping[str, int | None], now_ms: int
) -> dict[TopicPartition, After]:
    """Run the policies over ranges whose committed state is missing; keeps no rows (the planner's recovery read)."""
    runs = [_run(task, options, stamps, now_ms) for task in ranges]
    wanted = _wanted(set(), options)
    for chunk in fetch(cluster, ranges, wanted, options):
        runs[chunk.which].observe(chunk.records)
        if chunk.done:
            runs[chunk.which].end()
    return {run.task.channel: run.after() for run in runs}


def _run(
    task: Range, options: SourceOptions, stamps: Mapping[str, int | None], now_ms: int
) -> ChannelRun | PropagatedRun:
    times = EventTimeRun(task, options.axes, stamps, fail_on_bad_event_time=options.fail_on_bad_event_time)
    if options.propagate:
        return PropagatedRun(task, times, options.guarantee)
    return ChannelRun(task, options.axes, times, now_ms=now_ms)


def _wanted(columns: set[str], options: SourceOptions) -> Wanted:
    """What to decode: the columns of the rows, and whatever holds an event time; control rows inside are no rows."""
    places = {axis.event_time.place for axis in options.axes.values()}
    return Wanted(
        key="key" in columns or Place.KEY in places,
        value="value" in columns or Place.VALUE in places,
        headers=HEADERS in columns or Place.HEADER in places,
        apart=HEADER,
    )


def _rows(
    split: Split, options: SourceOptions, builder: RowBuilder, states: list[tuple[Range, After]]
) -> Iterator[pa.RecordBatch]:
    control = options.emit_control
    if control and split.control:
        yield builder.control(split.control)
    if not split.ranges:
        return
    wanted = _wanted(set(builder.schema.names), options)
    runs = [_run(task, options, split.stamps, split.now_ms) for task in split.ranges]
    unopened = {index for index, task in enumerate(split.ranges) if task.woken or task.opening}
    for index, records, done in fetch(shared(options.client), split.ranges, wanted, options):
        run = runs[index]
        observed = run.observe(records)
        if records.count:
            if control and index in unopened:
                yield builder.control(_opening(run.task, int(records.offset[0])))
            unopened.discard(index)
            yield _events(run.task, records, observed, builder, control=control)
        if done:
            ends = run.end()
            states.append((run.task, run.after()))
            if control:
                opening = _opening(run.task, run.task.end) if index in unopened else []
                yield builder.control([*opening, *_closing(run.task, ends, split, barriers=options.barriers)])


def _events(task: Range, records: Records, observed: Observed, builder: RowBuilder, *, control: bool) -> pa.RecordBatch:
    """Lay out one run of records; in-band watermarks go before the rows that made them true."""
    batch = builder.events(
        Events(
            topic=task.channel.topic,
            partition=task.channel.partition,
            count=records.count,
            key=records.key,
            value=records.value,
            headers=records.headers,
            offset=records.offset,
            timestamp_ms=records.timestamp_ms,
            timestamp_type=records.timestamp_type,
            event_ms=observed.event_ms,
        )
    )
    if not control or not observed.watermarks:
        return batch
    marks = [
        channel_row(Kind.WATERMARK, task.channel, int(records.offset[row]), key=key, watermark_ms=ms)
        for row, key, ms in observed.watermarks
    ]
    return builder.interleave(batch, marks, [row for row, _, _ in observed.watermarks])


def _opening(task: Range, offset: int) -> list[ControlRow]:
    """The rows before a channel's first event, or, if none came, at the end of its range."""
    woken = [channel_row(Kind.ACTIVE, task.channel, offset)] if task.woken else []
    due = [channel_row(Kind.WATERMARK, task.channel, offset, key=key, watermark_ms=ms) for key, ms in task.opening]
    return woken + due


def _closing(task: Range, ends: Sequence[tuple[int, int]], split: Split, *, barriers: bool) -> Iterator[ControlRow]:
    """The rows after a channel's last event: they carry the next offset."""
    for key, ms in ends:
        yield channel_row(Kind.WATERMARK, task.channel, task.end, key=key, watermark_ms=ms)
    if barriers and task.part == task.parts - 1:
        yield channel_row(Kind.BARRIER, task.channel, task.end, snapshot=split.batch, channels=split.channels)


def _leave(split: Split, cluster: Cluster, states: Sequence[tuple[Range, After]]) -> None:
    """Commit every range's state, group by group."""
    groups: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
    for task, after in states:
        state = encode_committed(split.token, split.batch, after.counts, after.axes)
        group = part_group(split.group, task.part, task.parts)
        groups.setdefault(group, {})[task.channel] = (after.next_offset, state)
    for group, positions in groups.items():
        refused = {tp: code for tp, code in cluster.commit_offsets(group, positions).items() if code is not Code.NONE}
        if refused:
            first = min(refused)
            LOG.warning(
                "group %s: the state of %s and %d other partitions was not committed (%s); they are read again",
                group, first, len(refused) - 1, refused[first].name,
            )  # fmt: skip
