"""Key and trust stores with the wrong content: one sentence says what would be right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.config import ClientConfig
from tests.secured import KEY_PASSWORD, certificates, openssl

RIGHT = "the right one"
TRUST, KEYS = "kafka.ssl.truststore.location", "kafka.ssl.keystore.location"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `certificates`, and those that mistakes make of them."""
    directory = tmp_path_factory.mktemp("pem")
    certificates(directory)
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other-key.pem -out other.pem", directory)
    openssl("x509 -in cert.pem -outform DER -out cert.der", directory)
    openssl("pkey -in key.pem -outform DER -out key.der", directory)
    openssl(f"pkcs8 -topk8 -in key.pem -outform DER -passout pass:{KEY_PASSWORD} -out locked.der", directory)
    openssl("req -new -key key.pem -subj /CN=asked -out request.pem", directory)
    key, cert, other = (((directory / f"{name}.pem").read_text()) for name in ("key", "cert", "other"))
    body = cert.splitlines()
    mistakes = {
        "mismatch.pem": key + other + cert,
        "cut.pem": key + "\n".join(body[:-1]),
        "damaged.pem": key + cert + cert.replace(body[3], "?" + body[3][1:]),
        "no-certificate.pem": cert.replace("".join(body[1:-1]), "").replace("\n".join(body[1:-1]), "AAAA"),
        "damaged-key.pem": key.replace(key.splitlines()[2], "A" * 64) + cert,
        "words.pem": "the certificate is in the safe\n",
        "one-line.pem": cert.replace("\n", r"\n"),
    }
    for name, text in mistakes.items():
        (directory / name).write_text(text)
    return directory


def store_error(**options: str) -> str:
    settings = {name.replace("_", "."): value for name, value in options.items()}
    with pytest.raises(OptionError) as caught:
        ClientConfig.from_options(
            {"bootstrap.servers": "h:1", "security.protocol": "SSL", **settings}
        ).security.as_kafka_python()
    message = str(caught.value)
    assert "\n" not in message
    assert "_ssl.c" not in message
    return message


@pytest.mark.parametrize("name", ["key.pem", "request.pem", "words.pem", "damaged.pem", "no-certificate.pem"])
def test_a_trust_store_with_wrong_content_is_told_what_is_expected(home: Path, name: str) -> None:
    path = str(home / name)
    message = store_error(ssl_truststore_location=path, ssl_truststore_type="PEM")
    assert message.startswith(f"option {TRUST}: {path!r} is wrong; it cannot be loaded (")
    assert "): certificates of authorities in PEM are expected" in message


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("cert.pem", None), ("key.pem", None), ("locked-key.pem", RIGHT), ("locked.pem", None),
        ("locked.pem", "of-another"), ("mismatch.pem", None), ("cut.pem", None), ("damaged.pem", None),
        ("damaged-key.pem", None),
    ],
)  # fmt: skip
def test_a_key_store_with_wrong_content_is_told_what_is_expected(home: Path, name: str, password: str | None) -> None:
    path = str(home / name)
    password = KEY_PASSWORD if password == RIGHT else password  # names of tests are the same in every process
    secret = {} if password is None else {"ssl_key_password": password}
    message = store_error(ssl_keystore_location=path, ssl_keystore_type="PEM", **secret)
    assert message.startswith(f"option {KEYS}: {path!r} is wrong; it cannot be loaded (")
    assert "): a private key in PEM, opened by kafka.ssl.key.password if it is encrypted, is expected" in message
    assert password is None or password not in message


@pytest.mark.parametrize("name", ["key.pem", "one-line.pem", "words.pem"])
def test_what_is_given_in_place_of_certificates_is_not_shown(home: Path, name: str) -> None:
    content = (home / name).read_text()
    message = store_error(ssl_truststore_certificates=content)
    assert message.startswith(
        "option kafka.ssl.truststore.certificates: the value given is wrong; it cannot be loaded ("
    )
    assert "): certificates of authorities in PEM are expected" in message
    assert not [line for line in content.splitlines() if line in message]


@pytest.mark.parametrize("side", ["truststore", "keystore"])
@pytest.mark.parametrize("name", ["cert.der", "key.der", "locked.der"])
def test_a_der_file_is_no_pem_file(home: Path, side: str, name: str) -> None:
    settings = {f"ssl_{side}_location": str(home / name), f"ssl_{side}_type": "PEM"}
    assert f"{home / name} is no PEM file, but binary: PKCS12, or DER to convert" in store_error(**settings)


def test_a_der_certificate_under_javas_default_type_is_no_pkcs12_file(home: Path) -> None:
    assert "cannot be opened as a PKCS #12 file" in store_error(ssl_truststore_location=str(home / "cert.der"))


def test_sound_stores_are_taken(home: Path) -> None:
    for name, password in (("both.pem", {}), ("locked.pem", {"ssl.key.password": KEY_PASSWORD})):
        assert ClientConfig.from_options(
            {"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.keystore.type": "PEM",
             "ssl.keystore.location": str(home / name), "ssl.truststore.type": "PEM",
             "ssl.truststore.location": str(home / "cert.pem")} | password
        ).security.as_kafka_python()["ssl_context"]  # fmt: skip


def test_a_store_that_went_away_is_named(home: Path, tmp_path: Path) -> None:
    path = shutil.copy(home / "cert.pem", tmp_path / "cert.pem")
    settings = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    config = ClientConfig.from_options({"bootstrap.servers": "h:1", "security.protocol": "SSL", **settings})
    path.unlink()
    with pytest.raises(OptionError, match=r"kafka\.ssl\.truststore\.location: .* it cannot be loaded \(No such file"):
        config.security.as_kafka_python()
