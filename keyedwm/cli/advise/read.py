"""The end of a topic as a sample: event times, arrival and keys of its newest records, read as the source reads them.

Rule: it only reads, and joins no group. Places, units and the limit of future times come from the source's own code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.places import EventTimeReader, FieldReader, read_fields
from keyedwm.arrow.schema import row_schema
from keyedwm.cli.advise.losses import Numbers, arrivals, zones_of
from keyedwm.core.axis import Counts
from keyedwm.core.errors import InputError
from keyedwm.core.places import Field, Place
from keyedwm.core.rows import KEY, VALUE
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.driver.resolve_offsets import assigned
from pyspark_wm_source.options.axes import guards_of
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.task.channel import NO_VALUES, may_have_time
from pyspark_wm_source.task.decoding import reader_of
from pyspark_wm_source.task.fetching import by_option, fetch
from pyspark_wm_source.task.future import FutureGuard
from pyspark_wm_source.task.scan import needed_columns
from pyspark_wm_source.task.unreadable import long_ago, sentence
from pyspark_wm_source.values.ranges import ChannelRange

_YEAR_1971_MS = 31_536_000_000
_YEAR_1990_MS = 631_152_000_000
_LOG_APPEND_TIME = 1
_NEARLY_ALL = 0.99
_TIMES = ("event_ms", "timestamp_ms")
_COLUMNS = row_schema(("",), headers=False, control=False, columns=(KEY, VALUE))


class TimeFate(IntEnum):
    """The kinds of event times: sound, or wrong in one way."""

    SOUND = 0
    UNREADABLE = 1
    TOMBSTONE = 2  # a null value has no event time, and needs none
    FUTURE = 3
    LONG_AGO = 4  # a time of 1970 in a record of another year: a number in another unit, or a zero


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """Records of a topic's end, by partition and offset, one row each.

    partitions: all partitions of the topic. begin_ms: from this time on the records of all partitions are complete.
    keys: numbers that stand for the keys, None if no key was requested. appended: whether brokers stamped the arrival.
    stamped_by_event: whether timestamps are event times, so that the arrival is unknown. hints: sentences about the
    option eventTimeUnit. zones: partitions whose event times look like those of another zone, and how far ahead of UTC
    (ms).
    """

    partitions: tuple[int, ...]
    partition: Numbers
    arrival_ms: Numbers
    event_ms: Numbers
    fate: NDArray[np.int8]
    keys: Numbers | None
    begin_ms: int
    appended: bool
    stamped_by_event: bool
    hints: tuple[str, ...] = ()
    zones: tuple[tuple[int, int], ...] = ()


OnProgress = Callable[[int, int], None]  # offsets read, and all offsets to read


def read_sample(options: SourceOptions, records: int, key: Field | None, on_progress: OnProgress) -> Sample:
    """Read the newest records; raises InputError if there are none, and the client's errors."""
    now_ms = time.time_ns() // 1_000_000
    with closing(Cluster.connect(options.client)) as cluster:
        channels = assigned(cluster, options.topics, running=False)
        ends = cluster.latest(channels)
        # A log may begin behind its last stable offset, if all earlier records are deleted.
        first = {tp: min(offset, ends[tp]) for tp, offset in cluster.earliest(channels).items()}
        starts = newest(first, ends, records)
        ranges = [ChannelRange(channel=tp, start=starts[tp], end=ends[tp], counts=Counts(), axes={}) for tp in channels]
        parts = _parts(cluster, ranges, options, key, (now_ms, on_progress))
    topic = channels[0].topic
    if not parts:
        raise InputError(f"topic {topic} has no record in its {len(channels)} partitions: nothing to advise from")
    return _sample(parts, channels, {tp.partition for tp in channels if starts[tp] > first[tp]}, now_ms)


def newest(
    first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], records: int
) -> dict[TopicPartition, int]:
    """Return the first offsets: the partitions share `records` evenly; if one is short, others get its share."""
    starts, left = {}, records
    by_size = sorted(first, key=lambda tp: ends[tp] - first[tp])
    for number, tp in enumerate(by_size):
        share = min(ends[tp] - first[tp], left // (len(by_size) - number))
        starts[tp], left = ends[tp] - share, left - share
    return starts


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    partition: int
    timestamp_ms: Numbers
    event_ms: Numbers
    fate: NDArray[np.int8]
    key: pa.Array | None
    appended: bool
    hint: str | None


def _parts(
    cluster: Cluster,
    ranges: Sequence[ChannelRange],
    options: SourceOptions,
    key: Field | None,
    how: tuple[int, OnProgress],
) -> list[_Part]:
    now_ms, on_progress = how
    columns = set() if key is None else {key.column}
    selection = needed_columns(columns, options)
    at, total = [r.start for r in ranges], sum(r.end - r.start for r in ranges)
    judges = [_Judge(r.channel, options, key, now_ms) for r in ranges]
    field = None if key is None else FieldReader(key, _COLUMNS)
    parts = []
    on_progress(0, total)
    for which, records, _ in fetch(cluster, ranges, selection, options.client.isolation, by_option(options)):
        at[which] = records.next_offset
        on_progress(sum(at) - sum(r.start for r in ranges), total)
        if records.count:
            parts.append(judges[which].part(records, field))
    return sorted(parts, key=lambda part: part.partition)  # stable: the order of offsets stays


class _Judge:
    """Reads the event times of one partition, and classifies them."""

    def __init__(self, channel: TopicPartition, options: SourceOptions, key: Field | None, now_ms: int) -> None:
        self._channel, self._first = channel, True
        axes, keys = options.axes, () if key is None else (key,)
        ((self._name, axis),) = axes.items()
        self._values = reader_of(options.formats.lenient(), channel, keys, [axis.event_time])
        self._spec = axis.event_time
        self._reader = EventTimeReader(axis.event_time)
        self._guard = FutureGuard(channel, axes, guards_of(axes, {}), now_ms)

    def part(self, records: Records, field: FieldReader | None) -> _Part:
        """Return event times in ms, the fate of each record, and the keys that `field` reads, if there is one."""
        values = NO_VALUES if self._values is None else self._values.read(records)
        if self._spec in values.times:
            times = values.times[self._spec]
        else:
            times = self._reader.read(records.timestamp_ms, records.key, records.value, records.headers)
        ms, valid = times
        fate = np.zeros(records.count, np.int8)
        if valid is not None:
            fate[~valid] = TimeFate.UNREADABLE
            may = may_have_time(self._spec, records)
            if may is not None:
                fate[~may] = TimeFate.TOMBSTONE
        _, is_timely = self._guard.judge(records, {self._name: times}).of_watermark[self._name]
        if is_timely is not None:
            fate[(fate == TimeFate.SOUND) & ~is_timely] = TimeFate.FUTURE
        long_past = (
            (fate == TimeFate.SOUND) & (ms >= 0) & (ms < _YEAR_1971_MS) & (records.timestamp_ms >= _YEAR_1990_MS)
        )
        fate[long_past] = TimeFate.LONG_AGO
        hint = self._hint(records, times, fate) if self._first and self._spec not in values.times else None
        self._first = False
        key = None if field is None else read_fields([field], _batch(records).column, values.fields)[0]
        appended = bool((records.timestamp_type == _LOG_APPEND_TIME).all())
        return _Part(self._channel.partition, records.timestamp_ms, ms, fate, key, appended, hint)

    def _hint(
        self, records: Records, times: tuple[Numbers, NDArray[np.bool_] | None], fate: NDArray[np.int8]
    ) -> str | None:
        """Return a sentence with the unit that would read the first records, as the source words it."""
        if (fate == TimeFate.UNREADABLE).all():
            return sentence(str(self._channel), self._spec, records)
        if self._spec.place in (Place.TIMESTAMP, Place.SINK_HEADER):
            return None
        return long_ago(str(self._channel), self._spec, records, times)


def _batch(records: Records) -> pa.RecordBatch:
    absent = pa.nulls(records.count, pa.binary())
    columns = {KEY: records.key, VALUE: records.value}
    return pa.RecordBatch.from_arrays(
        [absent if columns[name] is None else columns[name] for name in _COLUMNS.names], schema=_COLUMNS
    )


def _sample(parts: Sequence[_Part], channels: Sequence[TopicPartition], cut_off: set[int], now_ms: int) -> Sample:
    partition = np.concatenate([np.full(len(part.fate), part.partition, np.int64) for part in parts])
    event_ms, timestamp_ms = (np.concatenate([getattr(part, name) for part in parts]) for name in _TIMES)
    arrival_ms = arrivals(timestamp_ms, partition, now_ms)
    first = np.flatnonzero(np.r_[True, np.diff(partition) != 0])
    # The records of a partition before its first record here are unknown: counting begins where all are complete.
    complete = [int(arrival_ms[row]) for row in first if int(partition[row]) in cut_off]
    keys = None
    if parts[0].key is not None:
        key_column = pa.chunked_array([part.key for part in parts]).combine_chunks()
        keys = key_column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    fate = np.concatenate([part.fate for part in parts])
    has_time = (fate == TimeFate.SOUND) | (fate == TimeFate.FUTURE)
    return Sample(
        partitions=tuple(tp.partition for tp in channels),
        partition=partition,
        arrival_ms=arrival_ms,
        event_ms=event_ms,
        fate=fate,
        keys=keys,
        begin_ms=max(complete, default=int(arrival_ms.min())),
        appended=all(part.appended for part in parts),
        stamped_by_event=bool(np.mean(event_ms == timestamp_ms) >= _NEARLY_ALL),
        hints=tuple(part.hint for part in parts if part.hint is not None),
        zones=tuple(zones_of(event_ms[has_time], timestamp_ms[has_time], partition[has_time]).items()),
    )


def in_arrival_order(sample: Sample) -> Sample:
    """Sort by arrival: by offset within a partition, and by the records' timestamps across partitions."""
    order = np.argsort(sample.arrival_ms, kind="stable")
    return replace(
        sample,
        partition=sample.partition[order],
        arrival_ms=sample.arrival_ms[order],
        event_ms=sample.event_ms[order],
        fate=sample.fate[order],
        keys=None if sample.keys is None else sample.keys[order],
    )
