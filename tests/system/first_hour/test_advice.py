"""What an error advises is what helps: no healthy record is damaged, no right address is wrong."""

from __future__ import annotations

import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.requests.cluster import Cluster
from tests.support.hostile import hostile_broker

METADATA = 3
PROPERTIES = (Path(__file__).parents[3] / "docs" / "reference" / "options.md").read_text()
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
PROTOCOLS = {
    "SSL": {},
    "SASL_PLAINTEXT": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN},
    "SASL_SSL": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN},
}


@contextmanager
def listener_that_hangs_up() -> Iterator[int]:
    """A port that takes connections and closes them at the first byte, as one does that expects another protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                with taken:
                    taken.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_that_does_not_fit_the_port_names_the_setting_with_its_value(protocol):
    with listener_that_hangs_up() as port:
        given = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": protocol, **PROTOCOLS[protocol]}
        with pytest.raises(UnavailableError) as told:
            Cluster.connect(ClientConfig.from_options(given), 500)
    assert f"check kafka.bootstrap.servers and kafka.security.protocol, which is {protocol}" in told.value.message


@pytest.mark.parametrize("bootstrap", ["broker.invalid:9092", "127.0.0.1:9"])
def test_an_address_where_nobody_answers_at_the_start_is_to_be_fixed_before_it_is_tried_again(bootstrap):
    with pytest.raises(UnavailableError) as told:
        Cluster.connect(ClientConfig.from_options({"bootstrap.servers": bootstrap}), 500)
    assert told.value.advice.startswith("fix the address or the protocol, or if brokers answered there before, retry")


def test_a_broker_that_answered_before_and_is_away_is_tried_again():
    with hostile_broker() as broker:
        config = {"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": "300"}
        cluster = Cluster.connect(ClientConfig.from_options(config))
        broker.lies[METADATA] = lambda _request, _broker: None
        with pytest.raises(UnavailableError) as told:
            cluster.topics()
        cluster.close()
    assert told.value.advice == "retry: nothing was lost"


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_tls_against_a_plain_port_is_an_option_to_fix(protocol):
    with hostile_broker() as broker:
        given = {"bootstrap.servers": broker.bootstrap, "security.protocol": protocol, **PROTOCOLS[protocol]}
        with pytest.raises(OptionError) as told:
            Cluster.connect(ClientConfig.from_options(given), 1_000)
    assert told.value.message == (
        f"{broker.bootstrap} does not expect TLS, and kafka.security.protocol is {protocol}: "
        "set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT"
    )


def test_a_valid_record_that_is_too_large_is_not_told_to_restore_a_replica():
    assert RecordTooLargeError("x").advice == "raise kafka.fetch.max.bytes"
    assert not issubclass(RecordTooLargeError, CorruptRecordError)


def test_a_broker_that_cannot_be_reached_is_given_up_when_the_page_says():
    first_s = inspect.signature(Cluster.connect).parameters["timeout_ms"].default // 1_000
    assert f"The first connection fails after {first_s} s, or after `default.api.timeout.ms`" in PROPERTIES
    shorter = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:9", "default.api.timeout.ms": "300"})
    with pytest.raises(UnavailableError, match=r"no Kafka broker answered at 127\.0\.0\.1:9 within 300 ms"):
        Cluster.connect(shorter)
