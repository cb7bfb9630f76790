"""Committed positions of a consumer group, without being its member (docs/design/state.md).

Rule: a refusal of one partition is an answer, not an exception: losing a commit costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.connection import Connection, Retry, TransientError, first_of
from keyedwm.kafka.client.errors import Code, GroupAccessError, described
from keyedwm.kafka.client.values import Committed, TopicPartition, by_topic
from keyedwm.kafka.requests.coordinators import GROUP, MOVED, Coordinators

_NO_OFFSET = -1
# Half of what a broker takes as one batch by default (message.max.bytes, 1 MiB), by a generous estimate.
_COMMIT_BYTES = 512 << 10
_COMMIT_OVERHEAD_BYTES = 64
_WAIT = MOVED | {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.UNSTABLE_OFFSET_COMMIT}


def commit(
    connection: Connection,
    coordinators: Coordinators,
    group: str,
    positions: Mapping[tuple[str, int], tuple[int, str]],
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Code]:
    """See Cluster.commit_offsets."""
    answers: dict[TopicPartition, Code] = {}
    for part in _parts(group, positions):
        answers |= _commit(connection, coordinators, group, part, timeout_ms)
    return answers


def _parts(
    group: str, positions: Mapping[tuple[str, int], tuple[int, str]]
) -> Iterator[dict[TopicPartition, tuple[int, str]]]:
    """Cut a commit into requests that a coordinator takes: it writes each as one batch of its topic."""
    part: dict[TopicPartition, tuple[int, str]] = {}
    size = 0
    for tp, position in positions.items():
        size_of_one = len(group) + len(tp[0]) + len(position[1]) + _COMMIT_OVERHEAD_BYTES
        if part and size + size_of_one > _COMMIT_BYTES:
            yield part
            part, size = {}, 0
        part[TopicPartition(*tp)] = position
        size += size_of_one
    yield part


def _commit(
    connection: Connection,
    coordinators: Coordinators,
    group: str,
    positions: dict[TopicPartition, tuple[int, str]],
    timeout_ms: int | None,
) -> dict[TopicPartition, Code]:
    retry = Retry(connection.config, f"committing offsets of group {group!r}", timeout_ms)
    pending = positions
    answers: dict[TopicPartition, Code] = {}
    while pending:
        try:
            response = _to_coordinator(connection, coordinators, group, _commit_request(group, pending), retry)
        except GroupAccessError:
            return answers | dict.fromkeys(pending, Code.GROUP_AUTHORIZATION_FAILED)
        codes = {
            TopicPartition(t.name, p.partition_index): Code.of(p.error_code)
            for t in response.topics
            for p in t.partitions
        }
        answers |= codes
        pending = {tp: position for tp, position in pending.items() if codes.get(tp, Code.OTHER) in _WAIT}
        _wait(coordinators, group, (codes[tp] for tp in pending), retry)
    return answers


def fetch(
    connection: Connection,
    coordinators: Coordinators,
    group: str,
    partitions: Iterable[tuple[str, int]] | None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Committed]:
    """See Cluster.fetch_offsets."""
    retry = Retry(connection.config, f"reading the committed offsets of group {group!r}", timeout_ms)
    places = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
    while places is None or places:
        response = _to_coordinator(connection, coordinators, group, _fetch_request(group, places), retry)
        try:
            answer = first_of(response.groups, "group")
        except TransientError as error:
            retry.pause(error)
            continue
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
        _wait(coordinators, group, codes & _WAIT, retry)
    return {}


def _to_coordinator(connection: Connection, coordinators: Coordinators, group: str, request: Any, retry: Retry) -> Any:
    while True:
        node = coordinators.find(group, GROUP, retry)
        try:
            return connection.call(node, request)
        except TransientError as error:
            coordinators.forget(group, GROUP)
            retry.pause(error)


def _wait(coordinators: Coordinators, group: str, codes: Iterable[Code], retry: Retry) -> None:
    seen = sorted(codes)
    if seen:
        if MOVED.intersection(seen):
            coordinators.forget(group, GROUP)
        retry.pause(described(seen[0]))


def _commit_request(group: str, positions: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest:
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic

    def part(tp: TopicPartition) -> Any:
        next_offset, metadata = positions[tp]
        return topic_type.OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=next_offset,
            committed_leader_epoch=-1,
            committed_metadata=metadata,
        )

    topics = [topic_type(name=name, partitions=parts) for name, parts in by_topic(positions, part).items()]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics, min_version=2, max_version=9
    )


def _fetch_request(group: str, places: list[TopicPartition] | None) -> OffsetFetchRequest:
    group_type = OffsetFetchRequest.OffsetFetchRequestGroup
    requested = [
        group_type.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
        for name, numbers in by_topic(places or (), lambda tp: tp.partition).items()
    ]
    topics = None if places is None else requested  # null asks for all
    return OffsetFetchRequest(
        groups=[group_type(group_id=group, topics=topics)], require_stable=True, min_version=8, max_version=9
    )
