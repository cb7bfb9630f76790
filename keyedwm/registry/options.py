"""The options `schemaRegistry.*`, parsed once on the driver into a config that travels to the executors.

Rule: a wrong value is an error when the options are read. Secrets live in fields that no repr prints. `env:` and
`file:` are read here, on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from keyedwm.config import user_functions
from keyedwm.config.secrets import value_of
from keyedwm.config.tls import Tls
from keyedwm.config.user_functions import is_token
from keyedwm.config.validation import duration_ms, is_host_name, wrong
from keyedwm.core.errors import OptionError
from keyedwm.core.text import nearest

PREFIX = "schemaRegistry."
# Java's `ssl.*` properties of stores, the server's name, protocols and ciphers.
_TLS = (
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "ssl.cipher.suites",
)  # fmt: skip
_SECRETS = ("ssl.truststore.password", "ssl.keystore.password", "ssl.key.password")
OPTIONS = tuple(
    PREFIX + name for name in ("url", "user", "password", "token", "token.provider", "cache", "timeout", *_TLS)
)
# Confluent's name → the option, or the options.
INSTEAD: Mapping[str, str] = MappingProxyType({
    "schema.registry.url": "schemaRegistry.url",
    "schemaregistryurl": "schemaRegistry.url",
    "schemaregistry.basic.auth.user.info": "schemaRegistry.user and schemaRegistry.password",
    "basic.auth.user.info": "schemaRegistry.user and schemaRegistry.password",
    "schema.registry.basic.auth.user.info": "schemaRegistry.user and schemaRegistry.password",
    "bearer.auth.token": "schemaRegistry.token",
})  # fmt: skip
NO_CACHE = "none"
_EXAMPLE = "an address such as https://registry:8081 is expected, or several with commas between"
_LONGEST_MS = 24 * 3_600_000
_HTTPS_PORT, _HTTP_PORT = 443, 80
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a registry is. path: without a slash at its end; empty if there is none."""

    tls: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """How to reach a registry; build it with `from_options`.

    token_provider: `module:function`, asked for a token at each request. cache: a directory that processes and hosts
    may share, `none` for no cache on disk, None for a private one of this user. timeout_ms: the limit of one question,
    with all addresses and repetitions.
    """

    addresses: tuple[Address, ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_provider: str | None = None
    tls: Tls = field(default_factory=Tls)
    cache: str | None = None
    timeout_ms: int = 30_000

    def __str__(self) -> str:
        return ", ".join(map(str, self.addresses))

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> RegistryConfig:
        """Read the options that begin with `schemaRegistry.`, in any case; other options are ignored.

        Raises OptionError naming the option, the value (never a secret one) and what would be right.
        """
        settings = {name.lower()[len(PREFIX) :]: value for name, value in options.items() if is_of_registry(name)}
        _refuse_unknown(settings)
        if "url" not in settings:
            raise OptionError(f"option {PREFIX}url is missing: {_EXAMPLE}")
        addresses = _addresses(settings["url"])
        tls = {name: _secret(name, value) if name in _SECRETS else value for name, value in settings.items()
               if name.startswith("ssl.")}  # fmt: skip
        if tls and not any(address.tls for address in addresses):
            raise OptionError(
                f"option {PREFIX}{min(tls)} has no effect with {PREFIX}url, which is not https: give the https address"
            )
        config = cls(
            addresses=addresses,
            tls=Tls.from_properties(tls, PREFIX),
            cache=_cache(settings.get("cache")),
            timeout_ms=_timeout_ms(settings.get("timeout", "30 seconds")),
            **_login(settings),
        )
        if (config.password or config.token or config.token_provider) and not all(a.tls for a in addresses):
            _log.warning("the login of the schema registry is sent unencrypted, as %surl is not https", PREFIX)
        return config


def is_of_registry(name: str) -> bool:
    """Whether an option says how to reach a registry."""
    return name.lower().startswith(PREFIX.lower())


def _refuse_unknown(settings: Mapping[str, str]) -> None:
    known = {name.lower()[len(PREFIX) :]: name for name in OPTIONS}
    for name in sorted(settings.keys() - known.keys()):
        near = nearest(name, known)
        suggestion = INSTEAD.get(f"{PREFIX.lower()}{name}") or (known[near] if near else None)
        raise OptionError(
            f"option {PREFIX}{name} is unknown: "
            + (f"did you mean {suggestion}?" if suggestion else f"there are {', '.join(OPTIONS[:7])} and {PREFIX}ssl.*")
        )


def _addresses(value: str) -> tuple[Address, ...]:
    addresses = tuple(_address(part.strip()) for part in value.split(",") if part.strip())
    if not addresses:
        raise wrong(f"{PREFIX}url", value, _EXAMPLE)
    return addresses


def _address(text: str) -> Address:
    option = f"{PREFIX}url"
    if "@" in text:  # no host has an @; the message does not repeat a password before it
        raise OptionError(
            f"option {option}: an address holds an @: give a login by {PREFIX}user and {PREFIX}password, or by "
            f"{PREFIX}token"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # a bracket that is not closed, a port that is no number
        raise wrong(option, text, _EXAMPLE) from None
    if parts.query or parts.fragment:  # either may contain a key, so the message does not repeat it
        raise OptionError(f"option {option}: an address with a ? or a # is given; {_EXAMPLE}")
    if parts.scheme not in {"http", "https"} or not host or not is_host_name(host) or port == 0:
        raise wrong(option, text, _EXAMPLE)
    if not text.isascii() or not text.isprintable() or " " in text:
        raise wrong(option, text, _EXAMPLE)
    tls = parts.scheme == "https"
    return Address(tls, host, port or (_HTTPS_PORT if tls else _HTTP_PORT), parts.path.rstrip("/"))


def _login(settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the fields of the one login that the options set, all None for no login."""
    user, password, token = (
        _secret(name, settings[name]) if name in settings else None for name in ("user", "password", "token")
    )
    provider = settings.get("token.provider")
    if (user is None) != (password is None):
        missing = "password" if password is None else "user"
        raise OptionError(f"option {PREFIX}{missing} is missing: {PREFIX}user and {PREFIX}password go together")
    ways = [name for name, value in (("user", user), ("token", token), ("token.provider", provider)) if value]
    if len(ways) > 1:
        raise OptionError(f"options {PREFIX}{ways[0]} and {PREFIX}{ways[1]} are two logins: give one of them")
    if user is not None and ":" in user:
        raise OptionError(f"option {PREFIX}user: a name without a colon is expected")
    if token is not None and not is_token(token):
        raise OptionError(f"option {PREFIX}token: the value given is wrong; a bearer token is expected")
    if provider is not None:
        user_functions.find(f"{PREFIX}token.provider", provider)
    return {"user": user, "password": password, "token": token, "token_provider": provider}


def _secret(name: str, value: str) -> str:
    """Return the secret that an option gives: itself, by `env:NAME` or by `file:PATH`."""
    try:
        secret = value_of(f"{PREFIX}{name}", value).decode()
    except UnicodeDecodeError:
        raise OptionError(f"option {PREFIX}{name}: the value given is no text in UTF-8") from None
    if not secret:
        raise OptionError(f"option {PREFIX}{name}: the value given is empty: leave the option out, or correct it")
    return secret


def _timeout_ms(value: str) -> int:
    timeout_ms = duration_ms(f"{PREFIX}timeout", value)
    if not 0 < timeout_ms <= _LONGEST_MS:
        raise wrong(f"{PREFIX}timeout", value, "a duration from 1 millisecond to 1 day is expected")
    return timeout_ms


def _cache(value: str | None) -> str | None:
    if not value:
        return None
    if value.strip().lower() == NO_CACHE:
        return NO_CACHE
    if "://" in value or not Path(value).is_absolute():
        raise wrong(
            f"{PREFIX}cache", value,
            f"an absolute path of a directory is expected, or {NO_CACHE}",
        )  # fmt: skip
    return value
