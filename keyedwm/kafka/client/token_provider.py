"""The provider that asks the user's function for a token at each login.

Rule: a token stands in no message, and neither do the words of an error that the function raises: they are not ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import kafka.errors as wire_errors
from kafka.net.sasl.oauth import AbstractTokenProvider

from keyedwm.config import user_functions
from keyedwm.kafka.client.properties import OAUTH_PROVIDER

# RFC 6750: what may stand behind `Bearer`; anything else would break the login's own framing.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class TokenError(wire_errors.SaslAuthenticationFailedError):
    """The user's function gave no token; final, as a refused login is."""


class Provider(AbstractTokenProvider):
    """The object that kafka-python asks at every login, and again before a session ends (KIP-368)."""

    def __init__(self, name: str, extensions: Mapping[str, str]) -> None:
        super().__init__()
        self._name, self._extensions = name, dict(extensions)
        self._give = user_functions.find(f"kafka.{OAUTH_PROVIDER}", name)

    def __str__(self) -> str:
        return f"the token provider {self._name}"

    def token(self) -> str:
        """Return a token of this moment; raises TokenError."""
        try:
            token = self._give()
        except Exception as error:  # noqa: BLE001 (the user's code; whatever it is, its words may hold a secret)
            raise TokenError(f"{self} raised {type(error).__name__}") from None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise TokenError(f"{self} gave no token: a bearer token as a string is expected")
        return token

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the login (KIP-342)."""
        return self._extensions
