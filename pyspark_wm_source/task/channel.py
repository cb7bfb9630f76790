"""One channel's run over its range of one batch: event times, watermarks, counts; no rows are built here.

Rule: executors and the planner's recovery read run this same code, so a lost commit can change no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyedwm.arrow.axis import AxisRun, late
from keyedwm.arrow.event_times import EventTimeReader, EventTimes
from keyedwm.core.axis import AxisState
from keyedwm.core.counts import Counts
from keyedwm.core.errors import InputError
from keyedwm.core.event_time import EventTime, Place
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.axes import TimeAxis
from pyspark_wm_source.task.future import FutureGuard
from pyspark_wm_source.task.unreadable import only, warn_if_long_ago, warn_unreadable, warn_unwritten
from pyspark_wm_source.values.ranges import ChannelRange, RangeResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """Event times of a run of records, per axis, and in-band watermarks as (row that each stands before, key, ms)."""

    event_ms: Mapping[str, EventTimes]
    watermarks: tuple[tuple[int, int, int], ...]


class EventTimeRun:
    """The event times of all axes over one channel's range; counts those that cannot be read, and those that are late.

    stamps: axis → the coalesced watermark of the batch (ms, None if there is none).
    """

    def __init__(
        self,
        task: ChannelRange,
        axes: Mapping[str, TimeAxis],
        stamps: Mapping[str, int | None],
        *,
        fail_on_bad_event_time: bool,
    ) -> None:
        self.counts = task.counts
        self._stamps = stamps
        self.keys = {name: axis.config.key for name, axis in axes.items()}
        self._channel = task.channel
        self._axes = axes
        self._fail = fail_on_bad_event_time
        # Nothing of this channel was ever read with success: neither a watermark nor an earlier bad event time.
        self._first = {name: task.counts.bad == 0 and key not in task.axes for name, key in self.keys.items()}
        self._readers = {name: EventTimeReader(axis.event_time) for name, axis in axes.items()}

    def count_control(self, number: int) -> None:
        """Count records with the reserved header that are not rows and were not read as control records."""
        self.counts = self.counts.plus(Counts(control=number))

    def count_future(self, number: int) -> None:
        """Count event times that are too far ahead."""
        self.counts = self.counts.plus(Counts(future=number))

    def read(self, records: Records) -> dict[str, EventTimes]:
        """Event times by axis."""
        return {name: self._event_times(name, records) for name in self._readers}

    def _event_times(self, name: str, records: Records) -> EventTimes:
        reader, spec = self._readers[name], self._axes[name].event_time
        ms, valid = reader.read(records.timestamp_ms, records.key, records.value, records.headers)
        if reader.unwritten:
            warn_unwritten(self._channel.topic, str(self._channel), spec, reader.unwritten)
        below = int(np.count_nonzero(late(ms, valid, self._stamps[name])))
        there = None if valid is None else may_have_time(spec, records)
        unread = None if valid is None else ~valid if there is None else ~valid & there
        bad = 0 if unread is None else int(np.count_nonzero(unread))
        self.counts = self.counts.plus(Counts(bad, below))
        if self._first[name] and spec.place not in (Place.TIMESTAMP, Place.WRITTEN):
            warn_if_long_ago(self._channel.topic, str(self._channel), spec, records, (ms, valid))
        if valid is None or unread is None or not bad:
            return ms, valid
        if self._fail:
            at = int(np.argmax(unread))
            raise InputError(
                f"{self._channel}: the record at offset {int(records.offset[at])} has no usable event time in "
                f"{spec.text} (unit {spec.unit.value}); onBadEventTime=null would keep it with a null event time"
            )
        if self._first[name] and bad == (len(valid) if there is None else np.count_nonzero(there)):
            some = records if there is None else only(records, there)
            warn_unreadable(self._channel.topic, str(self._channel), spec, some)
        return ms, valid


def may_have_time(spec: EventTime, records: Records) -> NDArray[np.bool_] | None:
    """Mark the records that can have an event time: a null value (a tombstone) holds none, and is not wrong for that.

    None: all of them.
    """
    if spec.place is not Place.VALUE or records.value is None or not records.value.null_count:
        return None
    return np.asarray(records.value.is_valid())


class ChannelRun:
    """The policies of all axes over one channel's range."""

    def __init__(self, task: ChannelRange, axes: Mapping[str, TimeAxis], times: EventTimeRun, *, now_ms: int) -> None:
        self.task = task
        self._times = times
        self._keys = times.keys
        self._guard = FutureGuard(task.channel, axes, now_ms)
        self._runs = {
            name: AxisRun(axis.config, task.axes.get(axis.config.key, AxisState()), now_ms)
            for name, axis in axes.items()
        }

    def observe(self, records: Records) -> Observed:
        """Run the policies over `records` (in offset order); control records among them are not read."""
        if records.control_records:
            self._times.count_control(len(records.control_records))
        times = self._guard.judge(records, self._times.read(records))
        self._times.count_future(times.ahead)
        marks: list[tuple[int, int, int]] = []
        for name, run in self._runs.items():
            positions, watermarks = run.rows(*times.moving[name])
            marks += [(int(p), self._keys[name], int(w)) for p, w in zip(positions, watermarks, strict=True)]
        return Observed(event_ms=times.shown, watermarks=tuple(sorted(marks)) if self.task.parts == 1 else ())

    def end(self) -> tuple[tuple[int, int], ...]:
        """Return the watermarks (key, ms) that stand after the range's last event."""
        if self.task.parts > 1:
            return ()
        ends = ((self._keys[name], run.end()) for name, run in self._runs.items())
        return tuple(sorted((key, ms) for key, ms in ends if ms is not None))

    def result(self) -> RangeResult:
        """Return the state at the range's end."""
        axes = {self._keys[name]: run.state() for name, run in self._runs.items()}
        return RangeResult(next_offset=self.task.end, counts=self._times.counts, axes=axes)
