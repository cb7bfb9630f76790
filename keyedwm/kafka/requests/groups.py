"""Committed positions of a consumer group, without being its member (docs/design/state.md).

Rule: an error for one partition is an answer, not an exception: a lost commit costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.connection import Connection, Retry, TransientError, first_of
from keyedwm.kafka.client.errors import AccessError, Code, GroupAccessError, described
from keyedwm.kafka.client.values import Committed, TopicPartition, by_topic
from keyedwm.kafka.requests.coordinators import GROUP, Coordinators
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.versions import VERSIONS

_NO_OFFSET = -1
# Half of a broker's default limit of a batch (message.max.bytes, 1 MiB), by a generous estimate.
_COMMIT_BYTES = 512 << 10
_COMMIT_OVERHEAD_BYTES = 64
_BY_GROUP_SINCE = 8  # the version of OffsetFetch


def commit(
    connection: Connection,
    coordinators: Coordinators,
    group: str,
    positions: Mapping[tuple[str, int], tuple[int, str]],
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Code]:
    """Commit positions and metadata by partition; `Cluster.commit_offsets` has the contract."""
    answers: dict[TopicPartition, Code] = {}
    for part in _parts(group, positions):
        answers |= _commit(connection, coordinators, group, part, timeout_ms)
    return answers


def _parts(
    group: str, positions: Mapping[tuple[str, int], tuple[int, str]]
) -> Iterator[dict[TopicPartition, tuple[int, str]]]:
    """Cut a commit into requests that a coordinator accepts: it writes each as one batch of its topic."""
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
        codes = {TopicPartition(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
        answers |= {tp: Code.of(codes[tp]) for tp in pending if tp in codes}
        left_out = [tp for tp in pending if tp not in codes]
        again = [tp for tp in pending if tp in codes and reaction(Api.OFFSET_COMMIT, codes[tp]).repeats]
        _wait(coordinators, group, Api.OFFSET_COMMIT, [codes[tp] for tp in again], left_out, retry)
        pending = {tp: pending[tp] for tp in (*left_out, *again)}
    return answers


def fetch(
    connection: Connection,
    coordinators: Coordinators,
    group: str,
    partitions: Iterable[tuple[str, int]] | None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Committed]:
    """Return committed positions; `Cluster.fetch_offsets` has the contract."""
    retry = Retry(connection.config, f"reading the committed offsets of group {group!r}", timeout_ms)
    places = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
    while places is None or places:
        response = _to_coordinator(connection, coordinators, group, _fetch_request(group, places), retry)
        try:
            has_groups = response.API_VERSION >= _BY_GROUP_SINCE
            answer = first_of(response.groups, "group", group_id=group) if has_groups else response
        except TransientError as error:
            retry.pause(error)
            continue
        of_group = answer.error_code
        parts = {TopicPartition(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}
        numbers = {of_group, *(part.error_code for part in parts.values())}
        if Code.GROUP_AUTHORIZATION_FAILED in numbers:
            raise GroupAccessError(f"not allowed to read the committed offsets of group {group!r}")
        again = [number for number in numbers if reaction(Api.OFFSET_FETCH, number).repeats]
        left_out = [tp for tp in places or () if tp not in parts and not of_group]
        if not again and not left_out:
            _check_answered(group, of_group, parts)
            return {
                tp: Committed(part.committed_offset, part.metadata or "")
                for tp, part in parts.items()
                if part.error_code == Code.NONE and part.committed_offset != _NO_OFFSET
            }
        _wait(coordinators, group, Api.OFFSET_FETCH, again, left_out, retry)
    return {}


def _check_answered(group: str, number: int, parts: Mapping[TopicPartition, Any]) -> None:
    """Raise the error of a group, or of a partition, whose committed offset stays unknown."""
    if Code.of(number).denied:
        raise AccessError(f"not allowed to read the committed offsets of group {group!r}: {described(number)}")
    if reaction(Api.OFFSET_FETCH, number) is Reaction.FINAL:
        raise InputError(f"group {group!r} has no committed offsets to read: {described(number)}")
    for tp, part in parts.items():
        if reaction(Api.OFFSET_FETCH, part.error_code) is Reaction.FINAL:
            why = f"the committed offset of {tp} in group {group!r}: {described(part.error_code)}"
            if Code.of(part.error_code).denied:
                raise AccessError(f"not allowed to read {why}")
            raise InputError(f"the broker does not give {why}")


def _to_coordinator(connection: Connection, coordinators: Coordinators, group: str, request: Any, retry: Retry) -> Any:
    while True:
        node = coordinators.find(group, GROUP, retry)
        try:
            return connection.call(node, request)
        except TransientError as error:
            coordinators.forget(group, GROUP)
            retry.pause(error)


def _wait(  # noqa: PLR0917
    coordinators: Coordinators,
    group: str,
    api: Api,
    codes: Sequence[int],
    left_out: Sequence[TopicPartition],
    retry: Retry,
) -> None:
    """Pause if codes require a retry, or if an answer lacks partitions."""
    if any(reaction(api, code) is Reaction.REFRESH for code in codes):
        coordinators.forget(group, GROUP)
    if codes:
        retry.pause(described(min(codes)))
    elif left_out:
        retry.pause(f"{left_out[0]}: the answer leaves this partition out")


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
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=topics,
        **VERSIONS[Api.OFFSET_COMMIT].limits,
    )


def _fetch_request(group: str, places: list[TopicPartition] | None) -> OffsetFetchRequest:
    group_type = OffsetFetchRequest.OffsetFetchRequestGroup
    numbers_by_topic = by_topic(places or (), lambda tp: tp.partition)
    requested = [
        group_type.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
        for name, numbers in numbers_by_topic.items()
    ]
    topic_requests = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
        for name, numbers in numbers_by_topic.items()
    ]  # as versions before 8 have them
    topics = None if places is None else requested  # null asks for all
    return OffsetFetchRequest(
        groups=[group_type(group_id=group, topics=topics)], group_id=group,
        topics=None if topics is None else topic_requests, require_stable=True, **VERSIONS[Api.OFFSET_FETCH].limits,
    )  # fmt: skip
