"""The times of single records, for the backlog of a partition in time.

Rule: a record that is not there (compacted, a transaction's marker, deleted) has no time, which is no error.
"""

from __future__ import annotations

from collections.abc import Mapping

from keyedwm.core.errors import KeyedwmError
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.records.read import Wanted
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges

_STALL_MS = 2_000


def record_times(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the record at each offset, as far as it can be read."""
    ranges = [OffsetRange(tp.topic, tp.partition, offset, offset + 1) for tp, offset in offsets.items()]
    wanted, found = Wanted(key=False, value=False), {}
    try:
        for chunk in read_ranges(cluster, ranges, wanted, Isolation.READ_UNCOMMITTED, stall_ms=_STALL_MS):
            if chunk.records.count:
                found[chunk.tp] = int(chunk.records.timestamp_ms[0])
    except KeyedwmError:  # records that retention has deleted since, or a broker that went away: the picture stands
        return found
    return found
