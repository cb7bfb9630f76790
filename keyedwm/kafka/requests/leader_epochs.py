"""OffsetForLeaderEpoch (KIP-320): where the records of a leader epoch end in the log as it is now.

Rule: a reader that stands behind that end read records which the log has lost, as after an unclean leader election.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from keyedwm.kafka.client.values import TopicPartition, by_topic
from keyedwm.kafka.requests.metadata import Metadata
from keyedwm.kafka.requests.offsets import ask_leaders

_CONSUMER = -1
_UNKNOWN = -1


def epoch_ends(metadata: Metadata, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """See Cluster.epoch_ends."""
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def part(tp: TopicPartition) -> Any:
        return topic_type.OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=metadata.leader_epoch(tp),
            leader_epoch=epochs[tp],
        )

    def request(partitions: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
        topics = [topic_type(topic=name, partitions=parts) for name, parts in by_topic(partitions, part).items()]
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, min_version=2, max_version=4)

    def parts(answer: Any) -> dict[TopicPartition, Any]:
        return {TopicPartition(t.topic, part.partition): part for t in answer.topics for part in t.partitions}

    answers = ask_leaders(metadata, epochs, request, parts)
    return {tp: None if part.end_offset == _UNKNOWN else part.end_offset for tp, part in answers.items()}
