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
from keyedwm.core.rows import HEADERS, Kind
from keyedwm.kafka.cluster import Cluster, shared
from keyedwm.kafka.errors import Code
from keyedwm.kafka.records import Records, Wanted
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.channel import After, ChannelRun, Observed, Range
from pyspark_wm_source.fetching import fetch
from pyspark_wm_source.options import SourceOptions
from pyspark_wm_source.splits import Split

LOG = logging.getLogger("keyedwm.source")


def scan(split: Split, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one split in `schema`; a channel's rows come in its order."""
    builder = RowBuilder(schema, split.stamps)
    states: dict[TopicPartition, After] = {}
    yield from pack(_rows(split, options, builder, states))
    if states:
        _leave(split, shared(options.client), states)


def recover(
    cluster: Cluster, ranges: Sequence[Range], options: SourceOptions, now_ms: int
) -> dict[TopicPartition, After]:
    """Run the policies over ranges whose committed state is missing; keeps no rows (the planner's recovery read)."""
    runs = [_run(task, options, now_ms) for task in ranges]
    wanted = _wanted(set(), options)
    for chunk in fetch(cluster, ranges, wanted, options):
        runs[chunk.which].observe(chunk.records)
        if chunk.done:
            runs[chunk.which].end()
    return {run.task.channel: run.after() for run in runs}


def _run(task: Range, options: SourceOptions, now_ms: int) -> ChannelRun:
    return ChannelRun(task, options.axes, now_ms=now_ms, fail_on_bad_event_time=options.fail_on_bad_event_time)


def _wanted(columns: set[str], options: SourceOptions) -> Wanted:
    """What to decode: the columns of the rows, and whatever holds an event time."""
    places = {axis.event_time.place for axis in options.axes.values()}
    return Wanted(
        key="key" in columns or Place.KEY in places,
        value="value" in columns or Place.VALUE in places,
        headers=HEADERS in columns or Place.HEADER in places,
    )


def _rows(
    split: Split, options: SourceOptions, builder: RowBuilder, states: dict[TopicPartition, After]
) -> Iterator[pa.RecordBatch]:
    control = options.emit_control
    if control and split.control:
        yield builder.control(split.control)
    if not split.ranges:
        return
    wanted = _wanted(set(builder.schema.names), options)
    runs = [_run(task, options, split.now_ms) for task in split.ranges]
    woken = {index for index, task in enumerate(split.ranges) if task.woken}
    for index, records, done in fetch(shared(options.client), split.ranges, wanted, options):
        run = runs[index]
        observed = run.observe(records)
        if records.count and index in woken:
            woken.discard(index)
            if control:
                yield builder.control([channel_row(Kind.ACTIVE, run.task.channel, int(records.offset[0]))])
        if records.count:
            yield _events(run.task, records, observed, builder, control=control)
        if done:
            ends = run.end()
            states[run.task.channel] = run.after()
            if control:
                rows = _closing(run.task, ends, split, woken=index in woken, barriers=options.barriers)
                yield builder.control(list(rows))


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


def _closing(
    task: Range, ends: Sequence[tuple[int, int]], split: Split, *, woken: bool, barriers: bool
) -> Iterator[ControlRow]:
    """The rows after a channel's last event: they carry the next offset. `woken`: no event came to carry the news."""
    if woken:
        yield channel_row(Kind.ACTIVE, task.channel, task.end)
    for key, ms in ends:
        yield channel_row(Kind.WATERMARK, task.channel, task.end, key=key, watermark_ms=ms)
    if barriers:
        yield channel_row(Kind.BARRIER, task.channel, task.end, snapshot=split.batch, channels=split.channels)


def _leave(split: Split, cluster: Cluster, states: Mapping[TopicPartition, After]) -> None:
    """Commit every channel's state in one request."""
    positions: dict[tuple[str, int], tuple[int, str]] = {
        tp: (after.next_offset, encode_committed(split.token, split.batch, after.bad, after.axes))
        for tp, after in states.items()
    }
    refused = {tp: code for tp, code in cluster.commit_offsets(split.group, positions).items() if code is not Code.NONE}
    for tp, code in sorted(refused.items()):
        LOG.warning(
            "group %s: the state of %s was not committed (%s); it will be read again", split.group, tp, code.name
        )
