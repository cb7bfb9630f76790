"""The three ways to a real Kafka, and their order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.kafka.requests import transactions
from keyedwm.kafka.requests.produce import Sender
from keyedwm.testing.broker import VARIABLE, answers, broker, choose_way
from keyedwm.testing.container import why_no_container
from keyedwm.testing.local import JAVA_OPTIONS, PORTS, free_ports, local_broker
from tests.tools import cluster_at, make_topic

pytestmark = pytest.mark.starts


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(scope="module")
def chosen_port(started_way):
    del started_way  # each has its own: two clusters at one address are refused
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="module")
def running(started_way, chosen_port):
    """One broker of each way, at a port that was chosen, with a setting that was given."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv(VARIABLE, raising=False)
        with broker(started_way, port=chosen_port, extra={"message.max.bytes": "2000000"}) as running:
            yield running


def server_settings(bootstrap: str) -> dict[str, str]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        configs_by_resource = client.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, "1")], config_filter="all"
        )
    finally:
        client.close()
    (server,) = (configs for by_name in configs_by_resource.values() for configs in by_name.values())
    return {name: config["value"] for name, config in server.items()}


def test_every_way_that_starts_one_serves_with_the_same_settings(running, started_way):
    assert running.way == started_way
    assert running.bootstrap in running.describe()
    assert answers(running.bootstrap)
    settings = server_settings(running.bootstrap)
    assert settings["log.retention.ms"] == "-1"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["offsets.topic.replication.factor"] == "1"
    assert settings["transaction.max.timeout.ms"] == "900000"
    assert settings["message.max.bytes"] == "2000000"


def test_transactions_work_on_every_way(running, new_topic):
    """The leader of a partition must reach the coordinator of the transaction at the address that clients are told."""
    topic = new_topic()
    make_topic(running.bootstrap, topic)
    cluster = cluster_at(running.bootstrap)
    transaction = transactions.begin(cluster, topic, 60_000)
    transactions.add_partitions(cluster, transaction, [TopicPartition(topic, 0)])
    sender = Sender(cluster, transaction.producer, transactional_id=transaction.transactional_id)
    assert sender.send(topic, {0: pa.table({"value": [b"x"]})}) == {(topic, 0): 1}
    transactions.end(cluster, [transaction], commit=True)


def test_a_port_can_be_chosen(running, chosen_port):
    assert running.bootstrap == f"127.0.0.1:{chosen_port}"
    assert answers(running.bootstrap)


def test_a_given_cluster_is_used_and_left_running(monkeypatch):
    with local_broker() as somebody_elses:
        monkeypatch.setenv(VARIABLE, somebody_elses.bootstrap)
        with broker() as running:
            assert (running.way, running.bootstrap) == ("given", somebody_elses.bootstrap)
            assert VARIABLE in running.describe()
        assert answers(somebody_elses.bootstrap)


def test_the_given_cluster_comes_first(monkeypatch):
    monkeypatch.setenv(VARIABLE, "somewhere:9092")
    assert choose_way() == "given"


def test_then_comes_the_container_where_docker_answers():
    reason = why_no_container()
    if reason:
        pytest.skip(f"container way: {reason}")
    assert choose_way() == "container"


def test_without_docker_it_is_the_local_java(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    assert "Docker does not answer" in why_no_container()
    assert choose_way() == "local"
    with pytest.raises(OptionError, match=r"way=container: Docker does not answer.*way=local"):
        broker("container").__enter__()


def test_options_of_the_local_java_are_those_of_kafkas_own_scripts(monkeypatch):
    monkeypatch.setenv(JAVA_OPTIONS, "-XX:+UseSerialGC -XX:NoSuchOption=1")
    with pytest.raises(UnavailableError, match=r"could not format its directory: .*NoSuchOption"), local_broker():
        pass


def test_a_given_cluster_that_does_not_answer_is_named(monkeypatch):
    (port,) = free_ports(1)
    monkeypatch.setenv(VARIABLE, f"127.0.0.1:{port}")
    with pytest.raises(UnavailableError, match=f"no Kafka answers at 127.0.0.1:{port}, given by {VARIABLE}"):
        broker().__enter__()


@pytest.mark.parametrize(
    "wrong",
    ["localhost", "localhost:", ":9092", "localhost:kafka", "localhost:0", "localhost:99999", "localhost:\u0669"],
)
def test_a_given_address_must_be_host_and_port(monkeypatch, wrong):
    monkeypatch.setenv(VARIABLE, wrong)
    with pytest.raises(OptionError, match=f"{VARIABLE}={wrong} is not host:port"):
        broker().__enter__()


def test_a_given_cluster_takes_no_settings(monkeypatch):
    monkeypatch.setenv(VARIABLE, "localhost:9092")
    with pytest.raises(OptionError, match="cannot be given a port or server properties"):
        broker(extra={"num.partitions": "3"}).__enter__()


def test_an_unknown_way_is_refused():
    with pytest.raises(OptionError, match="way=cloud is not one of given, container, local"):
        broker("cloud").__enter__()


def test_something_that_is_not_kafka_does_not_answer():
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_in_http() -> None:
            wire, _ = server.accept()
            with wire:
                wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        speaker = threading.Thread(target=answer_in_http)
        speaker.start()
        assert not answers(f"127.0.0.1:{server.getsockname()[1]}")
        speaker.join()


def test_free_ports_are_free_different_and_not_for_outgoing_connections():
    import socket

    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert set(ports) <= set(PORTS)
    port = ports[0]
    with socket.create_server(("127.0.0.1", port)):
        assert port not in free_ports(200)
