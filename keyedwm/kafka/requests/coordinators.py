"""The brokers that coordinate consumer groups and transactional ids.

Rule: a cached node is a hint: a caller that gets NOT_COORDINATOR calls `forget` and asks again.
"""

from __future__ import annotations

from kafka.protocol.metadata import FindCoordinatorRequest

from keyedwm.core.errors import InputError
from keyedwm.kafka.client.connection import Connection, Retry, TransientError, first_of
from keyedwm.kafka.client.errors import AccessError, Code, GroupAccessError, described
from keyedwm.kafka.requests.reactions import Api, Reaction, reaction
from keyedwm.kafka.requests.versions import VERSIONS

GROUP, TRANSACTION = 0, 1  # Kafka's key types


class Coordinators:
    """The coordinators of a connected cluster, looked up once each; thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._nodes: dict[tuple[int, str], int] = {}

    def find(self, key: str, kind: int, retry: Retry) -> int:
        """The node that coordinates a group (kind GROUP) or a transactional id (kind TRANSACTION)."""
        node = self._nodes.get((kind, key))
        if node is None:
            node = self._nodes[kind, key] = self._ask(key, kind, retry)
            # Each transactional id is used once, so a long process would keep all of them.
            for oldest in list(self._nodes)[: -self._connection.config.limits.coordinators]:
                self._nodes.pop(oldest, None)
        return node

    def forget(self, key: str, kind: int) -> None:
        """Ask for the coordinator again next time."""
        self._nodes.pop((kind, key), None)

    def _ask(self, key: str, kind: int, retry: Retry) -> int:
        limits = VERSIONS[Api.FIND_COORDINATOR].limits
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key], **limits)
        while True:
            try:
                response = self._connection.call(None, request)
                coordinator = first_of(response.coordinators, "coordinator") if response.API_VERSION >= 4 else response
            except TransientError as error:
                retry.pause(error)
                continue
            then = reaction(Api.FIND_COORDINATOR, coordinator.error_code)
            if then is Reaction.ANSWER:
                return int(coordinator.node_id)
            subject = f"group {key!r}" if kind == GROUP else f"transactional id {key!r}"
            if Code.of(coordinator.error_code).denied:
                raise (GroupAccessError if kind == GROUP else AccessError)(
                    f"not allowed to use {subject}: {described(coordinator.error_code)}"
                )
            if then is Reaction.FINAL:
                raise InputError(f"the coordinator of {subject} cannot be found: {described(coordinator.error_code)}")
            retry.pause(described(coordinator.error_code))
