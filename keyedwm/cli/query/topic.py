"""A topic at one moment, for a user without a query: its ends, and what would block a watermark.

Rule: it only asks for offsets and for the newest record timestamps; no record is read, and no group is joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.driver.resolve_offsets import assigned
from pyspark_wm_source.options.source_options import SourceOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class EndPicture:
    """A partition. first, end: offsets of its log. uncommitted: offsets of open transactions at its end.

    newest_ms: the highest timestamp of its records, None without a record.
    """

    channel: TopicPartition
    first: int
    end: int
    uncommitted: int
    newest_ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicPicture:
    """All partitions; those whose newest record is oldest come first. are_times_known: false before Kafka 3.0.

    trouble: why the broker does not answer any more, None if it does.
    """

    topic: str
    taken_ms: int
    partitions: tuple[EndPicture, ...]
    are_times_known: bool
    trouble: str | None = None

    @property
    def holders(self) -> tuple[EndPicture, ...]:
        """The partitions that would block a watermark by timestamps: those without a record, else the oldest."""
        empty = tuple(one for one in self.partitions if one.newest_ms is None)
        if empty or not self.are_times_known:
            return empty if self.are_times_known else ()
        lowest_ms = min(one.newest_ms or 0 for one in self.partitions)
        return tuple(one for one in self.partitions if one.newest_ms == lowest_ms)


def topic_picture(cluster: Cluster, options: SourceOptions, topic: str, taken_ms: int) -> TopicPicture:
    """Take a picture. Raises InputError for a missing topic, AccessError, UnavailableError."""
    channels = assigned(cluster, options.topics, running=False)
    first = cluster.earliest(channels)
    # The readable ends second, so that records written between the two requests do not count as an open transaction.
    high = cluster.latest(channels, Isolation.READ_UNCOMMITTED)
    stable = cluster.latest(channels, Isolation.READ_COMMITTED)
    try:
        newest_ms, are_times_known = cluster.newest_times(channels), True
    except OptionError:
        newest_ms, are_times_known = {}, False
    partitions = [
        EndPicture(
            channel=tp, first=min(first[tp], high[tp]), end=max(high[tp], stable[tp]),
            uncommitted=max(high[tp] - stable[tp], 0), newest_ms=newest_ms.get(tp),
        )
        for tp in channels
    ]  # fmt: skip
    partitions.sort(key=lambda one: (one.newest_ms is not None, one.newest_ms or 0, one.channel))
    return TopicPicture(topic=topic, taken_ms=taken_ms, partitions=tuple(partitions), are_times_known=are_times_known)
