"""The TLS versions and cipher suites that a connection may use: `ssl.enabled.protocols` and `ssl.cipher.suites`.

Rule: a limit that Python's `ssl` cannot enforce is an error; it is never ignored.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError

_PROTOCOLS, _SUITES = "ssl.enabled.protocols", "ssl.cipher.suites"
_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
# OpenSSL's suites of TLS 1.3; Python offers all of them or, with TLS 1.2 only, none.
_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_IANA = re.compile(r"TLS_(?:(?P<exchange>[A-Z0-9_]+)_)?WITH_(?P<cipher>[A-Z0-9_]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsLimits:
    """The oldest and newest version, and OpenSSL's names of the TLS 1.2 suites; None for OpenSSL's default suites."""

    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    suites: tuple[str, ...] | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], prefix: str) -> TlsLimits:
        """Read the two properties; raises OptionError for a version or a suite that is not available.

        prefix: the part of the options' names before `ssl.`, with its dot; for errors.
        """
        protocols = prefix + _PROTOCOLS
        versions = [_version(protocols, name) for name in _names(properties.get(_PROTOCOLS, "TLSv1.2,TLSv1.3"))]
        if not versions:
            raise wrong(protocols, properties[_PROTOCOLS], "TLSv1.2, TLSv1.3 or both are expected")
        limits = cls(oldest=min(versions), newest=max(versions))
        suites = _names(properties.get(_SUITES, ""))
        return limits._with_suites(suites, prefix) if suites else limits

    def apply(self, context: ssl.SSLContext) -> None:
        """Limit a context."""
        context.minimum_version, context.maximum_version = self.oldest, self.newest
        if self.suites:
            context.set_ciphers(":".join(self.suites))

    def _with_suites(self, names: tuple[str, ...], prefix: str) -> TlsLimits:
        option = prefix + _SUITES
        newer = _TLS_1_3.intersection(names)
        if newer and newer != _TLS_1_3 and self.newest is ssl.TLSVersion.TLSv1_3:
            raise wrong(
                option, ",".join(names), f"either all of {', '.join(sorted(_TLS_1_3))} (TLS 1.3) or none are expected"
            )
        older = tuple(_openssl_name(option, name) for name in names if name not in _TLS_1_3)
        oldest = self.oldest if older else ssl.TLSVersion.TLSv1_3
        newest = self.newest if newer else ssl.TLSVersion.TLSv1_2
        if oldest > newest or oldest > self.newest or newest < self.oldest:
            raise OptionError(f"option {option}: none of the suites belongs to the versions of {prefix}{_PROTOCOLS}")
        limits = TlsLimits(oldest=oldest, newest=newest, suites=older or None)
        for name, suite in zip((name for name in names if name not in _TLS_1_3), older, strict=True):
            _check_suite(option, name, suite)
        return limits


def _names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _version(option: str, name: str) -> ssl.TLSVersion:
    if name.upper() not in _VERSIONS:
        raise wrong(option, name, "TLSv1.2 or TLSv1.3 is expected: older versions are broken")
    return _VERSIONS[name.upper()]


def _openssl_name(option: str, name: str) -> str:
    """Turn Java's name of a suite of TLS 1.2 into OpenSSL's.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 becomes ECDHE-RSA-AES128-GCM-SHA256.
    """
    match = _IANA.fullmatch(name)
    if match is None:
        raise wrong(option, name, "names as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 are expected")
    cipher = match["cipher"].replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    exchange = "" if match["exchange"] in {None, "RSA"} else f"{match['exchange']}_"
    return f"{exchange}{cipher}".replace("_", "-")


def _check_suite(option: str, name: str, suite: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(suite)
    except ssl.SSLError:
        raise wrong(option, name, "this OpenSSL does not have it") from None
