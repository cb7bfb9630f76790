"""Java's key and trust stores, written by Java's own tool, against a broker that asks for certificates."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyedwm.core.errors import OptionError, UnavailableError
from keyedwm.kafka.client.config import ClientConfig
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.testing.java import find_java
from keyedwm.testing.local import LocalBroker, local_broker
from tests.secured import KEY_PASSWORD, certificates, openssl

pytestmark = pytest.mark.starts

STORE_PASSWORD = "of-the-store"  # noqa: S105 (a test's)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """keys.p12 and trust.p12 in PKCS #12, keys.jks and trust.jks in Java's old format; bare.p12 without encryption."""
    home = tmp_path_factory.mktemp("stores")
    certificates(home)
    (home / "keytool").symlink_to(Path(os.path.realpath(find_java())).with_name("keytool"))
    openssl(f"pkcs12 -export -in both.pem -out keys.p12 -passout pass:{STORE_PASSWORD} -name client", home)
    keytool(home, "-importcert -noprompt -file cert.pem -keystore trust.p12 -storetype PKCS12 -alias broker")
    for name in ("keys", "trust"):
        keytool(home, f"-importkeystore -noprompt -srckeystore {name}.p12 -destkeystore {name}.jks -deststoretype JKS "
                f"-srcstorepass {STORE_PASSWORD}")  # fmt: skip
    return home


def keytool(home: Path, command: str) -> None:
    password = "-deststorepass" if "-importkeystore" in command else "-storepass"
    subprocess.run(
        [home / "keytool", *command.split(), password, STORE_PASSWORD], cwd=home, check=True, capture_output=True
    )


@pytest.fixture(scope="module")
def asking(stores: Path) -> Iterator[LocalBroker]:
    """A broker that lets nobody in without a certificate it trusts."""
    extra = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(stores / "both.pem"),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(stores / "cert.pem"),
    }  # fmt: skip
    with local_broker(extra=extra) as running:
        yield running


@pytest.fixture
def connect(asking: LocalBroker, stores: Path) -> Callable[..., None]:
    """Connect with these stores and ask something; properties by name, written with underscores."""

    def to(within_ms: int = 120_000, **settings: str) -> None:
        client_settings = {
            name.replace("_", "."): value.replace("HOME", str(stores)) for name, value in settings.items()
        }
        base = {"bootstrap.servers": asking.bootstrap, "security.protocol": "SSL"}
        cluster = Cluster.connect(ClientConfig.from_options(base | client_settings), timeout_ms=within_ms)
        assert isinstance(cluster.topics(), tuple)
        cluster.close()

    return to


TRUST = {"ssl_truststore_location": "HOME/trust.p12", "ssl_truststore_password": STORE_PASSWORD}
KEYS = {"ssl_keystore_location": "HOME/keys.p12", "ssl_keystore_password": STORE_PASSWORD}
PEM_KEYS = {
    "ssl_keystore_location": "HOME/locked.pem", "ssl_keystore_type": "PEM", "ssl_key_password": KEY_PASSWORD,
}  # fmt: skip


@pytest.mark.parametrize("kind", [{}, {"ssl_truststore_type": "PKCS12", "ssl_keystore_type": "pkcs12"}])
def test_pkcs12_stores_open_whether_called_so_or_by_javas_default(connect: Callable[..., None], kind: dict) -> None:
    connect(**TRUST, **KEYS, **kind)


def test_a_trust_store_goes_with_a_pem_key(connect: Callable[..., None]) -> None:
    connect(**TRUST, **PEM_KEYS)


def test_without_a_key_the_broker_lets_nobody_in(connect: Callable[..., None]) -> None:
    with pytest.raises(UnavailableError, match=r"(?i)certificate|closed|handshake"):  # the last try may be cut short
        connect(within_ms=6_000, **TRUST)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ssl_keystore_password": "wrong"}, r"keys.p12' cannot be opened .* with kafka\.ssl\.keystore\.password: "),
        ({"ssl_truststore_password": "wrong"}, r"trust.p12' cannot be opened .* kafka\.ssl\.truststore\.password: "),
        ({"ssl_keystore_location": "HOME/keys.jks"}, r"keystore\.location: .*old format; convert it: keytool -import"),
        ({"ssl_truststore_location": "HOME/trust.jks"}, r"truststore\.location: .*old format; convert it: keytool -im"),
        ({"ssl_keystore_location": "HOME/trust.p12"}, "it holds no private key with its certificate"),
        ({"ssl_truststore_location": "HOME/keys.p12"}, "it holds no trusted certificates"),
        ({"ssl_keystore_location": "HOME/both.pem"}, r"keystore\.type: .*: set PEM for .*; JKS is the default"),
        ({"ssl_truststore_type": "PEM"}, r"truststore\.type: 'PEM' is wrong; .*trust.p12 is no PEM file"),
        ({"ssl_keystore_type": "BKS"}, r"keystore\.type: 'BKS' is wrong; one of PEM, PKCS12, JKS"),
        ({"ssl_keystore_location": "HOME/none.p12"}, r"keystore\.location: .* a readable file is expected"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_sentence(
    connect: Callable[..., None], change: dict[str, str], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence) as caught:
        connect(**(TRUST | KEYS | change))
    assert STORE_PASSWORD not in str(caught.value)


def test_no_key_stays_on_the_disk(
    connect: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    connect(**TRUST, **KEYS)
    assert list(tmp_path.iterdir()) == []
