"""Keeps event times that are too far ahead from moving a channel's watermarks (`maxEventTimeAhead`).

Rule: each such event time is counted. A process warns of the first one of a topic and axis.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyedwm.arrow.instants import instant_text
from keyedwm.arrow.places import EventTimes
from keyedwm.core.errors import InputError
from keyedwm.core.places import EventTime, FutureTime, OnFuture
from keyedwm.core.text import span_text
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.axes import TimeAxis

_log = logging.getLogger("keyedwm.source")
_LOG_APPEND_TIME = 1
_warned: set[tuple[str, EventTime]] = set()


class JudgedTimes(NamedTuple):
    """Event times by axis, for the rows and for the watermark. ahead: the number of times too far ahead."""

    of_rows: Mapping[str, EventTimes]
    of_watermark: Mapping[str, EventTimes]
    ahead: int


class FutureGuard:
    """Judges the event times of one channel in a batch planned at `now_ms`. limits: axis → how far ahead is too far."""

    def __init__(
        self, channel: TopicPartition, axes: Mapping[str, TimeAxis], limits: Mapping[str, FutureTime], now_ms: int
    ) -> None:
        self._channel, self._now_ms = channel, now_ms
        self._guarded = {name: (axes[name].event_time, future) for name, future in limits.items()}

    def judge(self, records: Records, times: Mapping[str, EventTimes]) -> JudgedTimes:
        """Judge a run of records. Raises InputError for the first time too far ahead, where the option says so."""
        of_rows, of_watermark, count = dict(times), dict(times), 0
        for name, (spec, future) in self._guarded.items():
            ms, valid = times[name]
            ahead = self._ahead(records, ms, valid, future)
            if ahead is None:
                continue
            if future.on is OnFuture.FAIL:
                problem = self._problem(records, ms, int(np.argmax(ahead)), spec, future)
                raise InputError(f"{problem}; onFutureTime=ignore would keep the row and not let it move the watermark")
            count += int(np.count_nonzero(ahead))
            of_watermark[name] = (ms, ~ahead if valid is None else valid & ~ahead)
            if future.on is OnFuture.NULL:
                of_rows[name] = of_watermark[name]
        return JudgedTimes(of_rows, of_watermark, count)

    def warn(self, records: Records, times: Mapping[str, EventTimes]) -> None:
        """Warn of the first event time of each axis that is too far ahead, once in a process."""
        for name, (spec, future) in self._guarded.items():
            ahead = self._ahead(records, *times[name], future)
            if ahead is None or (self._channel.topic, spec) in _warned:
                continue
            _warned.add((self._channel.topic, spec))
            _log.warning(
                "%s; such event times do not move the watermark and are counted as future_event_times; set "
                "maxEventTimeAhead to what is right for this topic, or to none",
                self._problem(records, times[name][0], int(np.argmax(ahead)), spec, future),
            )

    def _ahead(
        self, records: Records, ms: NDArray[np.int64], valid: NDArray[np.bool_] | None, future: FutureTime
    ) -> NDArray[np.bool_] | None:
        """Mark the event times too far ahead; None if there are none, mostly by a check of the highest event time."""
        appended = records.timestamp_type == _LOG_APPEND_TIME
        if not len(ms) or (int(ms.max()) - future.ahead_ms <= self._now_ms and not appended.any()):
            return None
        ahead = ms - future.ahead_ms > np.where(appended, records.timestamp_ms, self._now_ms)
        ahead = ahead if valid is None else ahead & valid
        return ahead if ahead.any() else None

    def _problem(self, records: Records, ms: NDArray[np.int64], row: int, spec: EventTime, future: FutureTime) -> str:
        appended = int(records.timestamp_type[row]) == _LOG_APPEND_TIME
        clock = int(records.timestamp_ms[row]) if appended else self._now_ms
        limit = f"{'the default of ' if future.is_default else ''}maxEventTimeAhead ({span_text(future.ahead_ms)})"
        return (
            f"{self._channel}: the record at offset {int(records.offset[row])} has the event time "
            f"{instant_text(int(ms[row]))} in {spec.text}, more than {limit} ahead of "
            f"{'its append time' if appended else 'the clock'}, {instant_text(clock)}"
        )
