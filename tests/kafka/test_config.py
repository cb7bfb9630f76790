from __future__ import annotations

import logging
import pickle
import ssl

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.client.kerberos_login import KerberosLogin
from keyedwm.kafka.client.security import Mechanism, Protocol
from keyedwm.kafka.client.values import Codec, Isolation

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


def test_a_protocol_before_a_host_is_passed_over_as_kafkas_own_clients_do():
    config = ClientConfig.from_options({"bootstrap.servers": "SASL_SSL://a:9092, PLAINTEXT://[::1]:9093"})
    assert config.bootstrap_servers == ("a:9092", "[::1]:9093")


@pytest.mark.parametrize(
    ("options", "property_name"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "no-port"}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "a:0"}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "a b:9092"}, "kafka.bootstrap.servers"),
        ({"bootstrap.servers": "user@a:9092"}, "kafka.bootstrap.servers"),
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
def test_a_wrong_property_is_named_with_its_prefix(options: dict[str, str], property_name: str) -> None:
    with pytest.raises(OptionError, match=property_name.replace(".", r"\.")):
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


@pytest.mark.parametrize("address", ["user:hidden@host:9092", "SASL_SSL://user:hidden@host:9092,other:9092"])
def test_a_login_in_an_address_is_refused_unseen(address: str) -> None:
    with pytest.raises(OptionError, match=r"holds an @: a login is given by kafka\.sasl") as error:
        ClientConfig.from_options({"bootstrap.servers": address})
    assert "hidden" not in str(error.value)


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


TLS = {"bootstrap.servers": "h:1", "security.protocol": "SSL"}


def context_of(**options: str) -> ssl.SSLContext:
    settings = TLS | {name.replace("_", "."): value for name, value in options.items()}
    context = ClientConfig.from_options(settings).security.as_kafka_python()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return context


@pytest.mark.parametrize(
    ("enabled", "oldest", "newest"),
    [
        (None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        ("TLSv1.3", ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        ("TLSv1.2", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ("TLSv1.2, TLSv1.3", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_the_enabled_tls_versions_are_kept(enabled: str | None, oldest: ssl.TLSVersion, newest: ssl.TLSVersion) -> None:
    context = context_of() if enabled is None else context_of(ssl_enabled_protocols=enabled)
    assert (context.minimum_version, context.maximum_version) == (oldest, newest)


def test_the_cipher_suites_are_kept_by_their_java_names() -> None:
    suites = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    context = context_of(ssl_cipher_suites=suites)
    older = {c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"}
    assert older == {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"}
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2, "no suite of TLS 1.3 was named"


def test_all_suites_of_tls_1_3_alone_leave_no_older_version() -> None:
    suites = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    assert context_of(ssl_cipher_suites=suites).minimum_version is ssl.TLSVersion.TLSv1_3
    both = context_of(ssl_cipher_suites=f"{suites},TLS_RSA_WITH_AES_128_CBC_SHA")
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, r"kafka\.ssl\.enabled\.protocols.*TLSv1\.1"),
        ({"ssl.enabled.protocols": ","}, r"kafka\.ssl\.enabled\.protocols"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, r"kafka\.ssl\.cipher\.suites.*either all of"),
        ({"ssl.cipher.suites": "RC4-MD5"}, r"kafka\.ssl\.cipher\.suites.*RC4-MD5"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_MD5_9"}, r"kafka\.ssl\.cipher\.suites.*OpenSSL does not have it"),
        (
            {"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.3"},
            r"kafka\.ssl\.cipher\.suites: none of the suites belongs to",
        ),
        (
            {"ssl.keystore.certificate.chain": "PEM"},
            r"ssl\.keystore\.certificate\.chain cannot be given in place",
        ),
        ({"ssl.engine.factory.class": "com.X"}, r"kafka\.ssl\.engine\.factory\.class names a Java class"),
    ],
)
def test_a_tls_setting_that_cannot_be_kept_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        ClientConfig.from_options(TLS | options)


@pytest.mark.parametrize("name", ["ssl.truststore.location", "sasl.jaas.config", "sasl.mechanism", "ssl.key.password",
                                  "sasl.login.callback.handler.class", "ssl.engine.factory.class"])  # fmt: skip
def test_security_settings_without_a_protocol_are_refused_as_all_would_go_in_clear(name: str) -> None:
    with pytest.raises(OptionError, match=rf"kafka\.{name} has no effect .* unencrypted") as caught:
        ClientConfig.from_options({"bootstrap.servers": "h:1", name: "a-secret"})
    assert "a-secret" not in str(caught.value)


def test_security_settings_beside_an_explicit_protocol_without_them_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ClientConfig.from_options(
        {"bootstrap.servers": "h:1", "security.protocol": "PLAINTEXT", "ssl.key.password": "a-secret"}
    )
    assert "kafka.ssl.key.password has no effect with kafka.security.protocol=PLAINTEXT" in caplog.text
    assert "a-secret" not in caplog.text


def test_the_same_holds_for_tls_beside_a_login_in_clear(caplog: pytest.LogCaptureFixture) -> None:
    ClientConfig.from_options(SASL | {"sasl.jaas.config": JAAS, "ssl.truststore.location": "/trust.pem"})
    assert "kafka.ssl.truststore.location has no effect with kafka.security.protocol=SASL_PLAINTEXT" in caplog.text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ssl.truststore.password", r"kafka\.ssl\.truststore\.location, the system's certificates are trusted"),
        ("ssl.keystore.password", r"kafka\.ssl\.keystore\.location, no certificate is shown"),
        ("ssl.key.password", r"kafka\.ssl\.keystore\.location, no certificate is shown"),
    ],
)
def test_the_password_of_a_store_without_its_location_is_refused(name: str, sentence: str) -> None:
    expected = rf"kafka\.{name} has no effect without {sentence}: give the location, or leave the password out"
    with pytest.raises(OptionError, match=expected) as caught:
        ClientConfig.from_options(TLS | {name: "a-secret"})
    assert "a-secret" not in str(caught.value)


def test_the_type_of_a_store_without_its_location_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ClientConfig.from_options(TLS | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "in place"})
    assert not caplog.records
    ClientConfig.from_options(TLS | {"ssl.truststore.type": "PEM"})
    assert "kafka.ssl.truststore.type has no effect without kafka.ssl.truststore.location: the system's" in caplog.text


KERBEROS = HERE | {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}


def kerberos(**entries: str) -> dict[str, str]:
    entries_text = " ".join(f'{name}="{value}"' for name, value in entries.items())
    return KERBEROS | {"sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {entries_text};"}


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (
            {"keyTab": "/secret.keytab", "principal": "me@REALM"},
            "has keyTab, which has no effect without useKeyTab=true",
        ),
        ({"useKeyTab": "true", "keyTab": "/secret.keytab"}, "has useKeyTab=true, which needs keyTab and principal"),
        ({"ticketCache": "/home/me/cache"}, "has ticketCache, which has no effect without useTicketCache=true"),
        (
            {"useKeyTab": "true", "useTicketCache": "True"},
            "has useKeyTab=true and useTicketCache=true: keep one of them",
        ),
        ({"username": "somebody", "password": "a-secret"}, r".*GSSAPI takes none: set kafka\.sasl\.mechanism to PLAIN"),
    ],
)
def test_a_login_of_jaas_that_kerberos_would_not_follow_here_is_refused(entries: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=rf"option kafka\.sasl\.jaas\.config {sentence}") as caught:
        ClientConfig.from_options(kerberos(**entries))
    assert not [value for value in entries.values() if value != "true" and value in str(caught.value)]


def test_a_login_of_jaas_names_the_service_the_principal_and_the_place_of_its_ticket() -> None:
    def login(options: dict[str, str]) -> KerberosLogin:
        return ClientConfig.from_options(options).security.kerberos

    jaas_options = kerberos(useTicketCache="true", useKeyTab="false", serviceName="broker")
    assert login(KERBEROS) == KerberosLogin()
    assert (
        login(jaas_options)
        == login(KERBEROS | {"sasl.kerberos.service.name": "broker"})
        == KerberosLogin(service="broker")
    )
    assert login(jaas_options | {"sasl.kerberos.service.name": "broker"}) == KerberosLogin(service="broker")
    with pytest.raises(OptionError, match="name two services"):
        login(jaas_options | {"sasl.kerberos.service.name": "kafka"})
    keytab = kerberos(useKeyTab="true", storeKey="true", keyTab="/me.keytab", principal="me@REALM")
    assert login(keytab) == KerberosLogin(principal="me@REALM", keytab="/me.keytab")
    assert login(kerberos(useTicketCache="true", ticketCache="/cache")) == KerberosLogin(cache="/cache")
