"""Key and trust stores with the wrong content: one sentence says what was found and what would be right."""

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
    made = tmp_path_factory.mktemp("pem")
    certificates(made)
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other-key.pem -out other.pem", made)
    openssl("x509 -in cert.pem -outform DER -out cert.der", made)
    openssl("pkey -in key.pem -outform DER -out key.der", made)
    openssl(f"pkcs8 -topk8 -in key.pem -outform DER -passout pass:{KEY_PASSWORD} -out locked.der", made)
    openssl("req -new -key key.pem -subj /CN=asked -out request.pem", made)
    key, cert, other = (((made / f"{name}.pem").read_text()) for name in ("key", "cert", "other"))
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
        (made / name).write_text(text)
    return made


def refused(**options: str) -> str:
    given = {name.replace("_", "."): value for name, value in options.items()}
    with pytest.raises(OptionError) as caught:
        ClientConfig.from_options(
            {"bootstrap.servers": "h:1", "security.protocol": "SSL", **given}
        ).security.as_kafka_python()
    said = str(caught.value)
    assert "\n" not in said
    assert "[SSL" not in said, "OpenSSL's words"
    return said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("key.pem", "it holds 1 private key only, certificates of authorities are expected"),
        ("request.pem", "it holds 1 certificate request only, certificates of authorities are expected"),
        ("words.pem", "it holds nothing that begins with -----BEGIN, certificates of authorities are expected"),
        ("damaged.pem", "certificate 2 of 2 is damaged: it is no base64"),
        ("no-certificate.pem", "what stands as certificate 1 of 1 is none"),
        ("cert.der", "it is one certificate in DER; convert it: openssl x509 -inform DER -in OLD -out NEW, and give"),
        ("key.der", "it is a private key in DER; convert it: openssl pkey -inform DER"),
    ],
)
def test_a_trust_store_with_wrong_content_is_told_by_what_it_holds(home: Path, name: str, said: str) -> None:
    path = str(home / name)
    found = refused(ssl_truststore_location=path, ssl_truststore_type="PEM")
    assert found.startswith(f"option {TRUST}: {path!r} is wrong; {said}")


@pytest.mark.parametrize(
    ("name", "password", "said"),
    [
        ("cert.pem", None, "it holds 1 certificate only, a private key and its certificate are expected"),
        ("key.pem", None, "it holds 1 private key only, a private key and its certificate are expected"),
        ("locked-key.pem", RIGHT, "it holds 1 encrypted private key only, a private key and its certificate"),
        ("locked.pem", None, "the private key is encrypted, and kafka.ssl.key.password is not set: give its password"),
        ("locked.pem", "of-another", "the private key is encrypted, and kafka.ssl.key.password does not open it"),
        ("mismatch.pem", None, "its first certificate is not the private key's own: that is expected first"),
        ("cut.pem", None, "certificate 1 of 1 has no end"),
        ("damaged.pem", None, "certificate 2 of 2 is damaged: it is no base64"),
        ("damaged-key.pem", None, "the private key is damaged"),
        ("cert.der", None, "it is one certificate in DER; convert it"),
        ("locked.der", RIGHT, "it is an encrypted private key in DER; convert it"),
    ],
)
def test_a_key_store_with_wrong_content_is_told_by_what_it_holds(
    home: Path, name: str, password: str | None, said: str
) -> None:
    path = str(home / name)
    password = KEY_PASSWORD if password == RIGHT else password  # names of tests are the same in every process
    secret = {} if password is None else {"ssl_key_password": password}
    found = refused(ssl_keystore_location=path, ssl_keystore_type="PEM", **secret)
    assert found.startswith(f"option {KEYS}: {path!r} is wrong; {said}")
    assert password is None or password not in found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("key.pem", "it holds 1 private key only"),
        ("one-line.pem", "certificate 1 of 1 has a backslash and an n where its lines should end"),
        ("words.pem", "it holds nothing that begins with -----BEGIN"),
    ],
)
def test_what_is_given_in_place_of_certificates_is_not_shown(home: Path, name: str, said: str) -> None:
    content = (home / name).read_text()
    found = refused(ssl_truststore_certificates=content)
    assert found.startswith(f"option kafka.ssl.truststore.certificates: the value given is wrong; {said}")
    assert not [line for line in content.splitlines() if line in found]


def test_a_der_certificate_under_javas_default_type_is_told_as_such(home: Path) -> None:
    assert "it is one certificate in DER" in refused(ssl_truststore_location=str(home / "cert.der"))


def test_sound_stores_are_taken(home: Path) -> None:
    for name, password in (("both.pem", {}), ("locked.pem", {"ssl.key.password": KEY_PASSWORD})):
        assert ClientConfig.from_options(
            {"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.keystore.type": "PEM",
             "ssl.keystore.location": str(home / name), "ssl.truststore.type": "PEM",
             "ssl.truststore.location": str(home / "cert.pem")} | password
        ).security.as_kafka_python()["ssl_context"]  # fmt: skip


def test_a_store_that_went_away_is_named(home: Path, tmp_path: Path) -> None:
    path = shutil.copy(home / "cert.pem", tmp_path / "cert.pem")
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    config = ClientConfig.from_options({"bootstrap.servers": "h:1", "security.protocol": "SSL", **given})
    path.unlink()
    with pytest.raises(OptionError, match=r"kafka\.ssl\.truststore\.location: .* it cannot be read here: No such file"):
        config.security.as_kafka_python()
