"""One channel's run over its range of one batch: event times, watermarks, counts; no rows are built here.

Rule: executors and the planner's recovery read run this same code, so a lost commit can change no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from keyedwm.arrow.axis import AxisRun, late
from keyedwm.arrow.event_times import EventTimeReader, EventTimes
from keyedwm.core.axis import AxisState
from keyedwm.core.counts import Counts
from keyedwm.core.errors import InputError
from keyedwm.kafka.records import Records
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.axes import Axis


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """What one task reads of one channel, and its state at the start.

    woken: it was idle until this batch. opening: watermarks (key, ms) due before its first event. A channel whose range
    is cut has several `parts`: each starts from a neutral state and tells no watermark in band (DESIGN section 5.6).
    """

    channel: TopicPartition
    start: int
    end: int
    counts: Counts
    axes: Mapping[int, AxisState]
    woken: bool = False
    opening: tuple[tuple[int, int], ...] = ()
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class After:
    """A channel's state once its range was read; `cut`: it was read in parts, so its watermark was not told yet."""

    next_offset: int
    counts: Counts
    axes: Mapping[int, AxisState]
    cut: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What a run of records showed: event times per axis, and in-band watermarks as (row it stands before, key, ms)."""

    event_ms: Mapping[str, EventTimes]
    watermarks: tuple[tuple[int, int, int], ...]


class EventTimeRun:
    """The event times of all axes over one channel's range; counts those that cannot be read, and those that are late.

    stamps: axis → the coalesced watermark of the batch (ms, None if there is none).
    """

    def __init__(
        self,
        task: Range,
        axes: Mapping[str, Axis],
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
        self._readers = {name: EventTimeReader(axis.event_time) for name, axis in axes.items()}

    def read(self, records: Records) -> dict[str, EventTimes]:
        """Event times by axis."""
        return {name: self._event_times(name, records) for name in self._readers}

    def _event_times(self, name: str, records: Records) -> EventTimes:
        ms, valid = self._readers[name].read(records.timestamp_ms, records.key, records.value, records.headers)
        below = int(np.count_nonzero(late(ms, valid, self._stamps[name])))
        bad = 0 if valid is None else int(np.count_nonzero(~valid))
        self.counts = self.counts.plus(Counts(bad, below))
        if valid is None:
            return ms, None
        if self._fail:
            at = int(np.argmin(valid))
            spec = self._axes[name].event_time
            raise InputError(
                f"{self._channel}: the record at offset {int(records.offset[at])} has no usable event time in "
                f"{spec.text} (unit {spec.unit.value}); onBadEventTime=null would keep it with a null event time"
            )
        return ms, valid


class ChannelRun:
    """The policies of all axes over one channel's range."""

    def __init__(self, task: Range, axes: Mapping[str, Axis], times: EventTimeRun, *, now_ms: int) -> None:
        self.task = task
        self._times = times
        self._keys = times.keys
        self._runs = {
            name: AxisRun(axis.config, task.axes.get(axis.config.key, AxisState()), now_ms)
            for name, axis in axes.items()
        }

    def observe(self, records: Records) -> Observed:
        """Run the policies over `records` (in offset order)."""
        times = self._times.read(records)
        marks: list[tuple[int, int, int]] = []
        for name, run in self._runs.items():
            positions, watermarks = run.rows(*times[name])
            marks += [(int(p), self._keys[name], int(w)) for p, w in zip(positions, watermarks, strict=True)]
        return Observed(event_ms=times, watermarks=tuple(sorted(marks)) if self.task.parts == 1 else ())

    def end(self) -> tuple[tuple[int, int], ...]:
        """Return the watermarks (key, ms) that stand after the range's last event."""
        if self.task.parts > 1:
            return ()
        ends = ((self._keys[name], run.end()) for name, run in self._runs.items())
        return tuple(sorted((key, ms) for key, ms in ends if ms is not None))

    def after(self) -> After:
        """Return the state at the range's end."""
        axes = {self._keys[name]: run.state() for name, run in self._runs.items()}
        return After(next_offset=self.task.end, counts=self._times.counts, axes=axes)
