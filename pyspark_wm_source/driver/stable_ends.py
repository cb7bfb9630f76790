"""Last stable offsets that lie below a query's position: an open transaction begins there.

Kafka answers so if the transaction's first records were deleted, or if the query read them as uncommitted records.
"""

from __future__ import annotations

from collections.abc import Mapping

from keyedwm.kafka.client.values import TopicPartition
from pyspark_wm_source.values.offsets import QueryOffset


def next_offset_of(start: QueryOffset, tp: TopicPartition) -> int:
    """Return the next offset to read, also of a channel that was absent for a while; 0 for a new channel."""
    before = start.channels.get(tp) or start.retired.get(tp)
    return start.begins.get(tp, 0) if before is None else before.next_offset


def readable_ends(
    stable: Mapping[TopicPartition, int], high: Mapping[TopicPartition, int], start: QueryOffset
) -> dict[TopicPartition, int]:
    """Return the last stable offsets; the query's position in a log that is long enough and has a lower one.

    high: the high watermarks.
    """
    positions = {tp: next_offset_of(start, tp) for tp in stable}
    return {tp: positions[tp] if end < positions[tp] <= high[tp] else end for tp, end in stable.items()}
