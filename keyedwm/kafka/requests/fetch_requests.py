"""Fetch requests, and their answers about each partition.

Rule: a request carries the topic id, the leader epoch and the epoch of the last record read, if the broker knows them
(KIP-516, KIP-320, KIP-595). So a recreated topic and a truncated log are answered with an error, not with other
records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.values import Isolation, TopicPartition
from keyedwm.kafka.requests.metadata import Metadata

NO_EPOCH = -1
_NO_TOPIC_ID = UUID(int=0)
_NO_REPLICA, _MOST_REDIRECTS = -1, 3
_TOPIC_IDS_SINCE, _BY_NAME_UNTIL = 13, 12  # versions of Fetch


@dataclass(slots=True, eq=False)
class RangeReader:
    """One range being read.

    position: the next offset to request. leader_epoch: the epoch of the last batch read. is_checked: whether the leader
    compares this epoch with its log; not after a wrong answer.
    """

    index: int
    tp: TopicPartition
    position: int
    end: int
    topic_id: UUID | None = None
    leader_epoch: int = NO_EPOCH
    is_checked: bool = True


class Replicas:
    """The replica that each partition is read from: the leader, or one in our rack that the leader named (KIP-392).

    After a replica fails, does not answer or redirects again and again, only leaders are asked.
    """

    def __init__(self, rack: str) -> None:
        self.rack = rack
        self._preferred: dict[TopicPartition, int] = {}
        self._redirects: Counter[TopicPartition] = Counter()

    def node_for(self, tp: TopicPartition, leader: int) -> int:
        """Return the node to ask for a partition."""
        return self._preferred.get(tp, leader)

    def redirected(self, tp: TopicPartition, data: Any, node: int) -> bool:
        """Whether a node's answer names another replica to read from."""
        replica = getattr(data, "preferred_read_replica", _NO_REPLICA)  # answers before version 11 name none
        if not self.rack or replica in {_NO_REPLICA, node}:
            return False
        self._redirects[tp] += 1
        if self._redirects[tp] > _MOST_REDIRECTS:
            self.use_leaders()
        else:
            self._preferred[tp] = replica
        return True

    def is_follower(self, tp: TopicPartition, node: int) -> bool:
        """Whether a node was named by the leader, and is not asked as the leader itself."""
        return self._preferred.get(tp) == node

    def use_leaders(self) -> None:
        """Read from leaders only from now on."""
        self.rack = ""
        self._preferred.clear()


def fetch_request(
    readers: Sequence[RangeReader],
    isolation: Isolation,
    config: ClientConfig,
    metadata: Metadata,
    *,
    rack: str,
    wait: bool,
) -> FetchRequest:
    """Return one request for all ranges; without `wait` the broker answers at once, since the records exist already."""
    topic_type = FetchRequest.FetchTopic
    topics: list[Any] = []
    for reader in readers:
        if not topics or topics[-1].topic != reader.tp.topic:
            topic_id = reader.topic_id or _NO_TOPIC_ID
            topics.append(topic_type(topic=reader.tp.topic, topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(
            topic_type.FetchPartition(
                partition=reader.tp.partition,
                fetch_offset=reader.position,
                partition_max_bytes=config.partition_fetch_bytes,
                current_leader_epoch=metadata.leader_epoch(reader.tp),
                last_fetched_epoch=reader.leader_epoch if reader.is_checked else NO_EPOCH,
                log_start_offset=-1,
            )
        )
    return FetchRequest(
        max_wait_ms=config.fetch_wait_ms if wait else 0,
        min_bytes=1,
        max_bytes=config.fetch_bytes,
        isolation_level=isolation.wire,
        session_id=0,
        session_epoch=-1,
        forgotten_topics_data=[],
        rack_id=rack,
        topics=topics,
        min_version=4,
        max_version=_TOPIC_IDS_SINCE if all(reader.topic_id for reader in readers) else _BY_NAME_UNTIL,
    )


def by_partition(response: Any, readers: Sequence[RangeReader]) -> dict[TopicPartition, Any]:
    """Return an answer's data by partition, without partitions that were not requested."""
    partitions = {reader.tp for reader in readers}
    names = {reader.topic_id: reader.tp.topic for reader in readers}
    by_id = response.API_VERSION >= _TOPIC_IDS_SINCE
    parts = {
        TopicPartition(names.get(topic.topic_id, "") if by_id else topic.topic, part.partition_index): part
        for topic in response.responses
        for part in topic.partitions
    }
    return {tp: part for tp, part in parts.items() if tp in partitions}


def diverging_end(data: Any) -> int | None:
    """Return the offset from which, by a leader's answer, its log diverges from the records read; None without one."""
    diverging = getattr(data, "diverging_epoch", None)  # answers before version 12 have none
    return diverging.end_offset if diverging is not None and diverging.end_offset >= 0 else None


def nothing_sentence(reader: RangeReader, data: Any, isolation: Isolation, throttle_ms: int) -> str:
    """Return why an answer may have no record for a range. data: the answer about its partition, None if missing."""
    tp = reader.tp
    if throttle_ms:
        return f"{tp}: the broker throttles this client by {throttle_ms} ms"
    if data is None:
        return f"{tp}: the answer leaves this partition out"
    problem = f"nothing after offset {reader.position} of {tp}"
    # The records that a reader may see end at the high watermark, or at the last stable offset.
    readable = data.last_stable_offset if isolation is Isolation.READ_COMMITTED else data.high_watermark
    if readable < reader.end:
        return f"{problem}, which can be read up to offset {readable}; the range ends at {reader.end}"
    return (
        f"{problem}, although it can be read up to offset {readable} and the range ends at {reader.end}: the brokers "
        "hold these records back, or compaction left none there until another record is written"
    )
