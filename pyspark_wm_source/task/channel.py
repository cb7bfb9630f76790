"""One channel's run over its range of one batch: event times, watermarks, counts; no rows are built here.

Rule: executors and the planner's recovery read run this same code, so a lost commit can change no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.arrow.axis import AxisRun, late
from keyedwm.arrow.places import EventTimeReader, EventTimes
from keyedwm.arrow.rows import Rejects
from keyedwm.core.axis import AxisState, Counts
from keyedwm.core.errors import InputError
from keyedwm.core.places import EventTime, Field, OnBadTime, Place
from keyedwm.core.rows import VALUE
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.axes import TimeAxis
from pyspark_wm_source.task.future import FutureGuard
from pyspark_wm_source.task.unreadable import (
    only,
    refusal,
    warn_if_long_ago,
    warn_undecoded,
    warn_unreadable,
    warn_unwritten,
)
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """Event times of a run of records, per axis, and watermarks between the records as (the next record, key, ms).

    watermarks: none if the range has several parts. rejects: the records that are no events. decoded: the fields that
    were read with a schema.
    """

    event_ms: Mapping[str, EventTimes]
    watermarks: tuple[tuple[int, int, int], ...]
    rejects: Rejects | None = None
    decoded: Mapping[Field, pa.Array] = field(default_factory=dict)


class ReadValues(NamedTuple):
    """Fields and event times of values with a schema.

    rejects: the records that are rejected for their values, None for none. bad: (fault, number of values), as in
    `Counts`.
    """

    fields: Mapping[Field, pa.Array]
    times: Mapping[EventTime, EventTimes]
    rejects: Rejects | None = None
    bad: tuple[tuple[int, int], ...] = ()


NO_VALUES = ReadValues({}, {})


class Reader(Protocol):
    """Reads the values of records that have a schema."""

    def read(self, records: Records) -> ReadValues:
        """Read some records."""


class ReadTimes(NamedTuple):
    """The event times of a run of records by axis.

    rejects: the records that are no events, None for none. decoded: the fields that were read with a schema.
    """

    by_axis: Mapping[str, EventTimes]
    rejects: Rejects | None
    decoded: Mapping[Field, pa.Array]


class _AxisTimes(NamedTuple):
    """The event times of one axis, and the records whose event time cannot be read, None for none."""

    ms: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    unreadable: NDArray[np.bool_] | None


class EventTimeRun:
    """The event times of all axes over one channel's range; counts unreadable and late event times.

    stamps: axis → the coalesced watermark of the batch (ms, None if there is none).
    """

    def __init__(
        self,
        task: ChannelRange,
        axes: Mapping[str, TimeAxis],
        stamps: Mapping[str, int | None],
        *,
        on_bad: OnBadTime,
        value_reader: Reader | None = None,
    ) -> None:
        self.counts = task.counts
        self._stamps = stamps
        self.keys = {name: axis.config.key for name, axis in axes.items()}
        self._channel = task.channel
        self._axes = axes
        self._on_bad = on_bad
        self._value_reader = value_reader
        # Whether no batch before read an event time of the channel: there is neither a watermark nor a bad event time.
        self._fresh = {name: task.counts.bad == 0 and key not in task.axes for name, key in self.keys.items()}
        self._readers = {name: EventTimeReader(axis.event_time) for name, axis in axes.items()}

    def count_control(self, number: int) -> None:
        """Count records with the reserved header that are neither rows nor read as control records."""
        self.counts = self.counts.plus(Counts(control=number))

    def count_future(self, number: int) -> None:
        """Count event times that are too far ahead."""
        self.counts = self.counts.plus(Counts(future=number))

    def read(self, records: Records) -> ReadTimes:
        """Read the event times.

        A record that is rejected for the time of one axis has no time on any, and moves no watermark. A record that is
        rejected for its value keeps a time that was read before the damage, and that time moves the watermark.
        """
        values = NO_VALUES if self._value_reader is None else self._value_reader.read(records)
        axes = {name: self._axis_times(name, records, values) for name in self._readers}
        rejects = self._rejects(axes) if self._on_bad is OnBadTime.REJECT else None
        times = {name: (one.ms, one.valid) for name, one in axes.items()}
        if rejects is None:
            bad = sum(int(np.count_nonzero(one.unreadable)) for one in axes.values() if one.unreadable is not None)
        else:
            bad, valid_rows = len(rejects.reasons), ~rejects.marked
            times = {
                name: (ms, valid_rows if valid is None else valid & valid_rows) for name, (ms, valid) in times.items()
            }
        below = sum(int(np.count_nonzero(late(*times[name], self._stamps[name]))) for name in times)
        self.counts = self.counts.plus(Counts(bad, below, bad_values=values.bad))
        if values.rejects is not None:
            rejects = joined_rejects(values.rejects, rejects)
        return ReadTimes(times, rejects, values.fields)

    def _rejects(self, axes: Mapping[str, _AxisTimes]) -> Rejects | None:
        """The records that some axis cannot read, each with the reason of the first such axis."""
        unreadable = [(name, one.unreadable) for name, one in axes.items() if one.unreadable is not None]
        if not unreadable:
            return None
        marked = np.logical_or.reduce([of_axis for _, of_axis in unreadable])
        first = np.argmax([of_axis[marked] for _, of_axis in unreadable], axis=0)
        reasons = [f"no usable event time in {_spec_text(self._axes[name].event_time)}" for name, _ in unreadable]
        return Rejects(marked, pa.array(reasons).take(pa.array(first)))

    def _axis_times(self, name: str, records: Records, values: ReadValues) -> _AxisTimes:
        reader, spec = self._readers[name], self._axes[name].event_time
        if spec in values.times:
            return self._decoded_times(name, records, values)
        ms, valid = reader.read(records.timestamp_ms, records.key, records.value, records.headers)
        if reader.unwritten:
            warn_unwritten(self._channel.topic, str(self._channel), spec, reader.unwritten)
        if self._fresh[name] and spec.place not in (Place.TIMESTAMP, Place.SINK_HEADER):
            warn_if_long_ago(self._channel.topic, str(self._channel), spec, records, (ms, valid))
        if valid is None:
            return _AxisTimes(ms, None, None)
        there = may_have_time(spec, records)
        unreadable = ~valid if there is None else ~valid & there
        if not unreadable.any():
            return _AxisTimes(ms, valid, None)
        if self._on_bad is OnBadTime.FAIL:
            first = np.arange(records.count) == np.argmax(unreadable)
            raise InputError(refusal(str(self._channel), spec, only(records, first)))
        if self._fresh[name] and np.count_nonzero(unreadable) == (
            len(valid) if there is None else np.count_nonzero(there)
        ):
            some = records if there is None else only(records, there)
            warn_unreadable(self._channel.topic, str(self._channel), spec, some)
        return _AxisTimes(ms, valid, unreadable)

    def _decoded_times(self, name: str, records: Records, values: ReadValues) -> _AxisTimes:
        """Return the event times of values with a schema; onBadEventTime=fail ignores values that are rejected."""
        spec = self._axes[name].event_time
        ms, valid = values.times[spec]
        if valid is None or valid.all():
            return _AxisTimes(ms, None, None)
        there = may_have_time(spec, records)
        unreadable = ~valid if there is None else ~valid & there
        fatal = unreadable if values.rejects is None else unreadable & ~values.rejects.marked
        if self._on_bad is OnBadTime.FAIL and fatal.any():
            raise InputError(
                f"{self._channel}: the record at offset {int(records.offset[np.argmax(fatal)])} has no usable event "
                f"time in {_spec_text(spec)}; onBadEventTime=null would keep it with a null event time"
            )
        if self._fresh[name] and unreadable.any() and not valid.any():
            warn_undecoded(self._channel.topic, str(self._channel), spec, int(np.count_nonzero(unreadable)))
        return _AxisTimes(ms, valid, unreadable if unreadable.any() else None)


def joined_rejects(first: Rejects, others: Rejects | None) -> Rejects:
    """Join rejects of the same records; the reasons of the first ones stay."""
    if others is None:
        return first
    marked = first.marked | others.marked
    at = np.where(first.marked, np.cumsum(first.marked) - 1, len(first.reasons) + np.cumsum(others.marked) - 1)
    reasons = pa.concat_arrays([first.reasons, others.reasons.cast(first.reasons.type)])
    return Rejects(marked, reasons.take(pa.array(at[marked])))


def _spec_text(spec: EventTime) -> str:
    return f"{spec.text} (unit {spec.unit.value})"


def may_have_time(spec: EventTime, records: Records) -> NDArray[np.bool_] | None:
    """Mark the records that can have an event time, None for all.

    A null value (a tombstone) has none, without error.
    """
    if spec.place.column != VALUE or records.value is None or not records.value.null_count:
        return None
    return np.asarray(records.value.is_valid())


class ChannelRun:
    """The policies of all axes over one channel's range."""

    def __init__(
        self,
        task: ChannelRange,
        axes: Mapping[str, TimeAxis],
        times: EventTimeRun,
        guard: FutureGuard,
        *,
        now_ms: int,
    ) -> None:
        self.task = task
        self._times = times
        self._keys = times.keys
        self._guard = guard
        self._runs = {
            name: AxisRun(axis.config, task.axes.get(axis.config.key, AxisState()), now_ms)
            for name, axis in axes.items()
        }

    def observe(self, records: Records) -> Observed:
        """Run the policies over `records` (in offset order); control records among them are not read."""
        if records.control_records:
            self._times.count_control(len(records.control_records))
        read = self._times.read(records)
        times = self._guard.judge(records, read.by_axis)
        if times.ahead:
            self._guard.warn(records, read.by_axis)
            self._times.count_future(times.ahead)
        advances: list[tuple[int, int, int]] = []
        for name, run in self._runs.items():
            positions, watermarks = run.rows(*times.of_watermark[name])
            advances += [(int(p), self._keys[name], int(w)) for p, w in zip(positions, watermarks, strict=True)]
        return Observed(
            event_ms=times.of_rows,
            watermarks=tuple(sorted(advances)) if self.task.parts == 1 else (),
            rejects=read.rejects,
            decoded=read.decoded,
        )

    def end(self) -> tuple[tuple[int, int], ...]:
        """Return the watermarks (key, ms) after the range's last event; none if the range has several parts."""
        if self.task.parts > 1:
            return ()
        ends = ((self._keys[name], run.end()) for name, run in self._runs.items())
        return tuple(sorted((key, ms) for key, ms in ends if ms is not None))

    def result(self) -> RangeResult:
        """Return the state at the range's end."""
        axes = {self._keys[name]: run.state() for name, run in self._runs.items()}
        return RangeResult(next_offset=self.task.end, counts=self._times.counts, axes=axes)
