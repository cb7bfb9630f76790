"""A cluster of several local brokers, so that a leader can die and another take over.

Rule: the first one is also the controller, and is not to be killed; the others come and go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from keyedwm.testing.local import LocalBroker, free_ports, local_broker
from tests.support.proxy import LOOPBACK, Proxy

_HEAP_MB = 256
_QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@contextmanager
def local_cluster(count: int = 3, extra: Mapping[str, str] | None = None) -> Iterator[list[LocalBroker]]:
    """Run so many brokers (node ids 1 to `count`, each in a rack `rack-ID`), internal topics on all of them."""
    controller, *ports = free_ports(count + 1)
    shared = _shared(count, controller, extra)
    with ExitStack() as running:
        yield [
            running.enter_context(
                local_broker(port=port, heap_mb=_HEAP_MB, extra=shared | _node(node, port, controller))
            )
            for node, port in enumerate(ports, start=1)
        ]


@contextmanager
def cluster_behind_proxies(
    count: int = 3, extra: Mapping[str, str] | None = None
) -> Iterator[list[tuple[LocalBroker, Proxy]]]:
    """The same with a proxy before each broker, for clients; the brokers reach each other past the proxies."""
    controller, *ports = free_ports(3 * count + 1)
    shared = {
        **_shared(count, controller, extra),
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DIRECT",
    }
    members: list[tuple[LocalBroker, Proxy]] = []
    with ExitStack() as running:
        for node, (direct, behind, advertised) in enumerate(
            zip(ports[::3], ports[1::3], ports[2::3], strict=True), start=1
        ):
            own = _node(node, direct, controller)
            own |= {
                "listeners": f"{own['listeners'].replace('PLAINTEXT', 'DIRECT', 1)},PLAINTEXT://{LOOPBACK}:{behind}",
                "advertised.listeners": f"DIRECT://{LOOPBACK}:{direct},PLAINTEXT://{LOOPBACK}:{advertised}",
            }
            proxy = running.enter_context(closing(Proxy(advertised, behind)))
            broker = running.enter_context(local_broker(port=direct, heap_mb=_HEAP_MB, extra=shared | own))
            members.append((broker, proxy))
        yield members


def _shared(count: int, controller: int, extra: Mapping[str, str] | None) -> dict[str, str]:
    return {
        **_QUICK,
        **(extra or {}),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "offsets.topic.replication.factor": str(count),
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": str(count),
    }


def _node(node: int, port: int, controller: int) -> dict[str, str]:
    address = f"PLAINTEXT://127.0.0.1:{port}"
    rack = {"broker.rack": f"rack-{node}"}
    if node == 1:
        return rack | {"listeners": f"{address},CONTROLLER://127.0.0.1:{controller}"}
    return rack | {"node.id": str(node), "process.roles": "broker", "listeners": address}
