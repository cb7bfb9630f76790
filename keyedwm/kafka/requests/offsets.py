"""ListOffsets: the begin and end of a partition's log, its leader epoch, and the offset of a timestamp.

Rule: one request per leader at a time, all leaders in parallel; partitions whose leader moved are asked again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from keyedwm.core.errors import InputError, KeyedwmError
from keyedwm.kafka.client.connection import Retry, TransientError
from keyedwm.kafka.client.errors import AccessError, Code, described
from keyedwm.kafka.client.values import Isolation, LogEnd, TopicPartition, by_topic
from keyedwm.kafka.requests.metadata import Metadata
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.versions import VERSIONS

_LATEST, _EARLIEST, _NEWEST_TIME = -1, -2, -3
_NO_OFFSET = _NO_EPOCH = -1
# A planning asks the same of each partition as the planning before. kafka-python needs 4 µs for an entry.
_CACHED_ENTRIES = 100_000


def earliest(metadata: Metadata, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
    """Return the first offset of each partition's log."""
    return _offsets(_ask(metadata, dict.fromkeys(map(_pair, partitions), _EARLIEST), Isolation.READ_UNCOMMITTED))


def newest_times(metadata: Metadata, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int | None]:
    """Return the highest timestamp (ms) in each log, None without a record."""
    specs = dict.fromkeys(map(_pair, partitions), _NEWEST_TIME)
    answers = _ask(metadata, specs, Isolation.READ_UNCOMMITTED, min_version=7)
    return {tp: None if part.offset == _NO_OFFSET else part.timestamp for tp, part in answers.items()}


def latest(
    metadata: Metadata, partitions: Iterable[tuple[str, int]], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Return the offset after the last readable record of each partition."""
    return {tp: end.offset for tp, end in log_ends(metadata, partitions, isolation).items()}


def log_ends(
    metadata: Metadata, partitions: Iterable[tuple[str, int]], isolation: Isolation
) -> dict[TopicPartition, LogEnd]:
    """Return the offset after the last readable record of each partition, with its leader epoch."""
    answers = _ask(metadata, dict.fromkeys(map(_pair, partitions), _LATEST), isolation)
    return {
        tp: LogEnd(part.offset, None if part.leader_epoch == _NO_EPOCH else part.leader_epoch)
        for tp, part in answers.items()
    }


def by_timestamp(
    metadata: Metadata, timestamps_ms: Mapping[tuple[str, int], int], isolation: Isolation
) -> dict[TopicPartition, int | None]:
    """Return the first offset at or after a timestamp (ms) by partition, None without one."""
    for tp, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise InputError(f"timestamp {timestamp_ms} of {_pair(tp)} is before 1970: it must be 0 ms or more")
    offsets = _offsets(_ask(metadata, {_pair(tp): ms for tp, ms in timestamps_ms.items()}, isolation))
    return {tp: None if offset == _NO_OFFSET else offset for tp, offset in offsets.items()}


def _pair(tp: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*tp)


def _offsets(parts: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
    return {tp: part.offset for tp, part in parts.items()}


def _ask(
    metadata: Metadata, specs: Mapping[TopicPartition, int], isolation: Isolation, *, min_version: int | None = None
) -> dict[TopicPartition, Any]:
    def request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
        return _request(metadata, partitions, specs, isolation, min_version)

    def parts(answer: Any) -> dict[TopicPartition, Any]:
        return {
            tp: part
            for topic in answer.topics
            for part in topic.partitions
            if not lacks_offset(tp := TopicPartition(topic.name, part.partition_index), part)
        }

    def lacks_offset(tp: TopicPartition, part: Any) -> bool:
        if part.offset != _NO_OFFSET or part.error_code:
            return False
        return specs.get(tp) in {_LATEST, _EARLIEST}  # every log has a start and an end

    return ask_leaders(metadata, specs, Api.LIST_OFFSETS, request, parts)


def ask_leaders(
    metadata: Metadata,
    targets: Iterable[TopicPartition],
    api: Api,
    request: Callable[[list[TopicPartition]], Any],
    parts_of: Callable[[Any], Mapping[TopicPartition, Any]],
) -> dict[TopicPartition, Any]:
    """Ask the leader of each partition until all have answered; return the answer about each partition.

    request: builds the request for the partitions of one leader. parts_of: the parts of an answer, by partition.
    """
    answers: dict[TopicPartition, Any] = {}
    connection = metadata.connection
    retry = Retry(connection.config, "reading the offsets of topics")
    pending = dict.fromkeys(targets)
    while pending:
        requests = [
            (partitions, connection.submit(node, request(partitions)))
            for node, partitions in metadata.leaders(pending, retry).items()
        ]
        failed: dict[TopicPartition, str] = {}
        stale_topics: set[str] = set()
        for partitions, answer in requests:
            try:
                response = connection.result(answer)
            except TransientError as error:
                failed |= dict.fromkeys(partitions, str(error))
                stale_topics |= {tp.topic for tp in partitions}
                continue
            parts = parts_of(response)
            for tp in partitions:
                part = parts.get(tp)
                if part is None:
                    failed[tp] = "the answer leaves this partition, or its offset, out"
                    stale_topics.add(tp.topic)
                elif (then := reaction(api, part.error_code)) is Reaction.ANSWER:
                    answers[tp] = part
                    del pending[tp]
                elif then is Reaction.FINAL:
                    raise _refused(tp, part.error_code)
                else:
                    failed[tp] = described(part.error_code)
                    stale_topics |= {tp.topic} if then is Reaction.REFRESH else set()
        if failed:
            metadata.forget_leaders(stale_topics)
            tp = min(failed)
            retry.pause(f"{tp}: {failed[tp]}")
    return answers


def _refused(tp: TopicPartition, code: int) -> KeyedwmError:
    if Code.of(code).denied:
        return AccessError(f"not allowed to read the offsets of {tp}: {described(code)}")
    return InputError(f"the offsets of {tp} cannot be read: {described(code)}")


def _request(
    metadata: Metadata,
    partitions: list[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    isolation: Isolation,
    min_version: int | None,
) -> ListOffsetsRequest:
    def part(tp: TopicPartition) -> Any:
        return _entry(tp.partition, metadata.leader_epoch(tp), timestamps[tp])

    topic_type = ListOffsetsRequest.ListOffsetsTopic
    topics = [topic_type(name=name, partitions=parts) for name, parts in by_topic(partitions, part).items()]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation.wire,
        topics=topics,
        **(VERSIONS[Api.LIST_OFFSETS].limits | ({} if min_version is None else {"min_version": min_version})),
    )


@functools.lru_cache(maxsize=_CACHED_ENTRIES)
def _entry(partition: int, leader_epoch: int, timestamp_ms: int) -> Any:
    """Return the entry of a partition in a request; nobody changes an entry."""
    return ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp_ms
    )
