"""Last stable offsets that lie below a query's position: an open transaction begins there.

Kafka answers so if the transaction's first records were deleted, or if the query read them as uncommitted records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from pyspark_wm_source.values.offsets import QueryOffset


def next_offset_of(start: QueryOffset, tp: TopicPartition) -> int:
    """Return the next offset to read, also of a channel that was absent for a while; 0 for a new channel."""
    before = start.channels.get(tp) or start.retired.get(tp)
    return start.begins.get(tp, 0) if before is None else before.next_offset


def readable_ends(
    stable: Mapping[TopicPartition, int], high: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the last stable offsets, each at least the query's position if the log is as long as that.

    high: the high watermarks. positions: the next offsets to read, without channels of `restarts`.
    """
    at_least = {tp: positions[tp] for tp, end in stable.items() if tp in positions and end < positions[tp] <= high[tp]}
    return {**stable, **at_least}


def ask_readable_ends(
    cluster: Cluster, channels: Sequence[TopicPartition], positions: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Ask the brokers for the readable ends. isolation: the query's."""
    stable = cluster.latest(channels)
    if isolation is not Isolation.READ_COMMITTED:
        return stable
    return readable_ends(stable, cluster.latest(channels, Isolation.READ_UNCOMMITTED), positions)
