"""Keeps event times that are too far ahead from moving a channel's watermarks (`maxEventTimeAhead`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyedwm.arrow.instants import instant_text
from keyedwm.arrow.places import EventTimes
from keyedwm.core.errors import InputError
from keyedwm.core.places import FutureTime, OnFuture
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.records.read import Records
from pyspark_wm_source.options.axes import TimeAxis

_LOG_APPEND_TIME = 1


class Judged(NamedTuple):
    """Event times by axis as the rows show them, those that move the watermark, and how many were too far ahead."""

    shown: Mapping[str, EventTimes]
    moving: Mapping[str, EventTimes]
    ahead: int


class FutureGuard:
    """Judges the event times of one channel in a batch planned at `now_ms`."""

    def __init__(self, channel: TopicPartition, axes: Mapping[str, TimeAxis], now_ms: int) -> None:
        self._channel, self._now_ms = channel, now_ms
        self._guarded = {name: (axis, axis.future) for name, axis in axes.items() if axis.future is not None}

    def judge(self, records: Records, times: Mapping[str, EventTimes]) -> Judged:
        """Judge a run of records. Raises InputError for the first time too far ahead, where the option says so."""
        shown, moving, count = dict(times), dict(times), 0
        for name, (axis, future) in self._guarded.items():
            ms, valid = times[name]
            ahead = self._ahead(records, ms, valid, future)
            if not ahead.any():
                continue
            if future.on is OnFuture.FAIL:
                raise self._refusal(records, ms, int(np.argmax(ahead)), axis, future)
            count += int(np.count_nonzero(ahead))
            moving[name] = (ms, ~ahead if valid is None else valid & ~ahead)
            if future.on is OnFuture.NULL:
                shown[name] = moving[name]
        return Judged(shown, moving, count)

    def _ahead(
        self, records: Records, ms: NDArray[np.int64], valid: NDArray[np.bool_] | None, future: FutureTime
    ) -> NDArray[np.bool_]:
        clock_ms = np.where(records.timestamp_type == _LOG_APPEND_TIME, records.timestamp_ms, self._now_ms)
        ahead = ms - future.ahead_ms > clock_ms
        return ahead if valid is None else ahead & valid

    def _refusal(
        self, records: Records, ms: NDArray[np.int64], row: int, axis: TimeAxis, future: FutureTime
    ) -> InputError:
        appended = int(records.timestamp_type[row]) == _LOG_APPEND_TIME
        clock = int(records.timestamp_ms[row]) if appended else self._now_ms
        return InputError(
            f"{self._channel}: the record at offset {int(records.offset[row])} has the event time "
            f"{instant_text(int(ms[row]))} in {axis.event_time.text}, more than maxEventTimeAhead ({future.ahead_ms} "
            f"ms) ahead of {'its append time' if appended else 'the clock'}, {instant_text(clock)}; "
            f"onFutureTime=ignore would keep the row and not let it move the watermark"
        )
