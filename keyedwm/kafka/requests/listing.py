"""Lists of the consumer groups and transactions that each broker coordinates, by name.

Rule: a broker that cannot answer is an error and no empty list. A coordinator that is still loading its log knows only
some of them, so it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.connection import Retry, call_with_retries
from keyedwm.kafka.client.errors import AccessError, Code, described
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.versions import VERSIONS


def brokers(cluster: Cluster) -> list[int]:
    """Return the node ids of all brokers."""
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, **VERSIONS[Api.METADATA].limits)
    task = "reading the list of brokers"
    retry = Retry(cluster.config, task)
    while not (answer := call_with_retries(cluster.connection, None, request, task)).brokers:
        retry.pause("the answer has no broker")
    return sorted(broker.node_id for broker in answer.brokers)


def listed_by_brokers(cluster: Cluster, api: Api, kind: str, new_request: Callable[[], Any]) -> Iterator[Any]:
    """Yield each broker's answer to a new request. kind: the name of the list's entries in errors.

    Raises AccessError, UnavailableError, and OptionError for brokers that do not know the request.
    """
    for node in brokers(cluster):
        retry = Retry(cluster.config, f"listing {kind}")
        while True:
            answer = call_with_retries(cluster.connection, node, new_request(), f"listing {kind}")
            then, why = reaction(api, answer.error_code), described(answer.error_code)
            if then is Reaction.ANSWER:
                yield answer
                break
            if Code.of(answer.error_code).denied:
                raise AccessError(f"not allowed to list the {kind} that broker {node} coordinates: {why}")
            if then is Reaction.FINAL:
                raise UnavailableError(f"the {kind} that broker {node} coordinates cannot be listed: {why}")
            retry.pause(why)


def groups_ending_with(cluster: Cluster, suffix: str) -> list[str]:
    """Return the groups with this end of their names that this login may see, sorted; brokers omit the others."""
    request = partial(ListGroupsRequest, states_filter=[], types_filter=[], max_version=4)
    answers = listed_by_brokers(cluster, Api.LIST_GROUPS, "consumer groups", request)
    return sorted({group.group_id for answer in answers for group in answer.groups if group.group_id.endswith(suffix)})
