"""The channels that block the coalesced watermark, and the cause of each.

Rule: values only. Progress, log line, `inspect` and `watch` all use it, so that they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from keyedwm.core.watermark import Status
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.offsets import Channel


class Cause(Enum):
    """The reason why a channel that blocks the watermark does not advance."""

    BACKLOG = "backlog"
    OPEN_TRANSACTION = "open transaction"
    UNREADABLE = "unreadable event times"
    LATE = "late events"
    NO_RECORD_EVER = "no record ever"
    IDLE_TIMEOUT = "idle timeout not reached"
    NO_RECORD_SINCE = "no record"
    PARTITION_GONE = "partition gone"
    BROKER_AWAY = "broker away"
    NOT_ASKED = "log ends not asked for"


def emitted_ms(channel: Channel, key: int) -> int | None:
    """Return the last watermark of a channel and key."""
    return channel.axes[key].emitted_ms if key in channel.axes else None


def keys_of(channels: Mapping[TopicPartition, Channel]) -> list[int]:
    """Return the keys that have a watermark or the start of one; the default key if there is none yet."""
    return sorted({key for channel in channels.values() for key in channel.axes} or {0})


def holders_of(channels: Mapping[TopicPartition, Channel], key: int) -> list[TopicPartition]:
    """Return the active channels without a watermark; if all have one, those with the lowest, in order."""
    active = {tp: emitted_ms(c, key) for tp, c in channels.items() if c.status is Status.ACTIVE}
    none = sorted(tp for tp, ms in active.items() if ms is None)
    lowest_ms = min((ms for ms in active.values() if ms is not None), default=None)
    return none or sorted(tp for tp, ms in active.items() if ms == lowest_ms)


def unreadable_since(then: Channel | None, channel: Channel, key: int) -> int:
    """Count the unreadable event times of a channel since `then`; 0 if its watermark has moved or `then` is None."""
    return 0 if then is None or _has_moved(then, channel, key) else channel.counts.bad - then.counts.bad


def late_since(then: Channel | None, channel: Channel, key: int) -> int:
    """Count the late events of a channel since `then`, if at least half of its records were late.

    Otherwise 0, since some late events are usual; also if its watermark has moved or `then` is None.
    """
    if then is None or _has_moved(then, channel, key):
        return 0
    late = channel.counts.late - then.counts.late
    return late if 2 * late >= channel.start - then.start else 0


def _has_moved(then: Channel, channel: Channel, key: int) -> bool:
    return emitted_ms(then, key) != emitted_ms(channel, key)


def cause_of(
    channel: Channel, key: int, *, backlog: int, uncommitted: int, unreadable: int = 0, late: int = 0,
    becomes_idle: bool = False,
) -> Cause:  # fmt: skip
    """Return the cause of a blocking channel.

    backlog: offsets up to the readable end. uncommitted: offsets of open transactions.

    unreadable, late: event times of this kind since its watermark moved, if known (`unreadable_since`, `late_since`).
    becomes_idle: an idle timeout is known and set, and its end is still to come.
    """
    # Before a backlog: a running query nearly always has one, and reading it does not move this watermark.
    if unreadable or (emitted_ms(channel, key) is None and channel.counts.bad):
        return Cause.UNREADABLE
    if late:
        return Cause.LATE
    if backlog > 0:
        return Cause.BACKLOG
    if uncommitted:
        return Cause.OPEN_TRANSACTION
    if becomes_idle:
        return Cause.IDLE_TIMEOUT
    return Cause.NO_RECORD_EVER if emitted_ms(channel, key) is None else Cause.NO_RECORD_SINCE
