"""ListOffsets: where a partition's log begins and ends, and which offset a timestamp has.

Rule: one request per leader at a time, all leaders in parallel; partitions whose leader moved are asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka.protocol.consumer import ListOffsetsRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.connection import Retry, TransientError
from keyedwm.kafka.errors import AccessError, Code, described
from keyedwm.kafka.values import Isolation, TopicPartition

if TYPE_CHECKING:
    from keyedwm.kafka.cluster import Cluster

_LATEST, _EARLIEST = -1, -2
_NO_OFFSET = -1


def earliest(cluster: Cluster, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
    """See Cluster.earliest."""
    return _ask(cluster, dict.fromkeys(map(_place, partitions), _EARLIEST), Isolation.READ_UNCOMMITTED)


def latest(cluster: Cluster, partitions: Iterable[tuple[str, int]], isolation: Isolation) -> dict[TopicPartition, int]:
    """See Cluster.latest."""
    return _ask(cluster, dict.fromkeys(map(_place, partitions), _LATEST), isolation)


def by_timestamp(
    cluster: Cluster, timestamps_ms: Mapping[tuple[str, int], int], isolation: Isolation
) -> dict[TopicPartition, int | None]:
    """See Cluster.by_timestamp."""
    for where, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise InputError(f"timestamp {timestamp_ms} of {_place(where)} is before 1970: 0 ms or more is wanted")
    found = _ask(cluster, {_place(where): ms for where, ms in timestamps_ms.items()}, isolation)
    return {where: None if offset == _NO_OFFSET else offset for where, offset in found.items()}


def _place(where: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*where)


def _ask(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    retry = Retry(cluster.config, "reading the offsets of topics")
    pending = dict(wanted)
    while pending:
        sent = [
            (partitions, cluster.connection.submit(node, _request(partitions, pending, isolation)))
            for node, partitions in cluster.leaders(pending, retry).items()
        ]
        trouble: dict[TopicPartition, str] = {}
        for partitions, answer in sent:
            try:
                response = cluster.connection.result(answer)
            except TransientError as error:
                trouble |= dict.fromkeys(partitions, str(error))
                continue
            for topic in response.topics:
                for part in topic.partitions:
                    where = TopicPartition(topic.name, part.partition_index)
                    if part.error_code == Code.NONE:
                        found[where] = part.offset
                        del pending[where]
                    else:
                        trouble[where] = _retriable(where, part.error_code)
        if trouble:
            cluster.forget_leaders({where.topic for where in trouble})
            where = min(trouble)
            retry.pause(f"{where}: {trouble[where]}")
    return found


def _retriable(where: TopicPartition, code: int) -> str:
    kind = Code.of(code)
    if kind.denied:
        raise AccessError(f"not allowed to read the offsets of {where}: {described(code)}")
    if not kind.retriable:
        raise InputError(f"the offsets of {where} cannot be read: {described(code)}")
    return described(code)


def _request(
    partitions: list[TopicPartition], timestamps: Mapping[TopicPartition, int], isolation: Isolation
) -> ListOffsetsRequest:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list] = {}
    for where in partitions:
        by_topic.setdefault(where.topic, []).append(
            topic_type.ListOffsetsPartition(
                partition_index=where.partition, current_leader_epoch=-1, timestamp=timestamps[where]
            )
        )
    topics = [topic_type(name=name, partitions=parts) for name, parts in by_topic.items()]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation.wire, topics=topics, min_version=2, max_version=7
    )
