"""`client.rack` on brokers in several racks: the replica nearby is read, and its death costs no record (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from kafka.protocol.consumer import FetchRequest

from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from keyedwm.kafka.requests.produce import send
from keyedwm.testing.admin import create_topic
from keyedwm.testing.local import LocalBroker
from tests.support.several import local_cluster

pytestmark = pytest.mark.starts

TOPIC, RECORDS = "racks", 8_000
# A broker that a busy machine keeps waiting is not taken for dead: its leaders and its place in sync would be lost.
BY_RACK = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "broker.session.timeout.ms": "15000",
}
SMALL = {"max.partition.fetch.bytes": "20000", "fetch.max.bytes": "40000"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[LocalBroker]]:
    with local_cluster(3, BY_RACK) as brokers:
        config = ClientConfig.from_options({"bootstrap.servers": brokers[0].bootstrap})
        with closing(Cluster.connect(config)) as cluster:
            create_topic(cluster, TOPIC, 3, {"min.insync.replicas": "2"}, replication=3)
            rows = pa.table({"value": [b"%06d" % i + b"x" * 100 for i in range(RECORDS)]})
            for partition in range(3):
                for start in range(0, RECORDS, 1_000):
                    send(cluster, TOPIC, {partition: rows.slice(start, 1_000)})
        yield brokers


def connect(brokers: list[LocalBroker], rack: str) -> tuple[Cluster, list[int | None]]:
    """A client in a rack, and the nodes that it sends fetches to."""
    options = {"bootstrap.servers": brokers[0].bootstrap, "client.rack": rack, **SMALL}
    cluster = Cluster.connect(ClientConfig.from_options(options))
    nodes_asked: list[int | None] = []
    submit = cluster.connection.submit

    def noted(node: int | None, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            nodes_asked.append(node)
        return submit(node, request)

    cluster.connection.submit = noted  # type: ignore[method-assign]
    return cluster, nodes_asked


def read(cluster: Cluster, broker_to_kill: LocalBroker | None = None) -> None:
    """Read everything and compare; kill a broker after some answers."""
    values_of_partitions: list[list[bytes]] = [[], [], []]
    for number, part in enumerate(read_ranges(cluster, [OffsetRange(TOPIC, p, 0, RECORDS) for p in range(3)])):
        values_of_partitions[part.index] += part.records.value.to_pylist()  # type: ignore[union-attr]
        if number == 20 and broker_to_kill is not None:
            broker_to_kill.kill()
    for values in values_of_partitions:
        assert [int(value[:6]) for value in values] == list(range(RECORDS))


@pytest.mark.parametrize("node", [1, 2, 3])
def test_the_replica_in_our_rack_is_read(brokers: list[LocalBroker], node: int) -> None:
    cluster, nodes_asked = connect(brokers, f"rack-{node}")
    with closing(cluster):
        read(cluster)
    assert nodes_asked.count(node) > len(nodes_asked) * 0.9


def test_without_a_rack_the_leaders_are_read(brokers: list[LocalBroker]) -> None:
    cluster, nodes_asked = connect(brokers, "")
    with closing(cluster):
        read(cluster)
    assert set(nodes_asked) == {1, 2, 3}


def test_the_death_of_the_replica_in_our_rack_costs_no_record(brokers: list[LocalBroker]) -> None:
    cluster, nodes_asked = connect(brokers, "rack-3")
    with closing(cluster):
        read(cluster, brokers[2])
    assert {1, 2} <= set(nodes_asked)
