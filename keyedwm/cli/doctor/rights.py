"""The rights that a query needs (the table "ACLs" of docs/how-to/rights-and-secrets.md), checked at the cluster.

Rule: a missing right that stops a query is a failure. A missing right with which the query works differently is a
warning that says how. Questions change nothing: a broker checks the rights of a request before anything else. So each
question is a request that cannot succeed (a member of no group, a transaction that does not exist), sent to any broker.
Only an error for lack of rights means no. Neither a group nor Kafka's own topics are created, as a request for a
coordinator would. A broker without an authorizer allows everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from enum import IntEnum

from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.kafka.client.connection import Connection, TransientError, call_with_retries, first_of
from keyedwm.kafka.client.errors import Code, UnknownTopicError, UnsupportedRequestError
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.transactions import longest_timeout_ms
from pyspark_wm_source.driver.resolve_offsets import with_nearest

_NOBODY = "keyedwm-asks-for-rights"


class Operation(IntEnum):
    """An operation on a topic; the values are Kafka's."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


def allowed_on_topic(connection: Connection, topic: str) -> frozenset[Operation] | None:
    """Return the operations allowed on a topic; None if the broker does not report them.

    Without the right to describe it, no operation is allowed, even if the topic exists.
    """
    requested = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(
        topics=requested, allow_auto_topic_creation=False, include_topic_authorized_operations=True, min_version=8,
        max_version=12,
    )  # fmt: skip
    try:
        answer = call_with_retries(connection, None, request, f"asking for the rights on topic {topic}")
    except UnsupportedRequestError:
        return None
    try:
        answer_of_topic = first_of(answer.topics, "topic", name=topic)
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
    """Whether transactions under an id may be written (WRITE); the id must be unused."""
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=0, producer_epoch=0, committed=False, max_version=3
    )
    answer = call_with_retries(connection, None, request, f"asking for the rights on transactions {transactional_id}")
    return not Code.of(answer.error_code).denied


def on_source_topic(cluster: Cluster, topic: str) -> Finding:
    """Check the rights of a source on a topic that it reads."""
    subject = f"rights on {topic}"
    allowed = allowed_on_topic(cluster.connection, topic)
    if allowed is None:
        return _untold(subject)
    if Operation.READ not in allowed:
        return fail(subject, "this user may not read it", f"grant READ on topic {topic}")
    return ok(subject, "may be read")


def unreadable(cluster: Cluster, topic: str, subject: str, error: KeyedwmError, otherwise: str) -> Finding:
    """Report why a topic cannot be read, and the likely topic. otherwise: the fix if brokers answer."""
    if isinstance(error, UnavailableError):
        return fail(subject, error.message, error.advice)
    if isinstance(error, UnknownTopicError):
        cause = with_nearest(cluster, [topic]) or error
        return fail(subject, cause.message.partition(": ")[2], otherwise)
    return fail(subject, error.message, otherwise)


def on_group(cluster: Cluster, group: str) -> Finding:
    """Check that states of partitions can be kept in committed offsets of a group."""
    if may_read_group(cluster.connection, group):
        return ok("consumer group", f"{group}: offsets can be committed and read")
    return warn(
        "consumer group", f"this user may not use {group}",
        "grant READ on it, or on groups that begin with groupIdPrefix (keyedwm, if not set): without it every planning "
        "reads the last batch again",
    )  # fmt: skip


def on_target(cluster: Cluster, topic: str, id_prefix: str | None) -> Iterator[Finding]:
    """Check what an exactly-once sink needs to write to a topic.

    id_prefix: transactionalIdPrefix, None if it is not set and ids begin with the query's id.
    """
    subject = f"target {topic}"
    try:
        partitions = cluster.partitions([topic])[topic]
    except KeyedwmError as error:
        yield unreadable(cluster, topic, subject, error, f"create it, or grant WRITE on topic {topic}")
        return
    allowed = allowed_on_topic(cluster.connection, topic)
    if allowed is None:
        yield _untold(subject)
    elif Operation.WRITE not in allowed:
        yield fail(subject, "this user may not write to it", f"grant WRITE on topic {topic}")
    else:
        yield ok(subject, f"{len(partitions)} partitions, may be written")
    yield _transactions(cluster, id_prefix)
    yield from _optional(cluster, topic, allowed, id_prefix)


def _transactions(cluster: Cluster, id_prefix: str | None) -> Finding:
    begins = f"begin with {id_prefix or 'the id of the query'}"
    if may_write_transactions(cluster.connection, _unused(id_prefix)):
        return ok("transactions", f"ids that {begins} may be written")
    fix = f"grant WRITE on transactional ids that {begins}"
    if id_prefix is None:
        fix += ", or set transactionalIdPrefix, and ask again with --option transactionalIdPrefix=NAME"
    return fail("transactions", f"this user may not write under ids that {begins}", fix)


def _optional(
    cluster: Cluster, topic: str, allowed: frozenset[Operation] | None, id_prefix: str | None
) -> Iterator[Finding]:
    """Check the rights without which the sink works, but differently."""
    group = f"{id_prefix or 'ID'}{'-ID' if id_prefix else ''}-ledger"
    read = allowed is None or Operation.READ in allowed
    if not read or not may_read_group(cluster.connection, f"{_unused(id_prefix)}-ledger"):
        missing = f"group {group} (ID: of the query)" + ("" if read else f" and topic {topic}")
        yield warn(
            "ledger", f"this user may not read {missing}",
            "grant READ on both: without it a lost ledger, or a copy of the checkpoint, is not noticed",
        )  # fmt: skip
    if allowed is not None and Operation.DESCRIBE_CONFIGS not in allowed:
        yield warn(
            f"target {topic}", "its largest batch cannot be read",
            f"grant DESCRIBE_CONFIGS on topic {topic}: without it batches have 900000 bytes at most",
        )  # fmt: skip
    longest_ms = longest_timeout_ms(cluster)
    if longest_ms is None:
        yield warn(
            "transactionTimeout", "the longest one that brokers allow cannot be read",
            "grant DESCRIBE_CONFIGS on the cluster: without it one that is too long fails with the first transaction",
        )  # fmt: skip
    else:
        yield ok("transactionTimeout", f"brokers allow {longest_ms} ms at most")


def _untold(subject: str) -> Finding:
    return warn(subject, "the broker does not say what this user may do", "ask its owner for the rights of the query")


def _unused(id_prefix: str | None) -> str:
    """Return a transactional id that a new query could have."""
    return "-".join(part for part in (id_prefix, str(uuid.uuid4())) if part)
