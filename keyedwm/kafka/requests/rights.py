"""The rights of a connection's user, asked for with requests that change nothing.

Rule: a broker checks the rights of a request before anything else, so each question is a request that cannot succeed
(a member that is in no group, a transaction that does not exist), sent to any broker: only a refusal for lack of rights
says no. Nothing is created by it: neither a group nor Kafka's own topics, as asking for a coordinator would.
A broker without an authorizer allows everything.
"""

from __future__ import annotations

from enum import IntEnum

from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from keyedwm.kafka.client.connection import Connection, TransientError, call_with_retries, first_of
from keyedwm.kafka.client.errors import Code

_NOBODY = "keyedwm-asks-for-rights"


class Operation(IntEnum):
    """An operation on a topic; the values are Kafka's."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


def allowed_on_topic(connection: Connection, topic: str) -> frozenset[Operation] | None:
    """Return what may be done with a topic; None if the broker does not say so.

    Without the right to describe it there is nothing that may be done, whether it exists or not.
    """
    requested = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(
        topics=requested, allow_auto_topic_creation=False, include_topic_authorized_operations=True, min_version=8,
        max_version=12,
    )  # fmt: skip
    answer = call_with_retries(connection, None, request, f"asking for the rights on topic {topic}")
    try:
        answer_of_topic = first_of(answer.topics, "topic")
    except TransientError:
        return None
    if Code.of(answer_of_topic.error_code).denied:
        return frozenset()
    if answer_of_topic.authorized_operations is None:
        return None
    return frozenset(known for known in Operation if known in answer_of_topic.authorized_operations)


def may_read_group(connection: Connection, group: str) -> bool:
    """Whether offsets of a consumer group may be read and committed (READ)."""
    request = HeartbeatRequest(group_id=group, generation_id=0, member_id=_NOBODY, max_version=4)
    answer = call_with_retries(connection, None, request, f"asking for the rights on group {group}")
    return not Code.of(answer.error_code).denied


def may_write_transactions(connection: Connection, transactional_id: str) -> bool:
    """Whether transactions under an id may be written (WRITE); the id must be one that nobody uses."""
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=0, producer_epoch=0, committed=False, max_version=3
    )
    answer = call_with_retries(connection, None, request, f"asking for the rights on transactions {transactional_id}")
    return not Code.of(answer.error_code).denied
