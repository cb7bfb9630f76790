"""Committed positions of a consumer group, without being its member (DESIGN section 5).

Rule: a refusal of one partition is an answer, not an exception: losing a commit costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.connection import Retry, TransientError
from keyedwm.kafka.errors import AccessError, Code, GroupAccessError, described
from keyedwm.kafka.values import Committed, TopicPartition

if TYPE_CHECKING:
    from keyedwm.kafka.cluster import Cluster

GROUP, TRANSACTION = 0, 1
_NO_OFFSET = -1
_ELSEWHERE = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})
# Half of what a broker takes as one batch by default (message.max.bytes, 1 MiB), by a generous estimate.
_COMMIT_BYTES = 512 << 10
_COMMIT_OVERHEAD_BYTES = 64
_WAIT = _ELSEWHERE | {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.UNSTABLE_OFFSET_COMMIT}


def find_coordinator(cluster: Cluster, key: str, kind: int, retry: Retry) -> int:
    """The node that coordinates a group or a transactional id; see Cluster.coordinator."""
    while True:
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key], min_version=1, max_version=4)
        try:
            response = cluster.connection.call(None, request)
        except TransientError as error:
            retry.pause(error)
            continue
        found = response.coordinators[0] if response.API_VERSION >= 4 else response
        code = Code.of(found.error_code)
        if code is Code.NONE:
            return found.node_id
        what = f"group {key!r}" if kind == GROUP else f"transactional id {key!r}"
        if code.denied:
            raise (GroupAccessError if kind == GROUP else AccessError)(
                f"not allowed to use {what}: {described(found.error_code)}"
            )
        if not code.retriable:
            raise InputError(f"the coordinator of {what} cannot be found: {described(found.error_code)}")
        retry.pause(described(found.error_code))


def commit(
    cluster: Cluster, group: str, positions: Mapping[tuple[str, int], tuple[int, str]]
) -> dict[TopicPartition, Code]:
    """See Cluster.commit_offsets."""
    answers: dict[TopicPartition, Code] = {}
    for part in _parts(group, positions):
        answers |= _commit(cluster, group, part)
    return answers


def _parts(
    group: str, positions: Mapping[tuple[str, int], tuple[int, str]]
) -> Iterator[dict[TopicPartition, tuple[int, str]]]:
    """Cut a commit into requests that a coordinator takes: it writes each as one batch of its topic."""
    part: dict[TopicPartition, tuple[int, str]] = {}
    size = 0
    for where, position in positions.items():
        least = len(group) + len(where[0]) + len(position[1]) + _COMMIT_OVERHEAD_BYTES
        if part and size + least > _COMMIT_BYTES:
            yield part
            part, size = {}, 0
        part[TopicPartition(*where)] = position
        size += least
    yield part


def _commit(
    cluster: Cluster, group: str, positions: dict[TopicPartition, tuple[int, str]]
) -> dict[TopicPartition, Code]:
    retry = Retry(cluster.config, f"committing offsets of group {group!r}")
    pending = positions
    answers: dict[TopicPartition, Code] = {}
    while pending:
        try:
            response = _to_coordinator(cluster, group, _commit_request(group, pending), retry)
        except GroupAccessError:
            return answers | dict.fromkeys(pending, Code.GROUP_AUTHORIZATION_FAILED)
        codes = {
            TopicPartition(t.name, p.partition_index): Code.of(p.error_code)
            for t in response.topics
            for p in t.partitions
        }
        answers |= codes
        pending = {where: position for where, position in pending.items() if codes.get(where, Code.OTHER) in _WAIT}
        _wait(cluster, group, (codes[where] for where in pending), retry)
    return answers


def fetch(cluster: Cluster, group: str, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, Committed]:
    """See Cluster.fetch_offsets."""
    retry = Retry(cluster.config, f"reading the committed offsets of group {group!r}")
    places = [TopicPartition(*where) for where in partitions]
    while places:
        answer = _to_coordinator(cluster, group, _fetch_request(group, places), retry).groups[0]
        found = {answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)}
        codes = set(map(Code.of, found)) - {Code.NONE}
        if Code.GROUP_AUTHORIZATION_FAILED in codes:
            raise GroupAccessError(f"not allowed to read the committed offsets of group {group!r}")
        if not codes & _WAIT:
            if answer.error_code != Code.NONE:
                raise InputError(f"group {group!r} has no committed offsets to read: {described(answer.error_code)}")
            return {
                TopicPartition(t.name, p.partition_index): Committed(p.committed_offset, p.metadata or "")
                for t in answer.topics
                for p in t.partitions
                if p.error_code == Code.NONE and p.committed_offset != _NO_OFFSET
            }
        _wait(cluster, group, codes & _WAIT, retry)
    return {}


def _to_coordinator(cluster: Cluster, group: str, request: Any, retry: Retry) -> Any:
    while True:
        node = cluster.coordinator(group, GROUP, retry)
        try:
            return cluster.connection.call(node, request)
        except TransientError as error:
            cluster.forget_coordinator(group, GROUP)
            retry.pause(error)


def _wait(cluster: Cluster, group: str, codes: Iterable[Code], retry: Retry) -> None:
    seen = sorted(codes)
    if seen:
        if _ELSEWHERE.intersection(seen):
            cluster.forget_coordinator(group, GROUP)
        retry.pause(described(seen[0]))


def _commit_request(group: str, positions: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest:
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    by_topic: dict[str, list] = {}
    for where, (next_offset, metadata) in positions.items():
        by_topic.setdefault(where.topic, []).append(
            topic_type.OffsetCommitRequestPartition(
                partition_index=where.partition,
                committed_offset=next_offset,
                committed_leader_epoch=-1,
                committed_metadata=metadata,
            )
        )
    topics = [topic_type(name=name, partitions=parts) for name, parts in by_topic.items()]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics, min_version=2, max_version=9
    )


def _fetch_request(group: str, places: list[TopicPartition]) -> OffsetFetchRequest:
    group_type = OffsetFetchRequest.OffsetFetchRequestGroup
    by_topic: dict[str, list[int]] = {}
    for where in places:
        by_topic.setdefault(where.topic, []).append(where.partition)
    topics = [
        group_type.OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in by_topic.items()
    ]
    return OffsetFetchRequest(
        groups=[group_type(group_id=group, topics=topics)], require_stable=True, min_version=8, max_version=9
    )
