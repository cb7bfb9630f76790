"""TLS and SASL, from the Java client's properties to what kafka-python takes.

Rule: secrets live in fields that no repr prints, and no message quotes them.
"""

from __future__ import annotations

import enum
import shlex
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyedwm.core.errors import OptionError
from keyedwm.core.options import choice, wrong


class Protocol(enum.Enum):
    """Kafka's `security.protocol`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in {Protocol.SSL, Protocol.SASL_SSL}

    @property
    def sasl(self) -> bool:
        """Whether the client logs in."""
        return self in {Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL}


class Mechanism(enum.Enum):
    """Kafka's `sasl.mechanism`, those this client can do."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    GSSAPI = "GSSAPI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How to encrypt and how to log in; `from_properties` checks it."""

    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: Mechanism = Mechanism.GSSAPI
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    kerberos_service: str = "kafka"
    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True

    @classmethod
    def from_properties(cls, given: Mapping[str, str]) -> Security:
        """Read the `security.*`, `sasl.*` and `ssl.*` properties; raises OptionError for a wrong or missing one."""
        protocol = choice("kafka.security.protocol", given.get("security.protocol", "PLAINTEXT"), Protocol)
        settings: dict[str, Any] = {"protocol": protocol}
        if protocol.tls:
            settings |= _tls(given)
        if protocol.sasl:
            settings |= _sasl(given)
        return cls(**settings)

    def as_kafka_python(self) -> dict[str, Any]:
        """Settings of kafka-python's connection manager."""
        return {
            "security_protocol": self.protocol.value,
            "sasl_mechanism": self.mechanism.value if self.protocol.sasl else None,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
            "sasl_kerberos_service_name": self.kerberos_service,
            "ssl_context": self._ssl_context() if self.protocol.tls else None,
        }

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.check_hostname
        try:
            if self.ca_file or self.ca_pem:
                context.load_verify_locations(self.ca_file, cadata=self.ca_pem)
            else:
                context.load_default_certs()
        except (OSError, ValueError) as error:
            raise OptionError(
                f"option kafka.ssl.truststore.*: no PEM certificates can be read from it: {error}"
            ) from error
        try:
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file, password=self.key_password or "")
        except (OSError, ValueError) as error:
            raise OptionError(
                "option kafka.ssl.keystore.location: the file must hold a private key and its certificates in PEM, "
                f"and kafka.ssl.key.password its password if it has one: {error}"
            ) from error
        return context


def _tls(given: Mapping[str, str]) -> dict[str, Any]:
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in {"", "https"}:
        raise wrong("kafka.ssl.endpoint.identification.algorithm", algorithm, "https or nothing is wanted")
    if "ssl.keystore.key" in given:
        raise OptionError(
            "option kafka.ssl.keystore.key cannot be given in place: give kafka.ssl.keystore.location, a PEM file"
        )
    return {
        "ca_file": _pem(given, "truststore"),
        "ca_pem": given.get("ssl.truststore.certificates"),
        "certificate_file": _pem(given, "keystore"),
        "key_password": given.get("ssl.key.password"),
        "check_hostname": bool(algorithm),
    }


def _pem(given: Mapping[str, str], store: str) -> str | None:
    """The file of a trust or key store; Java's own formats are refused with the command that converts them."""
    name, path = f"kafka.ssl.{store}.location", given.get(f"ssl.{store}.location")
    if path is None:
        return None
    if not Path(path).is_file():
        raise wrong(name, path, "a readable file is wanted")
    kind = given.get(f"ssl.{store}.type", "JKS")
    if kind.upper() != "PEM":
        raise wrong(f"kafka.ssl.{store}.type", kind, "PEM is wanted (keytool -exportcert -rfc writes it)")
    return path


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = choice("kafka.sasl.mechanism", given.get("sasl.mechanism", "GSSAPI"), Mechanism)
    settings: dict[str, Any] = {"mechanism": mechanism}
    if mechanism is Mechanism.GSSAPI:
        settings["kerberos_service"] = given.get("sasl.kerberos.service.name", "kafka")
        return settings
    login = _jaas(given.get("sasl.jaas.config"))
    for key in ("username", "password"):
        if key not in login:
            raise OptionError(
                f"option kafka.sasl.jaas.config has no {key}: {mechanism.value} needs username and password"
            )
        settings[key] = login[key]
    return settings


def _jaas(text: str | None) -> dict[str, str]:
    """The settings of one JAAS entry: `module required name="value" ... ;`."""
    right = 'one entry is wanted: CLASS required username="..." password="...";'
    if text is None:
        raise OptionError(f"option kafka.sasl.jaas.config is missing: {right}")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";=")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as unclosed:
        raise OptionError(f"option kafka.sasl.jaas.config is not closed by a quote: {right}") from unclosed
    if (
        len(words) < 3
        or words[-1] != ";"
        or words[1].lower() not in {"required", "requisite", "sufficient", "optional"}
    ):
        raise OptionError(f"option kafka.sasl.jaas.config cannot be read: {right}")
    body = words[2:-1]
    if len(body) % 3 or any(body[i] != "=" for i in range(1, len(body), 3)):
        raise OptionError(f"option kafka.sasl.jaas.config cannot be read: {right}")
    return {body[i]: body[i + 2] for i in range(0, len(body), 3)}
