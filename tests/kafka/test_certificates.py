"""A broker's certificate that is not accepted ends the connecting at once, and the error says what to set."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.errors import AccessError
from keyedwm.kafka.requests.cluster import Cluster
from tests.secured import certificates, openssl
from tests.support.hostile import HostileBroker, hostile_broker

MUCH_MS = 600_000
METADATA, SASL_HANDSHAKE = 3, 17
UNSUPPORTED_SASL_MECHANISM = 33


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    certificates(directory)
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other-key.pem -out other.pem", directory)
    return directory


@pytest.fixture
def broker(home: Path) -> Iterator[HostileBroker]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "both.pem")
    with hostile_broker(tls=context) as running:
        yield running


def tls_error(bootstrap: str, **options: str) -> str:
    """What the error says; connecting must end long before the time that there is."""
    settings = {name.replace("_", "."): value for name, value in options.items()}
    config = ClientConfig.from_options({"bootstrap.servers": bootstrap, "security.protocol": "SSL", **settings})
    with pytest.raises(AccessError) as caught:
        Cluster.connect(config, MUCH_MS)
    assert "retry" not in str(caught.value)
    return str(caught.value)


def test_without_a_trust_store_the_error_says_that_none_is_set(broker: HostileBroker) -> None:
    message = tls_error(broker.bootstrap)
    assert f"the certificate of {broker.bootstrap} is not trusted by the system's certificates" in message
    assert "as kafka.ssl.truststore.location is not set" in message


def test_a_trust_store_of_another_authority_is_named(broker: HostileBroker, home: Path) -> None:
    message = tls_error(broker.bootstrap, ssl_truststore_type="PEM", ssl_truststore_location=str(home / "other.pem"))
    assert f"is not trusted by {home / 'other.pem'} (kafka.ssl.truststore.location)" in message


def test_a_certificate_for_another_host_name_says_so(broker: HostileBroker, home: Path) -> None:
    address = broker.bootstrap.replace("127.0.0.1", "localhost")
    message = tls_error(address, ssl_truststore_type="PEM", ssl_truststore_location=str(home / "cert.pem"))
    assert f"the certificate of {address} is for another host name: set kafka.bootstrap.servers" in message


def test_one_address_with_another_certificate_leaves_the_others(broker: HostileBroker, home: Path) -> None:
    wrong = broker.bootstrap.replace("127.0.0.1", "localhost")
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(home / "cert.pem")}
    settings = {"bootstrap.servers": f"{wrong},{broker.bootstrap}", "security.protocol": "SSL", **trust}
    cluster = Cluster.connect(ClientConfig.from_options(settings), 120_000)
    assert cluster.topics() == ("t",)
    cluster.close()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_client_without_a_login_learns_that_the_broker_expects_one(home: Path, protocol: str) -> None:
    context = None
    settings = {"security.protocol": protocol}
    if protocol == "SSL":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(home / "both.pem")
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(home / "cert.pem")}
    with hostile_broker(tls=context) as broker:
        broker.lies[METADATA] = lambda _request, _broker: None  # as Kafka does before the login
        broker.lies[SASL_HANDSHAKE] = lambda request, broker: [broker.failed(request, UNSUPPORTED_SASL_MECHANISM)]
        config = ClientConfig.from_options({"bootstrap.servers": broker.bootstrap, **settings})
        with pytest.raises(OptionError) as caught:
            Cluster.connect(config, 500)
        assert str(caught.value).startswith(
            f"{broker.bootstrap} expects a login, and kafka.security.protocol is {protocol}: "
            f"set kafka.security.protocol to SASL_{protocol}"
        )


def test_a_login_that_nobody_chose_is_called_the_default() -> None:
    with hostile_broker() as broker:
        config = ClientConfig.from_options({
            "bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT",
        })  # fmt: skip
        with pytest.raises(AccessError, match=r"accept the login GSSAPI, the default; they offer"):
            Cluster.connect(config, MUCH_MS)


def test_a_broker_that_is_advertised_by_another_name_says_so_without_retries(broker: HostileBroker, home: Path) -> None:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(home / "cert.pem")}
    config = ClientConfig.from_options({"bootstrap.servers": broker.bootstrap, "security.protocol": "SSL", **trust})
    brokers = [{"node_id": 1, "host": "localhost", "port": int(broker.bootstrap.split(":")[1]), "rack": None}]
    broker.lies[METADATA] = lambda request, honest: [honest.honest(request, brokers=brokers)]
    cluster = Cluster.connect(config, 120_000)
    with pytest.raises(AccessError, match=r"the certificate of localhost:\d+ is for another host name"):
        cluster.latest([("t", 0)])
    cluster.close()
