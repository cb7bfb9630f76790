"""Reading one split on an executor: fetch, run the policies, lay out rows, and commit the state to Kafka at the end.

Rule: the committed state is a hint (docs/design/state.md). A commit that is lost or fails costs the planner a recovery
read, so it is logged and never fails a task.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from keyedwm.arrow.places import FieldColumns
from keyedwm.arrow.rows import Events, RowBuilder, pack
from keyedwm.core.control_row import ControlRow, channel_row
from keyedwm.core.encoding import CommittedState, encode_committed
from keyedwm.core.errors import KeyedwmError
from keyedwm.core.inline import HEADER
from keyedwm.core.places import Field, OnBadValue, Place
from keyedwm.core.rows import HEADERS, KEY, REJECTED, VALUE, ControlKind
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.records.read import ColumnSelection, Records
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.runtime.worker import task_number
from pyspark_wm_source.options.axes import guards_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.channel import ChannelRun, EventTimeRun, Observed
from pyspark_wm_source.task.fetching import by_option, fetch
from pyspark_wm_source.task.future import FutureGuard
from pyspark_wm_source.task.items import ControlRun, EventRun, Item, PlacedControl, lay_out
from pyspark_wm_source.task.propagated import PropagatedRun
from pyspark_wm_source.values.offsets import STATE_TIMEOUT_MS, state_place
from pyspark_wm_source.values.outage import Outage
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult, Split, part_group

if TYPE_CHECKING:
    from pyspark_wm_source.task.unknown_ids import Notes, UnknownIds

LOG = logging.getLogger("keyedwm.source")
_outages: dict[str, Outage] = {}  # group → the outage of its coordinator, as this process knows it


def scan(split: Split, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one split in `schema`; the rows of a channel come in the order of its log."""
    states: list[tuple[ChannelRange, RangeResult]] = []
    stage = options.stage
    read = schema if stage is None else stage.columns
    columns = set(read.names)
    if options.has_rejected_column:
        columns.add(REJECTED)
    items = _items(split, options, columns, states)
    for where in options.where:
        from pyspark_wm_source.task.filtering import filtered  # a source without filters need not load conditions

        items = filtered(items, where, split.stamps)
    items = _with_warnings(items, options, columns)
    fields = FieldColumns(options.selection.fields, columns) if options.selection.fields else None
    builder = RowBuilder(read, split.stamps, fields)
    if stage is None:
        yield from pack(lay_out(items, builder))
    else:
        from pyspark_wm_source.task.items import run_stage  # a plain read need not load windows and joins

        yield from run_stage(items, stage, builder, task_number())
    if states and split.group:
        _commit_states(split, shared(options.client), states, options)


def _with_warnings(items: Iterator[Item], options: SourceOptions, columns: Collection[str]) -> Iterator[Item]:
    """Yield the items, with warnings of missing fields; a read of no fields need not load their module."""
    stage = options.stage
    fields = [field for name, field in options.selection.fields.items() if name in columns]
    fields += [] if stage is None else [reader.field for reader in stage.readers]
    if not any(field.path for field in fields):
        return items
    from pyspark_wm_source.task.empty_fields import Asker, with_warnings

    return with_warnings(items, fields, Asker.COLUMNS if stage is None else Asker.OPERATOR)


def policy_run(
    task: ChannelRange,
    options: SourceOptions,
    stamps: Mapping[str, int | None],
    now_ms: int,
    ahead_ms: Mapping[int, int],
    *,
    columns: Collection[str] | None = None,
    notes: Notes | None = None,
) -> ChannelRun | PropagatedRun:
    """Return the run that computes the watermarks of one range.

    ahead_ms: as in the batch's offset. columns: the columns of the rows. notes: the ids that are unknown in the range.
    """
    value_reader = None
    if options.formats.each:
        from pyspark_wm_source.task.decoding import reader_of  # a read of values without a schema need not load it

        fields = () if columns is None else decoded_fields(columns, options)
        times_at = [axis.event_time for axis in options.axes.values()]
        value_reader = reader_of(options.formats, task.channel, fields, times_at, notes)
    times = EventTimeRun(task, options.axes, stamps, on_bad=options.on_bad, value_reader=value_reader)
    if options.propagate:
        return PropagatedRun(task, times, options.guarantee, options.control_authors)
    guard = FutureGuard(task.channel, options.axes, guards_of(options.axes, ahead_ms), now_ms)
    return ChannelRun(task, options.axes, times, guard, now_ms=now_ms)


def counted_columns(options: SourceOptions) -> set[str] | None:
    """Return the columns whose bad values a task counts; None if no value can be bad, or a bad one stops the query."""
    if all(one.on_bad is OnBadValue.FAIL for one in options.formats.each):
        return None
    return set(options.selection.fields if options.stage is None else options.stage.columns.names)


def decoded_fields(columns: Collection[str], options: SourceOptions) -> list[Field]:
    """Return the fields that rows of these columns, filters and an operator's first step need."""
    fields = [field for name, field in options.selection.fields.items() if name in columns]
    fields += (field for where in options.where for field in where.fields.values())
    return fields if options.stage is None else [*fields, *(reader.field for reader in options.stage.readers)]


def needed_columns(columns: set[str], options: SourceOptions) -> ColumnSelection:
    """Return the columns to decode: columns of the rows, columns of the filter, and places of event times.

    Control records are no rows. A rejected record is returned whole.
    """
    places = {axis.event_time.place for axis in options.axes.values()}
    read = {place.column for place in places}
    whole = REJECTED in columns
    columns_needed = columns | {field.column for name, field in options.selection.fields.items() if name in columns}
    columns_needed = columns_needed.union(*(where.decoded for where in options.where))
    return ColumnSelection(
        key=whole or KEY in columns_needed or KEY in read,
        value=whole or VALUE in columns_needed or VALUE in read,
        headers=whole
        or HEADERS in columns_needed
        or not places.isdisjoint((Place.HEADER, Place.SINK_HEADER))
        or any(one.name.has_headers and one.column in columns_needed | read for one in options.formats.each),
        control_header=HEADER,
    )


def _items(
    split: Split, options: SourceOptions, columns: set[str], states: list[tuple[ChannelRange, RangeResult]]
) -> Iterator[Item]:
    """Yield the items of the split; add the state at the end of each range to `states`."""
    control = options.emit_control
    if control and split.control:
        yield ControlRun(rows=split.control)
    if not split.ranges:
        return
    selection = needed_columns(columns, options)
    notes = _notes(split, options)
    runs = [
        policy_run(
            task, options, split.stamps, split.now_ms, split.ahead_ms,
            columns=columns, notes=None if notes is None else notes.of([index]),
        )
        for index, task in enumerate(split.ranges)
    ]  # fmt: skip
    unopened = {index for index, task in enumerate(split.ranges) if task.reset or task.woken or task.opening}
    chunks = fetch(shared(options.client), split.ranges, selection, options.client.isolation, by_option(options))
    for index, records, done in chunks:
        run = runs[index]
        observed = run.observe(records)
        if records.count:
            if control and index in unopened:
                yield ControlRun(rows=_opening(run.task, int(records.offset[0]), split.source))
            unopened.discard(index)
            yield _event_run(run.task, records, observed, split.source if control else None)
        if done:
            ends = run.end()
            states.append((run.task, run.result()))
            if control:
                opening = _opening(run.task, run.task.end, split.source) if index in unopened else ()
                yield ControlRun(rows=(*opening, *_closing(run.task, ends, split, barriers=options.barriers)))


def _notes(split: Split, options: SourceOptions) -> UnknownIds | None:
    """Return the notes about unknown ids; None if no row depends on them, or the read is no stream."""
    if not (split.notes and options.formats.notes_unknown_ids):
        return None
    from pyspark_wm_source.task.unknown_ids import UnknownIds  # a read of values without a schema need not load it

    key = options.state_key(split.state_key)
    return UnknownIds(shared(options.client), split.notes, split.batch, split.ranges, key)


def _event_run(task: ChannelRange, records: Records, observed: Observed, source: str | None) -> EventRun:
    """Return one run of records.

    A watermark row precedes the row that caused it. source: None for no watermarks.
    """
    events = Events(
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
        rejects=observed.rejects,
        decoded=observed.decoded,
    )
    if source is None:
        return EventRun(events=events)
    tp, offsets = task.channel, records.offset
    watermarks = (
        PlacedControl(
            before=row,
            row=channel_row(ControlKind.WATERMARK, tp, int(offsets[row]), source, key=key, watermark_ms=ms),
        )
        for row, key, ms in observed.watermarks
    )
    return EventRun(events=events, control=tuple(watermarks))


def _opening(task: ChannelRange, offset: int, source: str) -> tuple[ControlRow, ...]:
    """The rows before a channel's first event, or, without an event, at the end of its range."""
    tp = task.channel
    reset = (channel_row(ControlKind.RESET, tp, offset, source),) if task.reset else ()
    woken = (channel_row(ControlKind.ACTIVE, tp, offset, source),) if task.woken else ()
    due = (channel_row(ControlKind.WATERMARK, tp, offset, source, key=key, watermark_ms=ms) for key, ms in task.opening)
    return (*reset, *woken, *due)


def _closing(
    task: ChannelRange, ends: Sequence[tuple[int, int]], split: Split, *, barriers: bool
) -> Iterator[ControlRow]:
    """The rows after a channel's last event: they carry the next offset."""
    tp, at, source = task.channel, task.end, split.source
    for key, ms in ends:
        yield channel_row(ControlKind.WATERMARK, tp, at, source, key=key, watermark_ms=ms)
    if barriers and task.part == task.parts - 1:
        yield channel_row(ControlKind.BARRIER, tp, at, source, snapshot=split.batch, channels=split.channels)


def _commit_states(
    split: Split, cluster: Cluster, states: Sequence[tuple[ChannelRange, RangeResult]], options: SourceOptions
) -> None:
    """Commit every range's state, group by group; log a failure, which costs a recovery read."""
    outage = _outages.setdefault(split.group, Outage())
    if outage.is_paused(time.monotonic()):
        return
    key = options.state_key(split.state_key)
    groups: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
    for task, result in states:
        group = part_group(split.group, task.part, task.parts)
        place = state_place(group, task.channel, result.next_offset, options.settings, task.resets)
        state = encode_committed(CommittedState(split.batch, result.counts, result.axes), key, place)
        groups.setdefault(group, {})[task.channel] = (result.next_offset, state)
    for group, positions in groups.items():
        try:
            answers = cluster.commit_offsets(group, positions, timeout_ms=STATE_TIMEOUT_MS)
        except KeyedwmError as error:
            if outage.note(error.message, time.monotonic()):
                LOG.warning(
                    "group %s: the states of %d partitions were not committed, they are read again: %s",
                    group, len(positions), error.message,
                )  # fmt: skip
            return  # the coordinators of the other groups are waited for no longer
        outage.over()
        refused = {tp: code for tp, code in answers.items() if code is not Code.NONE}
        if refused:
            first = min(refused)
            LOG.warning(
                "group %s: the state of %s and %d other partitions was not committed (%s); they are read again",
                group, first, len(refused) - 1, refused[first].name,
            )  # fmt: skip
