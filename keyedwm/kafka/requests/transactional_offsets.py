"""Offsets that are committed in a transaction, so that a fenced producer cannot commit them (KIP-98).

Rule: one call is one whole transaction under an id that is used many times. A call may be repeated: its commit replaces
the earlier one.
"""

from __future__ import annotations

import time
from typing import Any

from kafka.protocol.producer import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from keyedwm.core.errors import FencedError, UnavailableError
from keyedwm.kafka.client.connection import Retry, first_of
from keyedwm.kafka.client.errors import Code
from keyedwm.kafka.client.values import Committed, TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.coordinators import GROUP, TRANSACTION
from keyedwm.kafka.requests.reactions import Api
from keyedwm.kafka.requests.transactions import Fate, Transaction, ask, end, refusal
from keyedwm.kafka.requests.versions import VERSIONS


def commit_as(
    cluster: Cluster, producer: Transaction, group: str, tp: TopicPartition, position: Committed, *, timeout_ms: int
) -> None:
    """Commit one offset of a group as `producer`, which was started with `timeout_ms`.

    Raises FencedError: another producer has taken the id over. Then the offset was not committed, unless an answer had
    been lost before. Raises UnavailableError: it is unknown whether the offset is committed; repeat the call. Raises
    AccessError, InputError: the offset is not committed.
    """
    deadline_s = time.monotonic() + timeout_ms / 1_000
    try:
        _add_group(cluster, producer, group)
        _commit_offset(cluster, producer, group, tp, position)
        fate = end(cluster, [producer], commit=True)[producer]
        if fate is not Fate.COMMITTED:
            raise FencedError(
                f"transaction {producer.transactional_id!r} was not committed, it is {fate.value}: another producer "
                f"has fenced it"
            )
    except FencedError as error:
        if time.monotonic() < deadline_s:
            raise
        raise UnavailableError(
            f"transaction {producer.transactional_id!r} was ended by the broker: committing one offset of group "
            f"{group!r} took longer than {timeout_ms} ms"
        ) from error


def _add_group(cluster: Cluster, producer: Transaction, group: str) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
        **VERSIONS[Api.ADD_OFFSETS_TO_TXN].limits,
    )
    retry = Retry(cluster.config, f"adding group {group!r} to transaction {producer.transactional_id!r}")
    answer, code = ask(cluster, (producer.transactional_id, TRANSACTION), request, lambda of: of.error_code, retry)
    if code is not Code.NONE:
        raise refusal(producer.transactional_id, f"extended to group {group!r}", answer.error_code)


def _commit_offset(
    cluster: Cluster, producer: Transaction, group: str, tp: TopicPartition, position: Committed
) -> None:
    topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = topic_type.TxnOffsetCommitRequestPartition(
        partition_index=tp.partition,
        committed_offset=position.next_offset,
        committed_leader_epoch=-1,
        committed_metadata=position.metadata,
    )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic_type(name=tp.topic, partitions=[part])],
        **VERSIONS[Api.TXN_OFFSET_COMMIT].limits,
    )
    retry = Retry(cluster.config, f"committing an offset of group {group!r} in {producer.transactional_id!r}")
    answer, code = ask(cluster, (group, GROUP), request, lambda of: _offset_code(of, tp), retry)
    if code is Code.NONE:
        return
    number = _offset_code(answer, tp)
    refused = refusal(producer.transactional_id, f"used for an offset of {tp} in group {group!r}", number)
    if not isinstance(refused, FencedError):
        end(cluster, [producer], commit=False)
    raise refused


def _offset_code(answer: Any, tp: TopicPartition) -> int:
    topic = first_of(answer.topics, "topic", name=tp.topic)
    return int(first_of(topic.partitions, f"partition of {tp.topic}", partition_index=tp.partition).error_code)
