from __future__ import annotations

import logging
from collections.abc import Iterator

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
from tests.secured import PASSWORD, Secured, login


@pytest.fixture(scope="module")
def boss(secured: Secured) -> Iterator[Cluster]:
    cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def their_admin(secured: Secured) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(
        bootstrap_servers=secured.bootstrap, security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_plain_username="boss", sasl_plain_password=PASSWORD, ssl_cafile=str(secured.home / "cert.pem"),
    )  # fmt: skip
    yield client
    client.close()


def test_records_go_both_ways_through_tls_and_a_login(boss: Cluster, topic: str) -> None:
    admin.create_topic(boss, topic)
    send(boss, topic, {0: pa.table({"value": [b"%d" % i + b"x" * 1_000 for i in range(5_000)]})})
    found = [part.records for part in read_ranges(boss, [Range(topic, 0, 0, 5_000)])]
    assert sum(records.count for records in found) == 5_000


@pytest.mark.parametrize("mechanism", list(ScramMechanism)[1:])
def test_scram_logs_in(secured: Secured, their_admin: KafkaAdminClient, mechanism: ScramMechanism) -> None:
    their_admin.alter_user_scram_credentials([UserScramCredentialUpsertion("boss", mechanism, PASSWORD)])
    given = secured.options(sasl_mechanism=mechanism.name.replace("_", "-"))
    jaas = login("scram.Scram", username="boss", password=PASSWORD)
    cluster = Cluster.connect(ClientConfig.from_options({**given, "sasl.jaas.config": jaas}))
    assert isinstance(cluster.topics(), tuple)
    cluster.close()


def test_a_wrong_password_is_refused_at_once_and_not_repeated_in_the_message(secured: Secured) -> None:
    wrong = PASSWORD[::-1]
    with pytest.raises(AccessError, match=r"refused the login with PLAIN: check kafka\.sasl\.jaas\.config") as caught:
        Cluster.connect(ClientConfig.from_options(secured.options(password=wrong)))
    assert wrong not in str(caught.value)


def test_an_unknown_certificate_is_the_reason_given(secured: Secured) -> None:
    given = {k: v for k, v in secured.options().items() if "truststore" not in k}
    with pytest.raises(UnavailableError, match="certificate verify failed"):
        Cluster.connect(ClientConfig.from_options(given), timeout_ms=1_000)


def test_certificates_can_be_given_in_place(secured: Secured) -> None:
    given = {k: v for k, v in secured.options().items() if k != "ssl.truststore.location"}
    pem = (secured.home / "cert.pem").read_text()
    cluster = Cluster.connect(ClientConfig.from_options(given | {"ssl.truststore.certificates": pem}))
    assert cluster.usable
    cluster.close()


def test_a_key_store_without_a_key_is_refused(secured: Secured) -> None:
    only = str(secured.home / "cert.pem")
    given = secured.options(ssl_keystore_location=only, ssl_keystore_type="PEM")
    with pytest.raises(OptionError, match=r"kafka\.ssl\.keystore\.location"):
        Cluster.connect(ClientConfig.from_options(given))


def test_without_rights_on_the_group_reading_goes_on(
    secured: Secured, boss: Cluster, their_admin: KafkaAdminClient, topic: str
) -> None:
    admin.create_topic(boss, topic)
    admin.create_topic(boss, f"{topic}-hidden")
    send(boss, topic, {0: pa.table({"value": ["a"]})})
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    their_admin.create_acls([ACL("User:guest", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    guest = Cluster.connect(ClientConfig.from_options(secured.options("guest")))
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


def test_the_password_stands_in_no_log_at_any_level(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "kafka"), caplog.at_level(logging.DEBUG):
        cluster = Cluster.connect(ClientConfig.from_options(secured.options()))
        cluster.topics()
        cluster.close()
    assert "kafka" in caplog.text
    assert PASSWORD not in caplog.text
