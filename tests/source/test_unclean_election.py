"""A real unclean election between two batches: records that were read are gone, others stand at their offsets."""

from __future__ import annotations

from contextlib import closing

import pytest
from kafka.protocol.admin import CreateTopicsRequest

from keyedwm.core.errors import DataLossError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.connection import TransientError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from tests.support.several import local_cluster
from tests.tools import Record, Stream, cluster_at, events, produce, wait_until

pytestmark = pytest.mark.starts

TOPIC, PLACE = "unclean", TopicPartition("unclean", 0)
QUICK = {"replica.lag.time.max.ms": "1500"}
LEADER, FOLLOWER = 2, 3  # 1 is the controller


def create(cluster: Cluster) -> None:
    kind = CreateTopicsRequest.CreatableTopic
    topic = kind(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, FOLLOWER])],
        configs=[kind.CreatableTopicConfig(name="unclean.leader.election.enable", value="true")],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False, max_version=5)
    assert cluster.connection.call(None, request).topics[0].error_code == 0
    led_by(cluster, LEADER)


def led_by(cluster: Cluster, node: int) -> None:
    wait_until(lambda: leader(cluster) == node, f"broker {node} leads")


def leader(cluster: Cluster) -> int | None:
    metadata = cluster.metadata._described([TOPIC], missing_ok=True)
    return metadata[TOPIC].leaders[0].node if TOPIC in metadata else None


def in_sync(cluster: Cluster) -> list[int]:
    (topic,) = cluster.metadata._ask([TOPIC]).topics
    return sorted(topic.partitions[0].isr_nodes)


def values(stream: Stream) -> list[str]:
    return [row["value"].decode() for batch in stream.drain() for row in events(batch)]


def rows(name: str, count: int) -> list[Record]:
    return [Record(0, 1_000 + at, f"{name}{at}".encode()) for at in range(count)]


def was_taken(bootstrap: str, records: list[Record]) -> bool:
    """Produce, unless a broker still names the leader that is dead: it refuses the connection, so nothing was sent."""
    cluster_at(bootstrap).metadata.forget_leaders([TOPIC])
    try:
        produce(bootstrap, TOPIC, records)
    except TransientError as error:
        if "ECONNREFUSED" not in str(error):
            raise
        return False
    return True


def test_an_unclean_election_between_batches_is_a_loss_though_the_log_is_longer_again():
    with local_cluster(3, QUICK) as brokers:
        bootstrap = brokers[0].bootstrap
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        with closing(Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}))) as cluster:
            create(cluster)
            produce(bootstrap, TOPIC, rows("both", 5))
            # Under load a follower that has just started can leave, and an acknowledged record is then the leader's.
            wait_until(lambda: set(in_sync(cluster)) == {LEADER, FOLLOWER}, "both hold the first records")
            strict, lenient = Stream(**options), Stream(**options, failOnDataLoss="false")
            brokers[FOLLOWER - 1].kill()
            wait_until(lambda: in_sync(cluster) == [LEADER], "the leader alone is in sync")  # else nobody acknowledges
            produce(bootstrap, TOPIC, rows("lost", 4))
            for stream in (strict, lenient):
                assert len(values(stream)) == 9
            brokers[LEADER - 1].kill()
            brokers[FOLLOWER - 1].start()
            led_by(cluster, FOLLOWER)
            wait_until(lambda: was_taken(bootstrap, rows("new", 8)), "the new leader takes records")
            with pytest.raises(DataLossError, match=r"unclean-0 was truncated to the end offset 5, .* to read is 9"):
                strict.plan()
            assert values(lenient) == [f"new{at}" for at in range(8)]
