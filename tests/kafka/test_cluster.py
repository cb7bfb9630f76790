from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection

import pyarrow as pa
import pytest

from keyedwm.core.errors import InputError, OutOfTurnError, UnavailableError
from keyedwm.kafka.client import connection
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import Code, UnknownTopicError
from keyedwm.kafka.client.values import Committed, TopicPartition, WireLimits
from keyedwm.kafka.requests import produce
from keyedwm.kafka.requests.cluster import Cluster, shared
from keyedwm.testing import admin
from tests.support import kafka_versions

MakeTopic = Callable[..., str]


def test_no_broker_is_named_with_its_address() -> None:
    with socket.socket() as socket_taken:
        socket_taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{socket_taken.getsockname()[1]}"
        config = ClientConfig.from_options({"bootstrap.servers": address})
        with pytest.raises(UnavailableError, match=f"no Kafka broker answered at {address} within 500 ms"):
            Cluster.connect(config, timeout_ms=500)


def test_a_topic_that_does_not_exist_is_worded_as_spark_words_it(cluster: Cluster, topic: str) -> None:
    for ask in (
        lambda: cluster.partitions([topic]),
        lambda: cluster.latest([(topic, 0)]),
        lambda: admin.delete_topic(cluster, topic),
    ):
        with pytest.raises(UnknownTopicError, match=f"This server does not host this topic-partition.*{topic}"):
            ask()
    assert cluster.partitions([topic], missing_ok=True) == {}
    assert topic not in cluster.topics(), "asking for a topic must not create it"


def test_a_partition_that_does_not_exist_is_named(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with pytest.raises(UnknownTopicError, match=f"topic '{topic}' has no partition 7"):
        cluster.earliest([(topic, 7)])


def test_an_illegal_topic_name_is_an_input_error(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="not a legal topic name"):
        cluster.partitions(["no such/topic"])


def test_new_partitions_and_topics_are_seen_at_once(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    assert cluster.partitions([topic]) == {topic: (0, 1)}
    admin.create_partitions(cluster, topic, 5)
    assert cluster.partitions([topic]) == {topic: (0, 1, 2, 3, 4)}
    assert topic in cluster.topics()


def test_offsets_by_end_and_by_time(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    produce.send(cluster, topic, {1: pa.table({"value": ["a", "b", "c"], "timestamp": [10, 20, 30]})})
    assert cluster.earliest([(topic, 0), (topic, 1)]) == {(topic, 0): 0, (topic, 1): 0}
    assert cluster.latest([(topic, 0), (topic, 1)]) == {(topic, 0): 0, (topic, 1): 3}
    times = {(topic, 1): 11, (topic, 0): 0}
    assert cluster.by_timestamp(times) == {(topic, 1): 1, (topic, 0): None}
    assert cluster.by_timestamp({(topic, 1): 31}) == {(topic, 1): None}
    with pytest.raises(InputError, match="timestamp -5"):
        cluster.by_timestamp({(topic, 1): -5})


def test_many_partitions_are_asked_about_together(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(300)
    places = [(topic, p) for p in range(300)]
    assert cluster.latest(places) == dict.fromkeys(places, 0)


@kafka_versions.since("3.3", "a deleted topic is gone at once, with KRaft")
def test_a_topic_deleted_and_made_anew_is_found_again(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    produce.send(cluster, topic, {0: pa.table({"value": ["a"]})})
    admin.delete_topic(cluster, topic)
    admin.create_topic(cluster, topic, 2)
    assert cluster.latest([(topic, 0), (topic, 1)]) == {(topic, 0): 0, (topic, 1): 0}


@kafka_versions.since("3.9", "a commit that was refused for its metadata is not pending for ever")
def test_committed_positions_come_back_with_their_metadata(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    group = f"g-{topic}"
    codes = cluster.commit_offsets(group, {(topic, 0): (5, "state é"), (topic, 1): (6, "x" * 5_000)})
    assert codes == {(topic, 0): Code.NONE, (topic, 1): Code.OFFSET_METADATA_TOO_LARGE}
    assert cluster.fetch_offsets(group, [(topic, p) for p in range(3)]) == {(topic, 0): Committed(5, "state é")}
    cluster.commit_offsets(group, {(topic, 0): (9, "")})
    assert cluster.fetch_offsets(group, [(topic, 0)]) == {TopicPartition(topic, 0): Committed(9, "")}


def test_a_commit_to_a_topic_that_is_gone_is_an_answer_not_an_error(cluster: Cluster, topic: str) -> None:
    assert cluster.commit_offsets(f"g-{topic}", {(topic, 0): (5, "")}) == {(topic, 0): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.fetch_offsets(f"g-{topic}", [(topic, 0)]) == {}


def test_a_stale_coordinator_is_looked_up_again(cluster: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    group = f"g-{topic}"
    cluster.coordinators._nodes[0, group] = 4711
    assert cluster.commit_offsets(group, {(topic, 0): (5, "")}) == {(topic, 0): Code.NONE}


def test_one_connection_set_serves_a_process_and_many_threads(config: ClientConfig, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(shared(config).latest([(topic, 0)]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{(topic, 0): 0}] * 8
    assert shared(config) is shared(ClientConfig.from_options({"bootstrap.servers": config.addresses}))
    shared(config).close()
    assert shared(config).usable, "a closed cluster is replaced"
    shared(config).close()


def _child(config: ClientConfig, inherited: Cluster, topic: str, answer: Connection) -> None:
    try:
        inherited.latest([(topic, 0)])
    except OutOfTurnError:
        answer.send((inherited.usable, shared(config).latest([(topic, 0)])))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_its_own_connections(config: ClientConfig, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    parents = shared(config)
    own_end, child_end = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(config, parents, topic, child_end))
    child.start()
    assert own_end.poll(240)
    assert own_end.recv() == (False, {(topic, 0): 0})
    child.join()
    assert parents.latest([(topic, 0)]) == {(topic, 0): 0}, "the parent's connections live on"
    parents.close()


def test_an_answer_that_never_comes_is_not_waited_for_without_end(config: ClientConfig) -> None:
    short = {
        "bootstrap.servers": config.addresses,
        "request.timeout.ms": "150",
        "socket.connection.setup.timeout.ms": "150",
    }
    hasty = replace(ClientConfig.from_options(short), limits=WireLimits(answer_grace_ms=0, answer_poll_s=0.05))
    with closing(Cluster.connect(hasty, timeout_ms=120_000)) as cluster:
        with pytest.raises(connection.TransientError, match="no answer came within 300 ms"):
            cluster.connection.result(connection.Answer())
        cluster.close()
        with pytest.raises(connection.TransientError, match="thread has ended"):
            cluster.connection.result(connection.Answer())
