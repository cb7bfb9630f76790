"""Watermarks that stand too far ahead when a query starts: one warning, or a reset of each such partition.

Rule: decided once in a process, by the planning clock, and written into the offset that is planned: a batch that is run
again has the watermarks of that offset. Only the states of the source are corrected: operators keep their states.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from keyedwm.arrow.instants import instant_text
from keyedwm.core.axis import AxisConfig, AxisState, PropagatedState
from keyedwm.core.coalescer import CommonState
from keyedwm.core.places import DEFAULT_AHEAD_MS, OnFutureWatermark
from keyedwm.core.text import listed
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.options.source_options import SourceOptions
from pyspark_wm_source.values.offsets import Channel, QueryOffset
from pyspark_wm_source.values.ranges import RangeResult

LOG = logging.getLogger("keyedwm.source")
Results = Mapping[TopicPartition, RangeResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """limits_ms: watermark key → the highest watermark that may be right at a reading of the planning clock."""

    limits_ms: Mapping[int, int]
    configs: Mapping[int, AxisConfig]
    now_ms: int

    @staticmethod
    def of(options: SourceOptions, now_ms: int) -> Limits:
        """Return the limits of the options; at least a day ahead, as append times are those of another clock."""
        guarded = [axis for axis in options.axes.values() if axis.future is not None]
        return Limits(
            limits_ms={
                axis.config.key: now_ms + max(axis.future.ahead_ms, DEFAULT_AHEAD_MS)
                for axis in guarded
                if axis.future is not None
            },
            configs={axis.config.key: axis.config for axis in guarded},
            now_ms=now_ms,
        )

    def keys_ahead(self, axes: Mapping[int, AxisState]) -> dict[int, int]:
        """Return the watermarks of a channel that are beyond: key → ms."""
        by_key = {}
        for key in self.limits_ms.keys() & axes.keys():
            state = axes[key]
            if isinstance(state.policy, PropagatedState):
                continue
            current_ms = self.configs[key].policy.build(state.policy).current(self.now_ms)
            highest_ms = max((ms for ms in (state.emitted_ms, current_ms) if ms is not None), default=None)
            if highest_ms is not None and highest_ms > self.limits_ms[key]:
                by_key[key] = highest_ms
        return by_key


@dataclass(frozen=True, kw_only=True, slots=True)
class Corrected:
    """The offset and states for the next batch. is_changed: a watermark was reset, so a batch must record it."""

    start: QueryOffset
    after: Results
    is_changed: bool = False


class FutureWatermarks:
    """Looks at the watermarks that a query starts with, until a batch is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._is_done = self._is_told = False

    def corrected(self, start: QueryOffset, after: Results, now_ms: int) -> Corrected:
        """Return the offset and states from which the batch behind `start` is planned; after: as in `plan`."""
        same = Corrected(start=start, after=after)
        if self._is_done:
            return same
        limits = Limits.of(self._options, max(now_ms, start.now_ms))
        ahead = _channels_ahead(start, after, limits)
        # `top` is never below the watermark that was emitted.
        coalesced = {key: ms for key, ms in start.coalesced.top.items() if ms > limits.limits_ms.get(key, ms)}
        if not ahead and not coalesced:
            return same
        resets = self._options.on_future_watermark is OnFutureWatermark.RESET
        if not self._is_told:
            LOG.warning("%s", _sentence(list(ahead), [coalesced, *ahead.values()], limits.now_ms, resets=resets))
        self._is_told = True
        return _reset(start, after, limits, ahead) if resets else same

    def planned(self) -> None:
        """Note that a batch was planned: from now on the reading tasks keep wrong event times from the watermarks."""
        self._is_done = True


def _reset(
    start: QueryOffset, after: Results, limits: Limits, ahead: Mapping[TopicPartition, Mapping[int, int]]
) -> Corrected:
    """Reset the channels that are ahead, on these keys; the coalesced watermark follows from the others."""
    channels = {tp: replace(one, axes=_left(one.axes, ahead.get(tp, ()))) for tp, one in start.channels.items()}
    retired = {tp: replace(one, axes=_left(one.axes, limits.keys_ahead(one.axes))) for tp, one in start.retired.items()}
    results = dict(after)
    for tp, keys in ahead.items():
        one = start.channels[tp]
        result = after.get(tp) or RangeResult(next_offset=one.next_offset, counts=one.counts, axes=one.axes)
        # As after a loss: a reset row announces to operators that the next watermark is lower.
        results[tp] = replace(result, axes=_left(result.axes, keys), lossy=True)
    common = _common(start.coalesced, channels, limits)
    told_ms = dict(start.told_ms)
    for key, ms in start.coalesced.emitted.items():
        if key not in common.emitted:
            told_ms[key] = max(ms, told_ms.get(key, ms))
    start = replace(start, channels=channels, retired=retired, coalesced=common, told_ms=told_ms)
    return Corrected(start=start, after=results, is_changed=True)


def _channels_ahead(start: QueryOffset, after: Results, limits: Limits) -> dict[TopicPartition, dict[int, int]]:
    axes = {tp: after[tp].axes if tp in after else one.axes for tp, one in start.channels.items()}
    by_channel = {tp: limits.keys_ahead(of_channel) for tp, of_channel in axes.items()}
    return {tp: watermarks for tp, watermarks in by_channel.items() if watermarks}


def _left(axes: Mapping[int, AxisState], keys: Collection[int]) -> dict[int, AxisState]:
    return {key: state for key, state in axes.items() if key not in keys}


def _common(common: CommonState, channels: Mapping[TopicPartition, Channel], limits: Limits) -> CommonState:
    """Return the coalesced watermarks up to the limits: no channel has the higher ones any more."""
    emitted, top, history = dict(common.emitted), dict(common.top), dict(common.history)
    for key, limit_ms in limits.limits_ms.items():
        if emitted.get(key, limit_ms) > limit_ms:
            del emitted[key]
        if top.get(key, limit_ms) > limit_ms:
            states = [channel.axes[key].emitted_ms for channel in channels.values() if key in channel.axes]
            known = [ms for ms in (*states, emitted.get(key)) if ms is not None]
            top |= {key: max(known)} if known else {}
            if not known:
                del top[key]
            history.pop(key, None)
    is_lowered = len(emitted) < len(common.emitted)
    return replace(common, emitted=emitted, top=top, history=history, idle_spell=common.idle_spell and not is_lowered)


def _sentence(
    channels: Sequence[TopicPartition], watermarks: Sequence[Mapping[int, int]], now_ms: int, *, resets: bool
) -> str:
    highest_ms = max(ms for by_key in watermarks for ms in by_key.values())
    problem = (
        f"{listed(channels) if channels else 'all partitions'}: the watermark is up to {instant_text(highest_ms)}, "
        f"while the clock is at {instant_text(now_ms)}, so event times of today are late"
    )
    if not resets:
        return (
            f"{problem}; onFutureWatermark=reset lets these partitions restart without reading a record again, and "
            f"maxEventTimeAhead=none is right where such event times are"
        )
    return (
        f"{problem}; by onFutureWatermark=reset, these partitions restart with their next event times; "
        "windows, joins and other operators with state keep their watermark: a query with such operators needs a new "
        "checkpoint with continueFrom=SAVEPOINT as well"
    )
