"""A broker that says it is where nobody finds it (advertised.listeners) is named with the address that it gives."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from keyedwm.cli.main import main
from keyedwm.core.errors import UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from tests.support.hostile import HostileBroker, hostile_broker

OFFSETS, METADATA, VERSIONS, END_TXN, CONFIGS = 2, 3, 18, 26, 32


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker() as hostile:
        yield hostile


def advertise(broker: HostileBroker, host: str, port: int) -> None:
    brokers = [{"node_id": 1, "host": host, "port": port, "rack": None}]
    broker.lies[METADATA] = lambda request, honest: [honest.honest(request, brokers=brokers)]


def closed_port() -> int:
    with socket.socket() as socket_taken:
        socket_taken.bind(("127.0.0.1", 0))
        return socket_taken.getsockname()[1]


def test_an_advertised_name_that_does_not_resolve_is_named(broker: HostileBroker) -> None:
    advertise(broker, "kafka.invalid", 9092)
    message = lookup_error(broker)
    assert "broker 1 is advertised as kafka.invalid:9092, which is not reached from here" in message
    assert "kafka.invalid: the name does not resolve" in message
    assert "advertised.listeners of the broker must be an address that the driver and all workers reach" in message


def test_an_advertised_port_that_refuses_is_named(broker: HostileBroker) -> None:
    port = closed_port()
    advertise(broker, "127.0.0.1", port)
    assert re.search(rf"broker 1 is advertised as 127\.0\.0\.1:{port}, which .*REFUSED", lookup_error(broker))


def test_a_broker_that_is_gone_from_its_bootstrap_address_is_not_blamed_for_its_listeners(
    broker: HostileBroker,
) -> None:
    port = closed_port()
    config = config_of(f"{broker.bootstrap},127.0.0.1:{port}", "8000")  # the first connection may try the closed port
    advertise(broker, "127.0.0.1", port)
    cluster = Cluster.connect(config)
    with pytest.raises(UnavailableError) as error:
        cluster.latest([("t", 0)])
    cluster.close()
    assert "advertised" not in str(error.value)


def test_a_broker_that_goes_away_after_it_was_reached_is_not_blamed_for_its_listeners() -> None:
    with hostile_broker() as broker:
        advertise(broker, "localhost", int(broker.bootstrap.rpartition(":")[2]))  # another name than bootstrap's
        cluster = Cluster.connect(config_of(broker.bootstrap))
        cluster.latest([("t", 0)])
        broker.lies = dict.fromkeys((*broker.lies, VERSIONS, OFFSETS), lambda *_: None)  # hangs up
    with pytest.raises(UnavailableError) as error:
        cluster.latest([("t", 0)])
    cluster.close()
    assert "advertised" not in str(error.value)


def config_of(bootstrap: str, limit_ms: str = "1000") -> ClientConfig:
    return ClientConfig.from_options({"bootstrap.servers": bootstrap, "default.api.timeout.ms": limit_ms})


def lookup_error(broker: HostileBroker) -> str:
    cluster = Cluster.connect(config_of(broker.bootstrap))
    with pytest.raises(UnavailableError) as error:
        cluster.latest([("t", 0)])
    cluster.close()
    return str(error.value)


def doctor(broker: HostileBroker, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    main(["doctor", "--bootstrap", broker.bootstrap, *arguments])
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line[6:].startswith(("broker", "topic", "group coord", "transaction coord"))]


def test_doctor_tries_each_advertised_address(broker: HostileBroker, capsys: pytest.CaptureFixture[str]) -> None:
    advertise(broker, "kafka.invalid", 9092)
    broker_line, line = doctor(broker, capsys, "--topic", "t")  # no request is sent there for the topic
    assert broker_line.startswith("ok    broker: answers at ")
    assert line == (
        "FAIL  broker 1: the bootstrap address answers, and this broker is advertised as kafka.invalid:9092, which "
        "does not resolve -> set advertised.listeners of the broker to an address that the driver and all workers reach"
    )


@contextmanager
def web_server() -> Iterator[int]:
    """A port where something answers that is no Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    socket_taken, _ = listening.accept()
                    with socket_taken:
                        socket_taken.recv(4_096)
                        socket_taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_kind_at_the_advertised_address_is_told_to_speak_no_kafka(broker: HostileBroker) -> None:
    with web_server() as port:
        advertise(broker, "127.0.0.1", port)
        message = lookup_error(broker)
    assert f"broker 1 is advertised as 127.0.0.1:{port}, which is not reached from here" in message
    assert "the server there does not speak Kafka, its answer begins with 'HTTP'" in message
    assert "advertised.listeners of the broker must be" in message


def test_doctor_tells_of_such_a_server_once_and_ends(broker: HostileBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with web_server() as port:
        advertise(broker, "127.0.0.1", port)
        broker_line, line = doctor(broker, capsys, "--topic", "t", "--target", "t")
    assert broker_line.startswith("ok    broker: answers at ")
    assert line == (
        f"FAIL  broker 1: the bootstrap address answers, and this broker is advertised as 127.0.0.1:{port}, which "
        "takes connections, but does not speak Kafka -> set advertised.listeners of the broker to an address that the "
        "driver and all workers reach"
    )


def test_an_error_between_the_checks_of_doctor_is_its_last_finding(
    broker: HostileBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.lies[END_TXN] = lambda _request, _broker: None
    code = main([
        "doctor", "--bootstrap", broker.bootstrap, "--target", "t", "--option", "kafka.default.api.timeout.ms=500",
    ])  # fmt: skip
    output = capsys.readouterr()
    assert code == 1
    assert output.out.splitlines()[-1].startswith("FAIL  cluster: asking for the rights on transactions ")
    assert output.err == ""


def test_doctor_says_that_nobody_coordinates(broker: HostileBroker, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"read_only": False, "config_source": 5, "is_sensitive": False, "synonyms": [], "is_default": True}
    factors = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    result = {"error_code": 0, "error_message": None, "resource_type": 4, "resource_name": "1"}
    results = [{**result, "configs": [{**config, "name": name, "value": "3"} for name in factors]}]
    broker.lies[CONFIGS] = lambda request, honest: [honest.honest(request, results=results)]
    lines = doctor(broker, capsys, "--group", "g", "--target", "t")
    groups, transactions = [line for line in lines if "coordinator" in line]
    assert groups.startswith(
        "FAIL  group coordinator: __consumer_offsets cannot be made, as offsets.topic.replication.factor is 3 and "
        "there are 1 brokers: without it no state"
    )
    assert transactions.startswith("FAIL  transaction coordinator: __transaction_state cannot be made")
    leaderless = {"error_code": 5, "partition_index": 0, "leader_id": -1, "leader_epoch": 0, "replica_nodes": [9],
            "isr_nodes": [], "offline_replicas": [9]}  # fmt: skip
    topics = [
        {"error_code": 0, "name": name, "topic_id": None, "is_internal": True, "partitions": [leaderless]}
        for name in ("__consumer_offsets", "__transaction_state", "t")
    ]
    broker.lies[METADATA] = lambda request, honest: [honest.honest(request, topics=topics)]
    (line,) = [line for line in doctor(broker, capsys, "--group", "g") if "coordinator" in line]
    assert "1 of 1 partitions of __consumer_offsets have no leader" in line


def test_a_server_that_closes_the_connection_for_a_setting_hides_no_other_check(broker, capsys) -> None:
    """Whether records are in tiered storage is a setting of the brokers, which no query needs."""
    broker.lies[CONFIGS] = lambda *_: None
    main(["doctor", "--bootstrap", broker.bootstrap, "--topic", "t", "--option", "kafka.default.api.timeout.ms=1000"])
    lines = capsys.readouterr().out.splitlines()
    (storage,) = [line for line in lines if "tiered storage" in line]
    assert storage.startswith("WARN  tiered storage: is not known: ")
    assert [line for line in lines[lines.index(storage) :] if line[6:].startswith(("topic t", "group"))]
