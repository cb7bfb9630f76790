"""The provider that asks the user's function for a token at each login."""

from __future__ import annotations

from collections.abc import Mapping

import kafka.errors as wire_errors
from kafka.net.sasl.oauth import AbstractTokenProvider

from keyedwm.config import user_functions
from keyedwm.config.user_functions import NoTokenError, ask_for_token
from keyedwm.kafka.client.properties import OAUTH_PROVIDER


class TokenError(wire_errors.SaslAuthenticationFailedError):
    """The user's function gave no token; final, as a rejected login is."""


class Provider(AbstractTokenProvider):
    """The object that kafka-python asks at every login, and again before a session ends (KIP-368)."""

    def __init__(self, name: str, extensions: Mapping[str, str]) -> None:
        super().__init__()
        self._name, self._extensions = name, dict(extensions)
        self._give = user_functions.find(f"kafka.{OAUTH_PROVIDER}", name)

    def __str__(self) -> str:
        return f"the token provider {self._name}"

    def token(self) -> str:
        """Return a new token; raises TokenError."""
        try:
            return ask_for_token(str(self), self._give)
        except NoTokenError as error:
            raise TokenError(str(error)) from None

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the login (KIP-342)."""
        return self._extensions
