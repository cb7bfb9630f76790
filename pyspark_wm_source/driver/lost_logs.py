"""Why a query cannot read on: partitions that are gone, topics that were recreated, logs that were truncated.

Rule: a cause is stated only if it is known. The topic's id separates a recreated topic from a truncated log; without
topic ids (brokers before Kafka 3.1) both are possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keyedwm.core.errors import DataLossError
from keyedwm.kafka.client.errors import LogTruncatedError, TopicRecreatedError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.driver.assignment import Assignment
from pyspark_wm_source.driver.stale_answers import confirmed
from pyspark_wm_source.values.offsets import QueryOffset


class FrozenEndError(DataLossError):
    """Trigger.AvailableNow froze log ends that are not there any more."""

    advice = "start the query again: it freezes new end offsets, and failOnDataLoss decides about lost records"


class ShortLog(NamedTuple):
    """A log whose end offset lies before the next offset of a query. before, now: the topic's ids, None: unknown."""

    channel: TopicPartition
    end: int
    position: int
    before: object | None
    now: object | None

    def error(self) -> DataLossError:
        """Return the error that states the cause."""
        if self.before is not None and self.now is not None and str(self.before) != str(self.now):
            return TopicRecreatedError.of(self.channel.topic, self.before, self.now)
        ends = f"the end offset of {self.channel} is {self.end}, but the next offset to read is {self.position}"
        if self.before is None or self.now is None:
            return DataLossError(f"{ends}: the log was truncated, or the topic was deleted and recreated")
        return LogTruncatedError(f"{ends}: the log was truncated, as by an unclean leader election")


def missing_channels(channels: Sequence[TopicPartition]) -> DataLossError:
    """Return the error for partitions that the cluster does not have any more."""
    return DataLossError(
        f"{', '.join(map(str, channels))} is gone: the topic was deleted, or this client may not see it"
    )


def check_frozen(cluster: Cluster, end: QueryOffset) -> None:
    """Raise FrozenEndError if the logs do not reach a frozen end any more, whatever failOnDataLoss says (Spark's rule).

    end: of a batch that Trigger.AvailableNow has planned.
    """
    if not any(True for _ in end.channels_to_read()):
        return
    cause = confirmed(_cause(cluster, end), bool, lambda _: _cause(cluster, end))
    if cause is not None:
        raise FrozenEndError(f"{cause.message}; Trigger.AvailableNow had planned to read more")


def _cause(cluster: Cluster, end: QueryOffset) -> DataLossError | None:
    """Ask once whether the logs reach the offset `end`; return why not."""
    partitions = cluster.partitions({tp.topic for tp in end.channels}, missing_ok=True)
    there = Assignment.of(
        cluster, (TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers)
    )
    for topic in there.recreated(end.topic_ids):
        return TopicRecreatedError.of(topic, end.topic_ids[topic], there.topic_ids[topic])
    missing = there.missing_of(end.channels)
    return missing_channels(missing) if missing else _shrunk(cluster, end, there.topic_ids)


def _shrunk(cluster: Cluster, end: QueryOffset, ids: Mapping[str, str]) -> DataLossError | None:
    # The last stable offset may lie below the position although the log does not end there.
    ends = cluster.latest(end.channels, Isolation.READ_UNCOMMITTED)
    short = [
        ShortLog(tp, ends[tp], channel.next_offset, end.topic_ids.get(tp.topic), ids.get(tp.topic))
        for tp, channel in sorted(end.channels.items())
        if ends[tp] < channel.next_offset
    ]
    return short[0].error() if short else None
