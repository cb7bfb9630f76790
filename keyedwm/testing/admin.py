"""Creation, growth and deletion of topics, for tests and the demo.

Rule: each call returns when the metadata shows the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.connection import Retry, TransientError
from keyedwm.kafka.client.errors import AccessError, Code, UnknownTopicError, described
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.reactions import reaction

_TIMEOUT_MS = 30_000


def create_topic(
    cluster: Cluster, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, replication: int = 1
) -> None:
    """Create a topic; raises InputError if it exists or the broker rejects it."""
    settings = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[settings(name=key, value=value) for key, value in (config or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=False, max_version=5)
    _ask(cluster, request, lambda response: response.topics[0], f"creating topic {name!r}", name)
    _await_metadata(cluster, name, lambda count: count == partitions)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic; raises UnknownTopicError if there is none."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS, max_version=5)
    _ask(cluster, request, lambda response: response.responses[0], f"deleting topic {name!r}", name)
    _await_metadata(cluster, name, lambda count: count == 0)


def create_partitions(cluster: Cluster, name: str, total: int) -> None:
    """Grow a topic to `total` partitions; raises InputError if the topic has this number or more."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=False, max_version=3)
    _ask(cluster, request, lambda response: response.results[0], f"growing topic {name!r} to {total} partitions", name)
    _await_metadata(cluster, name, lambda count: count == total)


def _ask(cluster: Cluster, request: Any, outcome: Callable[[Any], Any], task: str, topic: str) -> None:
    retry = Retry(cluster.config, task)
    node: int | None = None
    while True:
        try:
            answer = outcome(cluster.connection.call(node, request))
            if answer.error_code == Code.NOT_CONTROLLER:  # without KRaft only the controller answers
                node = cluster.connection.call(None, MetadataRequest(topics=[], max_version=12)).controller_id
        except TransientError as error:
            retry.pause(error)
            continue
        code = Code.of(answer.error_code)
        if code is Code.NONE:
            return
        if code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError.of(topic)
        if code.denied:
            raise AccessError(f"not allowed: {task}: {described(answer.error_code)}")
        if not reaction(request.API_KEY, answer.error_code).repeats:
            raise InputError(f"{task} failed: {getattr(answer, 'error_message', None) or described(answer.error_code)}")
        retry.pause(described(answer.error_code))


def _await_metadata(cluster: Cluster, topic: str, is_current: Callable[[int], bool]) -> None:
    retry = Retry(cluster.config, f"waiting for the change of topic {topic!r}")
    while not is_current(len(cluster.partitions([topic], missing_ok=True).get(topic, ()))):
        retry.pause("the brokers still answer with the old state")
