"""A connection of the product's client to the simulated brokers: every request and answer travels as Kafka's bytes.

Rule: it stands where `keyedwm.kafka.client.connection.Connection` stands, and all above it is the product's own code.
Versions are chosen as against a real broker.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Callable, Sequence
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kafka.protocol.broker_version_data import BrokerVersionData

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import Answer, TransientError
from keyedwm.testing.simulated_kafka.brokers import Brokers

_MODULES = (kafka.protocol.metadata, kafka.protocol.consumer, kafka.protocol.producer, kafka.protocol.admin)
_VERSIONS = BrokerVersionData(api_versions=dict.fromkeys(range(100), (0, 20)))


# A request's way: (node, request, what answers it, how long the client waits in ms) -> the answer.
Travel = Callable[[int, Any, Callable[[], Any], int], Any]


# A broker -> the version of Kafka whose requests it offers; None: it offers all that the simulation has.
Offered = Callable[[int], "tuple[int, int] | None"]


def _offered(kafka: tuple[int, int] | None) -> BrokerVersionData:
    return _VERSIONS if kafka is None else BrokerVersionData(kafka)


@functools.cache
def _version(request_class: type, least: int | None, most: int | None, kafka: tuple[int, int] | None) -> int:
    """The version that client and broker agree on for a request within these limits."""
    limits = {name: limit for name, limit in (("min_version", least), ("max_version", most)) if limit is not None}
    return int(_offered(kafka).api_version(request_class, **limits))


@functools.cache
def response_class(request_class: type) -> Any:
    """The class of the answer to a request."""
    name = request_class.__name__.replace("Request", "Response")
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))


class SimulatedConnection:
    """Stands in for Connection."""

    def __init__(
        self, brokers: Brokers, config: ClientConfig, travel: Travel, holds: Callable[[Any], bool] = lambda _: False,
        offered: Offered = lambda _node: None,
    ) -> None:  # fmt: skip
        """holds: whether the answer to a request is there only when it is waited for."""
        self.config = config
        self.usable = True
        versions = _offered(offered(brokers.any_node())).api_versions
        self.api_versions = {api: newest for api, (_, newest) in versions.items()}
        self._brokers, self._travel, self._holds, self._offered = brokers, travel, holds, offered
        self._held: dict[Answer, Callable[[], None]] = {}

    def submit(self, node_id: int | None, request: Any) -> Answer:
        answer: Answer = concurrent.futures.Future()
        node = self._brokers.any_node() if node_id is None else node_id
        limit_ms = self.config.request_timeout_ms

        def go() -> None:
            try:
                answer.set_result(self._travel(node, request, lambda: self._exchange(node, request), limit_ms))
            except TransientError as error:
                answer.set_exception(error)

        if self._holds(request):
            self._held[answer] = go
        else:
            go()
        return answer

    def _exchange(self, node: int, request: Any) -> Any:
        version = _version(type(request), request._min_version, request._max_version, self._offered(node))
        request.API_VERSION = version
        arrived = type(request).decode(bytes(request.encode(version=version)), version=version)
        response = self._brokers.answer(node, arrived)
        kind = response_class(type(request))
        response.API_VERSION = version
        return kind.decode(bytes(response.encode(version=version)), version=version)

    def result(self, answer: Answer) -> Any:
        self.wait_any([answer])
        return answer.result()

    def wait_any(self, answers: Sequence[Answer]) -> None:
        if not any(answer.done() for answer in answers):
            self._held.pop(answers[-1])()

    def call(self, node_id: int | None, request: Any) -> Any:
        return self.result(self.submit(node_id, request))

    def close(self) -> None:
        self.usable = False
