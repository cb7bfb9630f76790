"""Leader epochs of the present log: the end of an epoch (OffsetForLeaderEpoch, KIP-320), and the epoch of a record.

Rule: the first is an answer about the log, the second is in the log. A reader whose position is behind the end of its
epoch has read records that the log has lost, as after an unclean leader election. Some servers answer with a wrong end,
so the record before the reader's position decides: a log that lost it has another record there, of a later epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from keyedwm.kafka.client.errors import Code, UnsupportedRequestError
from keyedwm.kafka.client.values import Isolation, TopicPartition, by_topic
from keyedwm.kafka.records.batches import BatchField, find_batches
from keyedwm.kafka.requests.fetch_requests import NO_EPOCH, RangeReader, by_partition, fetch_request
from keyedwm.kafka.requests.metadata import Metadata
from keyedwm.kafka.requests.offsets import ask_leaders, latest
from keyedwm.kafka.requests.reactions import Api
from keyedwm.kafka.requests.versions import VERSIONS

_CONSUMER = -1
_UNKNOWN = -1


class _Record(NamedTuple):
    """A leader's answer about one record."""

    error_code: int
    leader_epoch: int = NO_EPOCH


def epoch_ends(metadata: Metadata, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """Return the end offset of a leader epoch by partition, None if unknown."""
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def part(tp: TopicPartition) -> Any:
        return topic_type.OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=metadata.leader_epoch(tp),
            leader_epoch=epochs[tp],
        )

    def request(partitions: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
        topics = [topic_type(topic=name, partitions=parts) for name, parts in by_topic(partitions, part).items()]
        limits = VERSIONS[Api.OFFSET_FOR_LEADER_EPOCH].limits
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics, **limits)

    def parts(answer: Any) -> dict[TopicPartition, Any]:
        return {TopicPartition(t.topic, part.partition): part for t in answer.topics for part in t.partitions}

    try:
        answers = ask_leaders(metadata, epochs, Api.OFFSET_FOR_LEADER_EPOCH, request, parts)
    except UnsupportedRequestError:  # the query warned of the loss at its start
        return dict.fromkeys(epochs)
    return {tp: None if part.end_offset == _UNKNOWN else part.end_offset for tp, part in answers.items()}


def lost_records(metadata: Metadata, reads: Mapping[TopicPartition, tuple[int, int]]) -> set[TopicPartition]:
    """Return the partitions whose logs do not hold the record before a position as it was read.

    reads: the position, and the highest leader epoch before it, when it was read. A log that begins at the position has
    lost nothing by truncation. If compaction removed the record, the next record counts.
    """
    ends = latest(metadata, reads, Isolation.READ_UNCOMMITTED)
    positions = {tp: position for tp, (position, _) in reads.items() if position <= ends[tp]}
    epochs = _record_epochs(metadata, positions)
    return {tp for tp, (_, epoch) in reads.items() if tp not in positions or epochs[tp] > epoch}


def _record_epochs(metadata: Metadata, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the leader epoch of the record before each position; -1 without one, or for an old format."""
    readers = {
        tp: RangeReader(0, tp, position - 1, position, metadata.topic_id(tp.topic))
        for tp, position in positions.items()
    }

    def request(partitions: list[TopicPartition]) -> Any:
        of_leader = [readers[tp] for tp in partitions]
        config = metadata.connection.config
        return fetch_request(of_leader, Isolation.READ_UNCOMMITTED, config, metadata, rack="", wait=True)

    def parts(answer: Any) -> dict[TopicPartition, _Record]:
        records = {tp: _record(readers[tp], part) for tp, part in by_partition(answer, [*readers.values()]).items()}
        return {tp: record for tp, record in records.items() if record is not None}

    answers = ask_leaders(metadata, positions, Api.FETCH, request, parts)
    return {tp: record.leader_epoch for tp, record in answers.items()}


def _record(reader: RangeReader, part: Any) -> _Record | None:
    """Return None for an answer without a batch, as brokers on object stores give it while they read."""
    if Code.of(part.error_code) is Code.OFFSET_OUT_OF_RANGE:
        return _Record(Code.NONE)
    if part.error_code:
        return _Record(part.error_code)
    batches = find_batches(reader.tp, part.records or b"", reader.position)
    (rows,) = np.nonzero(batches.table[:, BatchField.LAST_OFFSET] >= reader.position)
    return _Record(Code.NONE, batches.leader_epoch_of(int(rows[0]))) if len(rows) else None
