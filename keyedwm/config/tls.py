"""TLS of a client of Kafka or a schema registry: the Java client's `ssl.*` properties, for Python's `ssl`.

Rule: a setting that would have no effect raises an error or a warning, and no message contains a password.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from keyedwm.config.keystores import TRUSTED, Keystore, refusal
from keyedwm.config.tls_limits import TlsLimits
from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError

_OF_A_STORE = {"truststore": ("ssl.truststore.password",), "keystore": ("ssl.keystore.password", "ssl.key.password")}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificates that a client trusts and shows, and its TLS versions; `from_properties` checks them.

    prefix: the part of the options' names before `ssl.`, with its dot; for errors.
    """

    prefix: str = ""
    trust: Keystore | None = None
    trusted_pem: str | None = None
    keys: Keystore | None = None
    check_hostname: bool = True
    limits: TlsLimits = field(default_factory=TlsLimits)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], prefix: str) -> Tls:
        """Read the `ssl.*` properties; raises OptionError for a wrong property, or one without effect."""
        algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
        if algorithm.lower() not in {"", "https"}:
            raise wrong(f"{prefix}ssl.endpoint.identification.algorithm", algorithm, "https or nothing is expected")
        for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
            if name in properties:
                raise OptionError(
                    f"option {prefix}{name} cannot be given in place: give {prefix}ssl.keystore.location, a PEM file"
                )
        if "ssl.engine.factory.class" in properties:
            raise OptionError(
                f"option {prefix}ssl.engine.factory.class names a Java class, which cannot be used here: leave it out, "
                f"and give the stores by {prefix}ssl.truststore.* and {prefix}ssl.keystore.*"
            )
        _check_located(properties, prefix)
        return cls(
            prefix=prefix,
            trust=Keystore.from_properties(properties, "truststore", prefix),
            trusted_pem=properties.get("ssl.truststore.certificates"),
            keys=Keystore.from_properties(properties, "keystore", prefix),
            check_hostname=bool(algorithm),
            limits=TlsLimits.from_properties(properties, prefix),
        )

    def context(self) -> ssl.SSLContext:
        """Build the context of a client's connections; raises OptionError for stores that cannot be opened."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.limits.apply(context)
        context.check_hostname = self.check_hostname
        if self.trust is not None:
            self.trust.trust(context)
        if self.trusted_pem is not None:
            self._trust_pem(context, self.trusted_pem)
        if self.trust is None and self.trusted_pem is None:
            context.load_default_certs()
        if self.keys is not None:
            self.keys.identify(context)
        return context

    def _trust_pem(self, context: ssl.SSLContext, pem: str) -> None:
        try:
            context.load_verify_locations(cadata=pem)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"option {self.prefix}ssl.truststore.certificates: the value given is wrong; {refusal(error)}{TRUSTED}"
            ) from error


def _check_located(properties: Mapping[str, str], prefix: str) -> None:
    """Raise OptionError for a password without its store's location, as Java's client does; warn of such a type."""
    for side, names in _OF_A_STORE.items():
        if f"ssl.{side}.location" in properties:
            continue
        instead = "the system's certificates are trusted" if side == "truststore" else "no certificate is shown"
        for name in names:
            if name in properties:
                raise OptionError(
                    f"option {prefix}{name} has no effect without {prefix}ssl.{side}.location, {instead}: "
                    "give the location, or leave the password out"
                )
        if f"ssl.{side}.type" in properties and f"ssl.{side}.certificates" not in properties:
            problem = f"option {prefix}ssl.{side}.type has no effect without {prefix}ssl.{side}.location"
            _log.warning("%s: %s", problem, instead)
