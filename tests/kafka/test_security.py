from __future__ import annotations

import logging
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka import admin
from keyedwm.kafka.cluster import Cluster
from keyedwm.kafka.config import ClientConfig
from keyedwm.kafka.errors import AccessError, Code, GroupAccessError
from keyedwm.kafka.fetch import Range, read_ranges
from keyedwm.kafka.produce import send
from keyedwm.testing.local import LocalBroker, local_broker

PASSWORD = secrets.token_hex(8)
LOGIN = "org.apache.kafka.common.security.{kind}LoginModule required {settings};"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with a key and a self-signed certificate for 127.0.0.1, both a key store and a trust store."""
    home = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=broker -addext subjectAltName=IP:127.0.0.1 "
        "-keyout key.pem -out cert.pem"
    )
    subprocess.run(command.split(), cwd=home, check=True, capture_output=True)
    both = home / "both.pem"
    both.write_text((home / "key.pem").read_text() + (home / "cert.pem").read_text())
    return both


@pytest.fixture(scope="module")
def secured(certificate: Path) -> Iterator[LocalBroker]:
    """A broker with TLS, logins and ACLs: `boss` may do everything, `guest` what a test grants."""
    users = f'username="boss" password="{PASSWORD}" user_boss="{PASSWORD}" user_guest="{PASSWORD}"'
    extra = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": LOGIN.format(kind="plain.Plain", settings=users),
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": LOGIN.format(kind="scram.Scram", settings=""),
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": LOGIN.format(kind="scram.Scram", settings=""),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate.with_name("cert.pem")),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:boss;User:ANONYMOUS",
    }
    with local_broker(extra=extra) as running:
        yield running


def options(secured: LocalBroker, certificate: Path, user: str, **more: str) -> Mapping[str, str]:
    settings = f'username="{user}" password="{PASSWORD}"'
    return {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": LOGIN.format(kind="plain.Plain", settings=settings),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    } | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="module")
def boss(secured: LocalBroker, certificate: Path) -> Iterator[Cluster]:
    cluster = Cluster.connect(ClientConfig.from_options(options(secured, certificate, "boss")))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def their_admin(secured: LocalBroker, certificate: Path) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(
        bootstrap_servers=secured.bootstrap, security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_plain_username="boss", sasl_plain_password=PASSWORD, ssl_cafile=str(certificate),
    )  # fmt: skip
    yield client
    client.close()


def test_records_go_both_ways_through_tls_and_a_login(boss: Cluster, topic: str) -> None:
    admin.create_topic(boss, topic)
    send(boss, topic, {0: pa.table({"value": [b"%d" % i + b"x" * 1_000 for i in range(5_000)]})})
    found = [part.records for part in read_ranges(boss, [Range(topic, 0, 0, 5_000)])]
    assert sum(records.count for records in found) == 5_000


@pytest.mark.parametrize("mechanism", list(ScramMechanism)[1:])
def test_scram_logs_in(
    secured: LocalBroker, certificate: Path, their_admin: KafkaAdminClient, mechanism: ScramMechanism
) -> None:
    their_admin.alter_user_scram_credentials([UserScramCredentialUpsertion("boss", mechanism, PASSWORD)])
    given = options(secured, certificate, "boss", sasl_mechanism=mechanism.name.replace("_", "-"))
    login = LOGIN.format(kind="scram.Scram", settings=f'username="boss" password="{PASSWORD}"')
    cluster = Cluster.connect(ClientConfig.from_options({**given, "sasl.jaas.config": login}))
    assert isinstance(cluster.topics(), tuple)
    cluster.close()


def test_a_wrong_password_is_refused_at_once_and_not_repeated_in_the_message(
    secured: LocalBroker, certificate: Path
) -> None:
    wrong = LOGIN.format(kind="plain.Plain", settings='username="boss" password="hunter2"')
    given = {**options(secured, certificate, "boss"), "sasl.jaas.config": wrong}
    with pytest.raises(AccessError, match=r"refused the login with PLAIN: check kafka\.sasl\.jaas\.config") as caught:
        Cluster.connect(ClientConfig.from_options(given))
    assert "hunter2" not in str(caught.value)


def test_an_unknown_certificate_is_the_reason_given(secured: LocalBroker, certificate: Path) -> None:
    given = {k: v for k, v in options(secured, certificate, "boss").items() if "truststore" not in k}
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        Cluster.connect(ClientConfig.from_options(given), timeout_ms=1_000)


def test_certificates_can_be_given_in_place(secured: LocalBroker, certificate: Path) -> None:
    given = {k: v for k, v in options(secured, certificate, "boss").items() if k != "ssl.truststore.location"}
    pem = certificate.with_name("cert.pem").read_text()
    cluster = Cluster.connect(ClientConfig.from_options(given | {"ssl.truststore.certificates": pem}))
    assert cluster.usable
    cluster.close()


def test_a_key_store_without_a_key_is_refused(secured: LocalBroker, certificate: Path) -> None:
    only = str(certificate.with_name("cert.pem"))
    given = options(secured, certificate, "boss", ssl_keystore_location=only, ssl_keystore_type="PEM")
    with pytest.raises(OptionError, match=r"kafka\.ssl\.keystore\.location"):
        Cluster.connect(ClientConfig.from_options(given))


def test_without_rights_on_the_group_reading_goes_on(
    secured: LocalBroker, certificate: Path, boss: Cluster, their_admin: KafkaAdminClient, topic: str
) -> None:
    admin.create_topic(boss, topic)
    admin.create_topic(boss, f"{topic}-hidden")
    send(boss, topic, {0: pa.table({"value": ["a"]})})
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    their_admin.create_acls([ACL("User:guest", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    guest = Cluster.connect(ClientConfig.from_options(options(secured, certificate, "guest")))
    assert guest.commit_offsets("g", {(topic, 0): (1, "state")}) == {(topic, 0): Code.GROUP_AUTHORIZATION_FAILED}
    with pytest.raises(GroupAccessError, match="group 'g'"):
        guest.fetch_offsets("g", [(topic, 0)])
    (part,) = read_ranges(guest, [Range(topic, 0, 0, 1)])
    assert part.records.value.to_pylist() == [b"a"]  # type: ignore[union-attr]
    with pytest.raises(AccessError, match="not allowed to write"):
        send(guest, topic, {0: pa.table({"value": ["b"]})})
    with pytest.raises(AccessError, match=f"not allowed to describe topic '{topic}-hidden'"):
        guest.partitions([f"{topic}-hidden"])
    guest.close()


def test_the_password_stands_in_no_log_at_any_level(
    secured: LocalBroker, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kafka"), caplog.at_level(logging.DEBUG):
        cluster = Cluster.connect(ClientConfig.from_options(options(secured, certificate, "boss")))
        cluster.topics()
        cluster.close()
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text
