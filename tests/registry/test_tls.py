"""A registry behind TLS: whom the client trusts, and how it shows itself."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from keyedwm.core.errors import UnavailableError
from keyedwm.registry.answers import RegistryAccessError
from tests.registry.conftest import Connect
from tests.secured import KEY_PASSWORD, certificates
from tests.support.fake_registry import FakeRegistry, fake_registry

STORE = "ssl_truststore_location"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the certificates lie."""
    directory = tmp_path_factory.mktemp("certificates")
    certificates(directory)
    return directory


@pytest.fixture(params=[False, True], ids=["tls", "mtls"])
def secured_registry(request: pytest.FixtureRequest, home: Path) -> Iterator[FakeRegistry]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "both.pem")
    if request.param:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(home / "cert.pem")
    with fake_registry(context) as running:
        running.add("s", '"string"')
        yield running


def test_a_trusted_registry_answers_who_shows_its_certificate(
    secured_registry: FakeRegistry, connect: Connect, home: Path
) -> None:
    trust = {STORE: str(home / "cert.pem"), "ssl_truststore_type": "PEM"}
    key = {"ssl_keystore_location": str(home / "locked.pem"), "ssl_keystore_type": "PEM"}
    registry = connect(secured_registry.url, **trust, **key, ssl_key_password=KEY_PASSWORD)
    assert registry.schema(1).text == '"string"'


def test_a_certificate_that_is_not_trusted_is_final_and_says_what_to_set(
    secured_registry: FakeRegistry, connect: Connect
) -> None:
    with pytest.raises(RegistryAccessError, match=r"not trusted by the system's certificates: self.signed certificate"):
        connect(secured_registry.url).schema(1)


@pytest.mark.parametrize("secured_registry", [True], indirect=True, ids=["mtls"])
def test_a_client_without_the_certificate_that_is_asked_for_gets_no_answer(
    secured_registry: FakeRegistry, connect: Connect, home: Path
) -> None:
    registry = connect(
        secured_registry.url, ssl_truststore_location=str(home / "cert.pem"), ssl_truststore_type="PEM",
        timeout="2 seconds",
    )  # fmt: skip
    with pytest.raises(UnavailableError, match="gave no answer about schema 1"):
        registry.schema(1)
