"""The one-broker KRaft cluster that tests and the demo run on, however it is started.

Rule: one table of server properties. The container takes it as KAFKA_* variables, docker-compose.yml spells out the
same, the local broker writes it into server.properties; only addresses and directories differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KAFKA_VERSION = "4.1.2"
IMAGE = f"apache/kafka:{KAFKA_VERSION}"
STARTED = "Kafka Server started"
START_LIMIT_S = 180.0

SERVER: Mapping[str, str] = MappingProxyType({
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A broker otherwise deletes records whose timestamps lie in the past, and replayed history vanishes.
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
})  # fmt: skip


def listeners(host: str, broker_port: int, *, inside: str, inside_port: int, controller_port: int) -> dict[str, str]:
    """Where the broker listens (`inside`), what it tells clients (`host:broker_port`), where its controller is."""
    return {
        "listeners": f"PLAINTEXT://{inside}:{inside_port},CONTROLLER://{inside}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{broker_port}",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
    }


def as_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Server properties as the official image reads them: `log.retention.ms` is KAFKA_LOG_RETENTION_MS."""
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in properties.items()}
