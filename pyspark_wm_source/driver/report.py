"""The progress of a planned batch: the partition that blocks the watermark, the cause, idle partitions, bad values.

Rule: derived from the offset and the one before it alone, so the same facts stand in Spark's progress,
in the log line and in `inspect`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from keyedwm.arrow.instants import iso_text
from keyedwm.core.axis import NO_COUNTS, Counts
from keyedwm.core.watermark import Status
from keyedwm.formats.faults import Fault
from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.driver.plan import BrokerAnswers
from pyspark_wm_source.options.start_offsets import Topics
from pyspark_wm_source.task.propagated import last_barrier
from pyspark_wm_source.values.holding import (
    Cause,
    cause_of,
    emitted_ms,
    holders_of,
    keys_of,
    late_since,
    unreadable_since,
)
from pyspark_wm_source.values.offsets import Channel, QueryOffset, as_spark_offsets

_MOST_NAMED = 5


def describe(
    planned: QueryOffset,
    answers: BrokerAnswers,
    ends: Mapping[TopicPartition, int],
    recovered: int,
    *,
    sets_idle: bool = False,
    before: Mapping[TopicPartition, Channel] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the facts of a batch, ready for JSON: `offsets` are the log ends, in Spark's shape.

    watermark: the coalesced watermark of each key. held_by: for each key, the slowest active channels and the cause of
    each, in one sentence that names five channels and counts the rest. causes: for each key, the number of these
    channels by `Cause`. backlog: offsets that this batch leaves up to the log ends. sets_idle: an idle timeout is set.
    before: the channels of the batch before; they show that none of the event times read since was readable.
    bad_event_times, late_events: since the query's first batch, up to the batch before this one, of each partition that
    has any. control_records: likewise, records with the reserved header that are neither rows nor read as control
    records. resets: how often a partition's state was lost with records. future_event_times: likewise, event times
    beyond `maxEventTimeAhead`. bad_values: reason → values with a schema that could not be read, likewise.
    recovery_reads: ranges that this process read a second time. coordinator: why the group's coordinator did not
    answer.
    """
    return {
        "offsets": as_spark_offsets(ends),
        **_described(planned, _Holders(planned, answers, ends, before, sets_idle)),
        "backlog": sum(max(ends.get(tp, 0) - c.next_offset, 0) for tp, c in planned.channels.items()),
        "recovery_reads": recovered,
    }


def describe_logged(planned: QueryOffset) -> dict[str, Any]:
    """Return the facts of a batch as it stands in the offset log, for a process that did not plan it.

    The log ends are not known: `offsets` is empty, `backlog` is None, and no cause is stated.
    """
    return {"offsets": {}, **_described(planned, _Holders(planned, None)), "backlog": None, "recovery_reads": 0}


def _described(planned: QueryOffset, holders: _Holders) -> dict[str, Any]:
    """Return the facts of an offset, with the causes of the channels that block its watermarks."""
    keys = keys_of(planned.channels)
    blocking = {key: holders_of(planned.channels, key) for key in keys}
    counts = {tp: channel.counts for tp, channel in planned.channels.items() if channel.counts is not NO_COUNTS}
    return {
        "batch": planned.batch,
        "reads": sum(channel.read for channel in planned.channels.values()),
        "watermark": {str(key): _time_text(planned.watermark_ms(key)) for key in keys},
        "held_by": {str(key): holders.sentence(key, blocking[key]) for key in keys},
        "causes": {str(key): holders.causes(key, blocking[key]) for key in keys},
        "idle": sum(channel.status is Status.IDLE for channel in planned.channels.values()),
        "bad_event_times": _counts_by_topic(counts, lambda one: one.bad),
        "late_events": _counts_by_topic(counts, lambda one: one.late),
        "future_event_times": _counts_by_topic(counts, lambda one: one.future),
        "control_records": _counts_by_topic(counts, lambda one: one.control),
        "bad_values": _bad_values(counts),
        "resets": as_spark_offsets({tp: c.resets for tp, c in planned.channels.items() if c.resets}),
        **({"coordinator": planned.outage} if planned.outage else {}),
    }


def nothing_selected(planned: QueryOffset, topics: Topics) -> str:
    """Say why no partition is read: no topic exists yet, or the pattern is wrong. Empty if a partition is read."""
    if planned.channels:
        return ""
    if topics.pattern is None:
        return f"option {topics.option}: none of its partitions is there any more, nothing is read until one is"
    matched = f"{topics.pattern!r} matches no topic that this client may see"
    return f"option {topics.option}: {matched}, nothing is read until one is there"


def barriers_again(planned: QueryOffset) -> dict[str, dict[str, int]]:
    """Count, as in `describe`, the duplicate barriers from upstream that were ignored (with `propagate` only)."""
    barriers = {tp: last_barrier(channel.axes) for tp, channel in planned.channels.items()}
    return as_spark_offsets({tp: last.repeated for tp, last in barriers.items() if last is not None and last.repeated})


def _counts_by_topic(
    counts: Mapping[TopicPartition, Counts], count: Callable[[Counts], int]
) -> dict[str, dict[str, int]]:
    return as_spark_offsets({tp: n for tp, one in counts.items() if (n := count(one))})


def _bad_values(counts: Mapping[TopicPartition, Counts]) -> dict[str, dict[str, dict[str, int]]]:
    """Count the bad values by reason, topic and partition."""
    by_channel = {tp: dict(one.bad_values) for tp, one in counts.items()}
    faults = sorted({fault for counts in by_channel.values() for fault in counts})
    return {
        Fault(fault).label: as_spark_offsets({tp: n[fault] for tp, n in by_channel.items() if fault in n})
        for fault in faults
    }


def _time_text(time_ms: int | None) -> str | None:
    """Show a time in ISO, or in ms if it is outside the calendar."""
    return None if time_ms is None else iso_text(time_ms) or f"{time_ms} ms"


@dataclass(frozen=True, slots=True)
class _Holders:
    """The channels that block the watermarks of a planned batch. before: the channels of the batch before.

    seen: None if the broker was not asked, and then no cause is known.
    """

    planned: QueryOffset
    answers: BrokerAnswers | None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    before: Mapping[TopicPartition, Channel] = field(default_factory=dict)
    sets_idle: bool = False

    def sentence(self, key: int, holders: Sequence[TopicPartition]) -> str | None:
        """Say which active channels have the lowest watermark (or no watermark), and the cause of each."""
        sentences = [self._sentence(tp, key) for tp in holders[:_MOST_NAMED]]
        if len(holders) > _MOST_NAMED:
            sentences.append(f"{len(holders) - _MOST_NAMED} more likewise")
        return "; ".join(sentences) or None

    def causes(self, key: int, holders: Sequence[TopicPartition]) -> dict[str, int]:
        """Count the channels that block a watermark, by cause."""
        causes = Counter(self._cause(tp, key, becomes_idle=self.sets_idle).value for tp in holders)
        return dict(sorted(causes.items()))

    def _cause(self, tp: TopicPartition, key: int, *, becomes_idle: bool = False) -> Cause:
        if self.answers is None:
            return Cause.NOT_ASKED
        return cause_of(
            self.planned.channels[tp], key, backlog=self._backlog(tp), uncommitted=self.answers.uncommitted(tp),
            unreadable=self._unreadable(tp, key), late=self._late(tp, key), becomes_idle=becomes_idle,
        )  # fmt: skip

    def _backlog(self, tp: TopicPartition) -> int:
        channel = self.planned.channels[tp]
        return self.ends.get(tp, channel.next_offset) - channel.start

    def _unreadable(self, tp: TopicPartition, key: int) -> int:
        return unreadable_since(self.before.get(tp), self.planned.channels[tp], key)

    def _late(self, tp: TopicPartition, key: int) -> int:
        return late_since(self.before.get(tp), self.planned.channels[tp], key)

    def _sentence(self, tp: TopicPartition, key: int) -> str:
        channel = self.planned.channels[tp]
        lowest_ms = emitted_ms(channel, key)
        at = "without a watermark" if lowest_ms is None else f"at {_time_text(lowest_ms)}"
        match self._cause(tp, key):
            case Cause.BACKLOG:
                why = f"backlog {self._backlog(tp)}"
            case Cause.UNREADABLE if lowest_ms is None:
                why = f"none of its {channel.counts.bad} event times could be read"
            case Cause.UNREADABLE:
                why = f"none of the {self._unreadable(tp, key)} event times of the batch before could be read"
            case Cause.LATE:
                why = f"{self._late(tp, key)} late events in the batch before"
            case Cause.OPEN_TRANSACTION if self.answers is not None:
                why = f"{self.answers.uncommitted(tp)} records of open transactions"
            case Cause.NOT_ASKED as cause:
                why = cause.value
            case _:
                why = f"no record since {_time_text(channel.since_ms)}"
        return f"{tp} {at}: {why}"
