"""What the user is told about a planned batch: who holds the watermark and why, who is idle, what was lost sight of.

Rule: derived from the offset alone, so the same facts stand in Spark's progress, in the log line and in `inspect`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from keyedwm.core.counts import Counts
from keyedwm.core.watermark import Status
from keyedwm.kafka.values import TopicPartition
from pyspark_wm_source.offsets import Channel, QueryOffset, as_spark_offsets
from pyspark_wm_source.propagated import reached_by

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def describe(planned: QueryOffset, ends: Mapping[TopicPartition, int], recovered: int) -> dict[str, Any]:
    """Return the facts of a batch, ready for JSON: `offsets` are the log ends, in Spark's shape.

    watermark: the coalesced one of each key; held_by: of each key the slowest active channel, in one sentence.
    bad_event_times, late_events: since the query's first batch, up to the batch before this one, of each partition that
    has any. recovery_reads: ranges that this process read a second time.
    """
    keys = sorted({key for channel in planned.channels.values() for key in channel.axes} or {0})
    return {
        "offsets": as_spark_offsets(ends),
        "batch": planned.batch,
        "reads": sum(channel.read for channel in planned.channels.values()),
        "watermark": {str(key): shown(planned.watermark_ms(key)) for key in keys},
        "held_by": {str(key): _holder(planned, ends, key) for key in keys},
        "idle": sum(channel.status is Status.IDLE for channel in planned.channels.values()),
        "bad_event_times": _counted(planned, lambda counts: counts.bad),
        "late_events": _counted(planned, lambda counts: counts.late),
        "recovery_reads": recovered,
    }


def barriers_again(planned: QueryOffset) -> dict[str, dict[str, int]]:
    """Count, as above, the barriers from upstream that came again and were let pass (with `propagate` only)."""
    reached = {tp: reached_by(channel.axes) for tp, channel in planned.channels.items()}
    return as_spark_offsets({tp: at.swallowed for tp, at in reached.items() if at is not None and at.swallowed})


def _counted(planned: QueryOffset, count: Callable[[Counts], int]) -> dict[str, dict[str, int]]:
    return as_spark_offsets({tp: n for tp, c in planned.channels.items() if (n := count(c.counts))})


def shown(time_ms: int | None) -> str | None:
    """Show a time in ISO, or in ms where the calendar does not reach."""
    if time_ms is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{time_ms} ms"


def _holder(planned: QueryOffset, ends: Mapping[TopicPartition, int], key: int) -> str | None:
    """Say which active channel has the lowest watermark (or none at all), and what it waits for."""
    active = [(tp, c) for tp, c in sorted(planned.channels.items()) if c.status is Status.ACTIVE]
    if not active:
        return None
    tp, channel = min(active, key=lambda item: _rank(item[1], key))
    emitted_ms = channel.axes[key].emitted_ms if key in channel.axes else None
    at = "without a watermark" if emitted_ms is None else f"at {shown(emitted_ms)}"
    backlog = ends.get(tp, channel.next_offset) - channel.start
    why = f"backlog {backlog}" if backlog > 0 else f"no record since {shown(channel.since_ms)}"
    if emitted_ms is None and channel.counts.bad and backlog <= 0:
        why = f"none of its {channel.counts.bad} event times could be read"
    return f"{tp} {at}: {why}"


def _rank(channel: Channel, key: int) -> tuple[bool, int]:
    emitted_ms = channel.axes[key].emitted_ms if key in channel.axes else None
    return (emitted_ms is not None, emitted_ms or 0)
