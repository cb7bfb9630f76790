"""A cluster of several local brokers, so that a leader can die and another take over.

Rule: the first one is also the controller, and is not to be killed; the others come and go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from keyedwm.testing.local import LocalBroker, free_ports, local_broker

_HEAP_MB = 256
_QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@contextmanager
def local_cluster(count: int = 3) -> Iterator[list[LocalBroker]]:
    """Run so many brokers (node ids 1 to `count`), internal topics on all of them."""
    controller, *ports = free_ports(count + 1)
    shared = {
        **_QUICK,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "offsets.topic.replication.factor": str(count),
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": str(count),
    }
    with ExitStack() as running:
        yield [
            running.enter_context(
                local_broker(port=port, heap_mb=_HEAP_MB, extra=shared | _node(node, port, controller))
            )
            for node, port in enumerate(ports, start=1)
        ]


def _node(node: int, port: int, controller: int) -> dict[str, str]:
    address = f"PLAINTEXT://127.0.0.1:{port}"
    if node == 1:
        return {"listeners": f"{address},CONTROLLER://127.0.0.1:{controller}"}
    return {"node.id": str(node), "process.roles": "broker", "listeners": address}
