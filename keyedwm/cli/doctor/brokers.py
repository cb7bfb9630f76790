"""Checks of each broker: whether its advertised address can be reached, whether coordinators can exist, and storage.

Rule: a check creates nothing. Brokers create their internal topics when a client asks for a coordinator, so the checks
read the metadata of these topics instead.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.cli.doctor.finding import Finding, fail, ok, warn
from keyedwm.core.errors import KeyedwmError, UnavailableError
from keyedwm.kafka.client.connection import call_with_retries
from keyedwm.kafka.client.errors import Code, UnsupportedRequestError
from keyedwm.kafka.client.probe import answers_kafka, speaks_tls
from keyedwm.kafka.client.values import number_of
from keyedwm.kafka.requests.cluster import Cluster

_PATIENCE_S = 5
_BROKER = 4  # Kafka's number of the resource type
_NO_LEADER = -1
_TIERED = "remote.log.storage.system.enable"


def advertised(cluster: Cluster) -> Iterator[Finding]:
    """Check that each broker can be reached at its advertised address."""
    for node, host, port in cluster.connection.advertised:
        address, why = f"advertised as {host}:{port}", _not_reached(cluster, host, port)
        if why is None:
            yield ok(f"broker {node}", f"{address}, which answers")
        else:
            yield fail(
                f"broker {node}", f"the bootstrap address answers, and this broker is {address}, which {why}",
                "set advertised.listeners of the broker to an address that the driver and all workers reach",
            )  # fmt: skip


def _not_reached(cluster: Cluster, host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=_PATIENCE_S).close()
    except socket.gaierror:
        return "does not resolve"
    except TimeoutError:
        return f"did not answer within {_PATIENCE_S} s"
    except (OSError, OverflowError, ValueError) as error:  # neither a name nor a port: a broker may advertise this
        return f"cannot be reached ({error})"
    tls = cluster.config.security.protocol.tls
    if tls and speaks_tls(host, port) is not True:
        return "takes connections, but does not speak TLS"
    if not tls and not answers_kafka(host, port):
        return "takes connections, but does not speak Kafka"
    return None


@dataclass(frozen=True, slots=True)
class _Kind:
    subject: str
    topic: str
    factor: str
    without: str


GROUPS = _Kind(
    "group coordinator", "__consumer_offsets", "offsets.topic.replication.factor",
    "without it no state of a partition can be kept, and every planning waits for it and reads the last batch again",
)  # fmt: skip
TRANSACTIONS = _Kind(
    "transaction coordinator", "__transaction_state", "transaction.state.log.replication.factor",
    "without it the sink cannot write exactly once",
)  # fmt: skip


def coordinator(cluster: Cluster, kind: _Kind) -> Finding:
    """Check that groups or transactions have a coordinator: the leader of a partition of Kafka's own topic."""
    try:
        leaders = _leaders(cluster, kind.topic)
        count, replicas = (
            len(cluster.connection.advertised),
            None if leaders else number_of(_setting(cluster, kind.factor)),
        )
    except KeyedwmError as error:
        return fail(kind.subject, error.message, error.advice)
    if _NO_LEADER in leaders:
        problem = f"{leaders.count(_NO_LEADER)} of {len(leaders)} partitions of {kind.topic} have no leader"
        return fail(kind.subject, f"{problem}: {kind.without}", "start the brokers that are down")
    if replicas is not None and replicas > count:
        cannot = f"{kind.topic} cannot be made, as {kind.factor} is {replicas} and there are {count} brokers"
        return fail(kind.subject, f"{cannot}: {kind.without}", f"set {kind.factor} of the brokers to {count} at most")
    count_text = f"{kind.topic} has {len(leaders)} partitions"
    return ok(kind.subject, count_text if leaders else f"brokers make {kind.topic} for the first query that needs it")


def _leaders(cluster: Cluster, topic: str) -> list[int]:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, max_version=12)
    answer = call_with_retries(cluster.connection, None, request, f"reading the partitions of {topic}")
    entries = [one for one in answer.topics if one.name == topic and Code.of(one.error_code) is Code.NONE]
    return [part.leader_id for one in entries for part in one.partitions]


def tiered_storage(cluster: Cluster) -> Finding:
    """Report whether old records are in tiered storage; they are read in any case."""
    subject = "tiered storage"
    try:
        value = _setting(cluster, _TIERED)
    except UnavailableError as error:  # a server may close the connection at this request
        return warn(subject, f"is not known: {error.message}", "read the server's documents; records there are read")
    match value:
        case None:
            return ok(subject, f"the brokers do not say whether they have it ({_TIERED}); records there are read")
        case "true":
            return ok(subject, "is on; records there are read: the source waits while answers are empty")
        case _:
            return ok(subject, f"is off ({_TIERED}={value})")


def _setting(cluster: Cluster, name: str) -> str | None:
    """Return a setting of the brokers; None if unknown."""
    for node, _, _ in cluster.connection.advertised[:1]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(node), configuration_keys=[name]
        )
        request: Any = DescribeConfigsRequest(resources=[resource], include_synonyms=False, max_version=2)
        try:
            answer = call_with_retries(cluster.connection, node, request, f"reading {name}")
        except UnsupportedRequestError:
            return None
        for result in answer.results:
            for config in result.configs:
                if config.name == name:
                    return None if config.value is None else str(config.value)
    return None
