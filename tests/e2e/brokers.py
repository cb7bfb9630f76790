"""The brokers of a campaign: one behind a proxy, or three that replicate to each other, each behind its own.

Rule: of three the first is the controller and is not killed; replicas are on all, two of them must be in sync.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.testing.admin import create_topic
from keyedwm.testing.local import LocalBroker
from tests.support.proxy import Link, Proxy, broker_behind_proxy
from tests.support.several import cluster_behind_proxies

# A crashed broker is let in again after its old session is over; transactions end on the second.
_PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "1",
}
_ALONE = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
_TOGETHER = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "leader.imbalance.check.interval.seconds": "5",
}
# The feed outlasts every outage, and sends many small batches at once.
_PATIENT = {"default.api.timeout.ms": "240000", "request.timeout.ms": "5000", "batch.size": "512"}
# A connection gives up after 30 s. Under load a broker that has just started can miss the short session for longer.
_CONNECTIONS = 4
_BOTH = 0.15  # how often two of three are killed at once


class Brokers:
    """Running brokers; `direct` leads past the proxies, `behind` through them."""

    def __init__(self, members: list[tuple[LocalBroker, Proxy]]) -> None:
        self._members = members
        self.count = len(members)
        self.direct = ",".join(broker.bootstrap for broker, _ in members)
        self.behind = ",".join(proxy.bootstrap for _, proxy in members)

    def make_topic(self, name: str, partitions: int) -> str:
        create_topic(self.cluster(), name, partitions, replication=self.count)
        return name

    def cluster(self) -> Cluster:
        """A client past the proxies that waits for a broker to come back, also with its first connection."""
        config = ClientConfig.from_options({"bootstrap.servers": self.direct, **_PATIENT})
        for _ in range(_CONNECTIONS - 1):
            with suppress(UnavailableError):
                return shared(config)
        return shared(config)

    def kill(self, rng: random.Random, topic: str) -> tuple[list[LocalBroker], Counter]:
        """Kill the broker, or the leader of a partition, or two of three; the killed, and what they were."""
        if self.count == 1:
            victims = [0]
        else:
            leaders = [node - 1 for node in self._leaders(topic) if node > 1]
            first = rng.choice(leaders or list(range(1, self.count)))
            others = [number for number in range(1, self.count) if number != first]
            victims = [first, *(others[:1] if rng.random() < _BOTH else [])]
        roles = Counter({"brokers killed": len(victims)})
        if self.count > 1:
            nodes = {number + 1 for number in victims}
            roles["leaders of input partitions killed"] = sum(node in nodes for node in self._leaders(topic))
        killed = [self._members[number][0] for number in victims]
        for broker in killed:
            broker.kill()
        return killed, roles

    def link(self, link: Link, rng: random.Random) -> None:
        """Change the network before one of the brokers, or before all."""
        members = self._members if rng.random() < 0.5 else [rng.choice(self._members)]
        for _, proxy in members:
            proxy.set(link)

    def heal(self) -> None:
        for _, proxy in self._members:
            proxy.set(Link.OPEN)

    def reset(self) -> None:
        for _, proxy in self._members:
            proxy.reset()

    @property
    def log(self) -> str:
        return "\n".join(broker.log for broker, _ in self._members)

    def _leaders(self, topic: str) -> list[int]:
        """The nodes that lead the topic's partitions now."""
        cluster = self.cluster()
        cluster.forget_leaders([topic])
        places = [TopicPartition(topic, partition) for partition in cluster.partitions([topic])[topic]]
        nodes = cluster.leaders(places, Retry(cluster.config, f"looking for the leaders of {topic}"))
        return [node for node, led in nodes.items() for _ in led]


@contextmanager
def running(count: int, extra: Mapping[str, str] | None = None) -> Iterator[Brokers]:
    """One broker, or so many."""
    properties = {**_PROPERTIES, **(extra or {})}
    if count == 1:
        with broker_behind_proxy({**properties, **_ALONE}) as member:
            yield Brokers([member])
        return
    with cluster_behind_proxies(count, {**properties, **_TOGETHER}) as members:
        yield Brokers(members)
