"""A leader that dies while a stream reads costs time: nothing is lost, nothing doubled, no watermark changes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kafka.protocol.metadata import MetadataRequest

from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.produce import send
from keyedwm.testing.admin import create_topic
from keyedwm.testing.local import LocalBroker
from tests.support.several import local_cluster
from tests.tools import Stream, cluster_at, wait_until

pytestmark = pytest.mark.starts

PARTITIONS, RECORDS = 3, 40_000


@pytest.fixture(scope="module")
def three() -> Iterator[list[LocalBroker]]:
    with local_cluster(3) as brokers:
        yield brokers


def test_a_leader_that_dies_while_a_stream_reads_loses_and_doubles_nothing(
    three: list[LocalBroker], new_topic: Callable[[], str]
) -> None:
    topic, bootstrap = new_topic(), ",".join(broker.bootstrap for broker in three)
    cluster = cluster_at(bootstrap)
    create_topic(cluster, topic, PARTITIONS, {"min.insync.replicas": "1"}, replication=3)
    stream = Stream(**{
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", "columns":
        "partition,offset,event_time,watermark,control", "kafka.max.partition.fetch.bytes": "20000",
        "kafka.fetch.max.bytes": "60000",
    })  # fmt: skip
    read: list[pa.Table] = []
    for number in range(2):
        first_ms = number * RECORDS
        send(cluster, topic, dict.fromkeys(range(PARTITIONS), table_of(first_ms)))
        assert stream.plan()
        victim = leading(cluster, three, topic)
        read.append(read_and(stream, victim.kill))
        assert stream.plan(), "the watermarks moved"
        assert stream.watermark_ms() == first_ms + RECORDS - 1
        read.append(stream.read())
        victim.start()
        wait_until(lambda: in_sync(cluster, topic), "all replicas back in sync")
    rows = pa.concat_tables(read)
    rows = rows.filter(pc.is_null(rows["control"])).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows["offset"].to_pylist() == list(range(2 * RECORDS)) * PARTITIONS
    assert rows["event_time"].cast(pa.int64()).to_pylist() == [n * 1_000 for n in range(2 * RECORDS)] * PARTITIONS
    cluster.close()


def table_of(first_ms: int) -> pa.Table:
    """Records of one partition, one a millisecond."""
    return pa.table({"value": ["x" * 50] * RECORDS, "timestamp": pa.array(np.arange(first_ms, first_ms + RECORDS))})


def leading(cluster: Cluster, brokers: list[LocalBroker], topic: str) -> LocalBroker:
    """A broker that leads a partition and is not the controller."""
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    cluster.forget_leaders([topic])
    nodes = cluster.leaders(places, Retry(cluster.config, "looking for leaders"))
    return brokers[max(nodes) - 1]


def read_and(stream: Stream, act: Callable[[], None]) -> pa.Table:
    """Read the planned batch as executors do; `act` comes after its first rows."""
    batches = []
    for task in stream.reader.partitions(stream.log[-2], stream.log[-1]):
        executor, split = pickle.loads(pickle.dumps((stream.reader, task)))  # noqa: S301 - its own
        for batch in executor.read(split):
            if not batches:
                act()
            batches.append(batch)
    assert len(batches) > PARTITIONS, "the batch was read before anything happened"
    return pa.Table.from_batches(batches, stream.schema)


def in_sync(cluster: Cluster, topic: str) -> bool:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    answer = cluster.connection.call(None, MetadataRequest(topics=topics, max_version=12))
    return all(len(part.isr_nodes) == len(part.replica_nodes) for part in answer.topics[0].partitions)
