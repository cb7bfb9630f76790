"""SASL logins that end at once, with the reason, if the server violates the protocol.

Rule: no message contains a server's text, which may repeat a password or a token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Iterable
from typing import Any

import kafka.errors as wire_errors
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.oauth import SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from keyedwm.kafka.client.errors import LoginError
from keyedwm.kafka.client.kerberos import Kerberos
from keyedwm.kafka.client.security import Mechanism

# The minimum of RFC 7677; with fewer, an eavesdropper can guess the password by trial.
LEAST_ITERATIONS = 4_096
MOST_ITERATIONS = 1_000_000
_MOST_DIGITS = 10


def known_mechanisms(names: Iterable[str]) -> list[str]:
    """Return the mechanisms of this client among those that a broker names."""
    known = {one.value for one in Mechanism}
    return sorted(known.intersection(names))


class Scram(SaslMechanismScram):
    """SCRAM that rejects too few iterations, and a server that cannot prove that it knows the password."""

    def receive(self, auth_bytes: bytes) -> bool:
        """Process the server's next message; raises LoginError."""
        try:
            if self._state == 0:
                _check_iterations(auth_bytes)
                self._scram_client.process_server_first_message(auth_bytes)
            else:
                self._check_signature(auth_bytes)
        except (ValueError, KeyError, binascii.Error) as error:
            raise LoginError(f"the broker's {self.mechanism} message cannot be read ({type(error).__name__})") from None
        self._state += 1
        return bool(self.is_done())

    def _check_signature(self, message: bytes) -> None:
        signature = _attributes(message)[b"v"]
        if not hmac.compare_digest(base64.b64decode(signature), self._scram_client.server_signature or b""):
            raise LoginError(
                f"the broker's {self.mechanism} signature is wrong, so it does not know the password: "
                "check that kafka.bootstrap.servers leads to your own cluster"
            )


class OAuth(SaslMechanismOAuth):
    """OAUTHBEARER that ends when the server rejects it; the server's text, which may repeat the token, is not kept."""

    def receive(self, auth_bytes: bytes) -> None:
        """Process the server's answer; raises SaslAuthenticationFailedError."""
        if auth_bytes != b"":
            raise wire_errors.SaslAuthenticationFailedError("the broker rejected the token")
        super().receive(auth_bytes)


_MECHANISMS: dict[str, Callable[..., SaslMechanism]] = {
    "PLAIN": SaslMechanismPlain,
    "SCRAM-SHA-256": Scram,
    "SCRAM-SHA-512": Scram,
    "GSSAPI": Kerberos,
    "OAUTHBEARER": OAuth,
}


def mechanism_of(config: dict[str, Any], host: str) -> SaslMechanism:
    """Return the login that a connection's configuration selects."""
    return _MECHANISMS[config["sasl_mechanism"]](host=host, **config)


def login_wait_of(config: dict[str, Any], host: str) -> str:
    """Return the name of the party that a login waits for, for the error of a wait that is too long."""
    if config["sasl_mechanism"] == "OAUTHBEARER":
        return str(config["sasl_oauth_token_provider"])
    return f"{'Kerberos' if config['sasl_mechanism'] == 'GSSAPI' else 'the login'} for {host}"


def _attributes(message: bytes) -> dict[bytes, bytes]:
    """Return the attributes of a server's message; raises LoginError for a repeated one: readers differ on it."""
    attributes: dict[bytes, bytes] = {}
    for pair in bytes(message).split(b","):
        name, value = pair.split(b"=", 1)
        if name in attributes:
            raise LoginError(
                "the broker's SCRAM message has an attribute twice, which is no SCRAM: "
                "check that kafka.bootstrap.servers leads to your own cluster"
            )
        attributes[name] = value
    return attributes


def _check_iterations(message: bytes) -> None:
    digits = _attributes(message).get(b"i", b"")
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise LoginError(f"the broker asks for SCRAM iterations by no whole number of 1 to {_MOST_DIGITS} digits")
    count = int(digits)
    if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
        raise LoginError(
            f"the broker asks for {count} SCRAM iterations, {LEAST_ITERATIONS} to {MOST_ITERATIONS} are accepted: "
            "check that kafka.bootstrap.servers leads to your own cluster, or store the password with more iterations"
        )
