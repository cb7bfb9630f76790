from __future__ import annotations

import logging
import pickle

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.security import Mechanism, Protocol
from keyedwm.kafka.values import Codec, Isolation

HERE = {"bootstrap.servers": "a:9092, b:9093"}
SASL = HERE | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
QUOTED = 'p "quoted" \\ ;=pass'
JAAS = (
    r'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="p \"quoted\" \\ ;=pass";'
)


def test_the_java_clients_properties_become_settings() -> None:
    config = ClientConfig.from_options(
        HERE
        | {"isolation.level": "read_committed", "max.partition.fetch.bytes": "1048576", "client.id": "me"}
        | {"compression.type": "zstd", "fetch.max.wait.ms": "7", "check.crcs": "false"}
    )
    assert config.bootstrap_servers == ("a:9092", "b:9093")
    assert config.isolation is Isolation.READ_COMMITTED
    assert (config.partition_fetch_bytes, config.client_id, config.fetch_wait_ms) == (1_048_576, "me", 7)
    assert config.compression is Codec.ZSTD
    assert not config.check_crcs


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "no-port"}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "a:0"}, "kafka.bootstrap.servers"),
        (HERE | {"isolation.level": "read_comitted"}, "kafka.isolation.level"),
        (HERE | {"request.timeout.ms": "soon"}, "kafka.request.timeout.ms"),
        (HERE | {"request.timeout.ms": "-1"}, "kafka.request.timeout.ms"),
        (HERE | {"compression.type": "rar"}, "kafka.compression.type"),
        (HERE | {"security.protocol": "TLS"}, "kafka.security.protocol"),
        (
            HERE | {"security.protocol": "SSL", "ssl.truststore.location": "/no/such/file"},
            "kafka.ssl.truststore.location",
        ),
        (SASL, "kafka.sasl.jaas.config"),
        (SASL | {"sasl.jaas.config": "nonsense"}, "kafka.sasl.jaas.config"),
        (SASL | {"sasl.jaas.config": 'Module required username="open'}, "kafka.sasl.jaas.config"),
        (SASL | {"sasl.jaas.config": 'Module required username="me";'}, "kafka.sasl.jaas.config has no password"),
        (SASL | {"sasl.mechanism": "MD5"}, "kafka.sasl.mechanism"),
    ],
)
def test_a_wrong_property_is_named_with_its_prefix(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named.replace(".", r"\.")):
        ClientConfig.from_options(options)


def test_what_only_the_java_client_needs_has_no_effect_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = ClientConfig.from_options(HERE | {"metric.reporters": "x", "ssl.protocol": "TLSv1.3", "linger.ms": "5"})
    assert config == ClientConfig.from_options(HERE)
    assert not caplog.records


def test_a_property_nobody_knows_is_warned_of_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ClientConfig.from_options(HERE | {"my.secret": "hunter2"})
    assert "kafka.my.secret" in caplog.text
    assert "hunter2" not in caplog.text


def test_the_login_is_read_from_the_jaas_entry() -> None:
    security = ClientConfig.from_options(SASL | {"sasl.jaas.config": JAAS}).security
    assert (security.protocol, security.mechanism) == (Protocol.SASL_PLAINTEXT, Mechanism.PLAIN)
    assert (security.username, security.password) == ("me", QUOTED)


def test_no_secret_shows() -> None:
    config = ClientConfig.from_options(SASL | {"sasl.jaas.config": JAAS})
    assert "quoted" not in repr(config) + str(config)
    for broken in (JAAS[:-1], JAAS.replace("required", "sometimes")):
        with pytest.raises(OptionError) as caught:
            ClientConfig.from_options(SASL | {"sasl.jaas.config": broken})
        assert "quoted" not in str(caught.value)


def test_equal_options_have_equal_digests_also_after_pickling() -> None:
    config = ClientConfig.from_options(SASL | {"sasl.jaas.config": JAAS})
    again = pickle.loads(pickle.dumps(config))  # noqa: S301 (our own bytes)
    assert again == config
    assert again.digest() == config.digest() == ClientConfig.from_options(SASL | {"sasl.jaas.config": JAAS}).digest()
    assert config.digest() != ClientConfig.from_options(HERE).digest()
