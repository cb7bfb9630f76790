"""TLS and SASL: from the Java client's properties to kafka-python's settings.

Rule: secrets live in fields that no repr prints, and no message quotes them.
"""

from __future__ import annotations

import enum
import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keyedwm.config import user_functions
from keyedwm.config.tls import Tls
from keyedwm.config.validation import choice
from keyedwm.core.errors import OptionError
from keyedwm.kafka.client.kerberos_login import KerberosLogin
from keyedwm.kafka.client.properties import OAUTH_PROVIDER

if TYPE_CHECKING:
    from keyedwm.kafka.client.token_provider import Provider

_EXTENSION = "extension_"
# A user who sets one of these wants encryption or a login; other properties, such as ssl.protocol, only tune it.
_MEANS_TLS = ("ssl.truststore.", "ssl.keystore.", "ssl.key.", "ssl.enabled.", "ssl.cipher.", "ssl.endpoint.",
              "ssl.engine.")  # fmt: skip
_MSK_IAM = "AWS_MSK_IAM"
_MEANS_LOGIN = ("sasl.jaas.", "sasl.mechanism", "sasl.oauthbearer.", "sasl.kerberos.service.", "sasl.login.callback.",
                "sasl.login.class", "sasl.client.callback.")  # fmt: skip
_log = logging.getLogger(__name__)


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
    """The mechanisms of Kafka's `sasl.mechanism` that this client supports."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    GSSAPI = "GSSAPI"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def settings_option(self) -> str:
        """The option that cures a rejected login."""
        if self is Mechanism.GSSAPI:
            return "kafka.sasl.kerberos.service.name"
        return f"kafka.{OAUTH_PROVIDER}" if self is Mechanism.OAUTHBEARER else "kafka.sasl.jaas.config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How to encrypt and how to log in; `from_properties` checks it."""

    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: Mechanism = Mechanism.GSSAPI
    mechanism_is_set: bool = True
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    kerberos: KerberosLogin = field(default_factory=KerberosLogin)
    token_provider: str | None = None
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: Tls = field(default_factory=Tls)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """Read the `security.*`, `sasl.*` and `ssl.*` properties; raises OptionError for a wrong or missing one."""
        protocol = choice("kafka.security.protocol", properties.get("security.protocol", "PLAINTEXT"), Protocol)
        _check_used(properties, protocol)
        settings: dict[str, Any] = {"protocol": protocol}
        if protocol.tls:
            settings["tls"] = Tls.from_properties(properties, "kafka.")
        if protocol.sasl:
            settings |= _sasl(properties)
        return cls(**settings)

    def as_kafka_python(self) -> dict[str, Any]:
        """Settings of kafka-python's connection manager."""
        return {
            "security_protocol": self.protocol.value,
            "sasl_mechanism": self.mechanism.value if self.protocol.sasl else None,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
            "sasl_kerberos_service_name": self.kerberos,
            "sasl_oauth_token_provider": self._provider(),
            "ssl_context": self.tls.context() if self.protocol.tls else None,
        }

    def _provider(self) -> Provider | None:
        if self.token_provider is None:
            return None
        from keyedwm.kafka.client.token_provider import Provider

        return Provider(self.token_provider, dict(self.extensions))


def _check_used(properties: Mapping[str, str], protocol: Protocol) -> None:
    """Raise OptionError for settings of TLS or a login without effect; only warn if the user set the protocol."""
    unused = sorted(
        name
        for name in properties
        if (name.startswith(_MEANS_TLS) and not protocol.tls) or (name.startswith(_MEANS_LOGIN) and not protocol.sasl)
    )
    if not unused:
        return
    problem = f"option kafka.{unused[0]} has no effect with kafka.security.protocol={protocol.value}"
    if "security.protocol" not in properties:
        raise OptionError(
            f"{problem}, the default, which sends everything unencrypted and without a login: "
            "set kafka.security.protocol to SSL, SASL_SSL or SASL_PLAINTEXT"
        )
    _log.warning("%s", problem)


def _sasl(properties: Mapping[str, str]) -> dict[str, Any]:
    if properties.get("sasl.mechanism", "").strip().upper() == _MSK_IAM:
        raise OptionError(
            f"option kafka.sasl.mechanism: {_MSK_IAM} is a class of Java; MSK takes the same IAM role by OAUTHBEARER: "
            "set kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.oauthbearer.token.provider=module:function, where "
            "the function returns a token of the package aws-msk-iam-sasl-signer-python "
            "(docs/how-to/tls-and-sasl.md#amazon-msk-with-iam)"
        )
    mechanism = choice("kafka.sasl.mechanism", properties.get("sasl.mechanism", "GSSAPI"), Mechanism)
    settings: dict[str, Any] = {"mechanism": mechanism, "mechanism_is_set": "sasl.mechanism" in properties}
    if mechanism is Mechanism.GSSAPI:
        login = _jaas(properties["sasl.jaas.config"]) if "sasl.jaas.config" in properties else {}
        return settings | {"kerberos": KerberosLogin.of(properties.get("sasl.kerberos.service.name"), login)}
    if mechanism is Mechanism.OAUTHBEARER:
        return settings | _oauth(properties)
    login = _jaas(properties.get("sasl.jaas.config"))
    for key in ("username", "password"):
        if key not in login:
            raise OptionError(
                f"option kafka.sasl.jaas.config has no {key}: {mechanism.value} needs username and password"
            )
        settings[key] = login[key]
    return settings


def _oauth(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the provider, and the extensions, which Java's client also reads from the JAAS entry."""
    name = properties.get(OAUTH_PROVIDER)
    if name is None:
        raise OptionError(
            f"option kafka.{OAUTH_PROVIDER} is missing: OAUTHBEARER needs module:function, a function without "
            "arguments that returns a token (Java's callback handlers and token endpoints have no effect here)"
        )
    user_functions.find(f"kafka.{OAUTH_PROVIDER}", name)
    login = _jaas(properties["sasl.jaas.config"]) if "sasl.jaas.config" in properties else {}
    extensions = {key.removeprefix(_EXTENSION): value for key, value in login.items() if key.startswith(_EXTENSION)}
    return {"token_provider": name, "extensions": tuple(sorted(extensions.items()))}


def _jaas(text: str | None) -> dict[str, str]:
    """The settings of one JAAS entry: `module required name="value" ... ;`."""
    right = 'one entry is expected: CLASS required username="..." password="...";'
    if text is None:
        raise OptionError(f"option kafka.sasl.jaas.config is missing: {right}")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";=")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError as unclosed:
        raise OptionError(f"option kafka.sasl.jaas.config is not closed by a quote: {right}") from unclosed
    if (
        len(tokens) < 3
        or tokens[-1] != ";"
        or tokens[1].lower() not in {"required", "requisite", "sufficient", "optional"}
    ):
        raise OptionError(f"option kafka.sasl.jaas.config cannot be read: {right}")
    body = tokens[2:-1]
    if len(body) % 3 or any(body[i] != "=" for i in range(1, len(body), 3)):
        raise OptionError(f"option kafka.sasl.jaas.config cannot be read: {right}")
    return {body[i]: body[i + 2] for i in range(0, len(body), 3)}
