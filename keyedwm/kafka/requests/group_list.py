"""The consumer groups of a cluster, by name."""

from __future__ import annotations

from kafka.protocol.admin import ListGroupsRequest

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.connection import Retry, call_with_retries
from keyedwm.kafka.client.errors import AccessError, Code, described
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.transactions import brokers


def groups_ending_with(cluster: Cluster, suffix: str) -> list[str]:
    """Return the groups with this end of their names that this login may see, sorted; brokers omit the others.

    Raises AccessError, UnavailableError, and OptionError for brokers that cannot list groups.
    """
    names: set[str] = set()
    for node in brokers(cluster):
        names |= _groups_of(cluster, node)
    return sorted(name for name in names if name.endswith(suffix))


def _groups_of(cluster: Cluster, node: int) -> set[str]:
    """The groups that a broker coordinates."""
    retry = Retry(cluster.config, "listing consumer groups")
    while True:
        request = ListGroupsRequest(states_filter=[], types_filter=[], max_version=4)
        answer = call_with_retries(cluster.connection, node, request, "listing consumer groups")
        then, why = reaction(Api.LIST_GROUPS, answer.error_code), described(answer.error_code)
        if then is Reaction.ANSWER:
            return {group.group_id for group in answer.groups}
        if Code.of(answer.error_code).denied:
            raise AccessError(f"not allowed to list the consumer groups that broker {node} coordinates: {why}")
        if then is Reaction.FINAL:
            raise UnavailableError(f"the consumer groups that broker {node} coordinates cannot be listed: {why}")
        retry.pause(why)  # a coordinator that is still loading its log knows only some of them
