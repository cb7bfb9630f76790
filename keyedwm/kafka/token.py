"""OAUTHBEARER: the user's function that gives tokens, named in an option and found anew in every process.

Rule: a token stands in no message, and neither do the words of an error that the function raises: they are not ours.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping

import kafka.errors as wire_errors
from kafka.net.sasl.oauth import AbstractTokenProvider

from keyedwm.core.errors import OptionError

PROPERTY = "sasl.oauthbearer.token.provider"
_OPTION = f"option kafka.{PROPERTY}"
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# RFC 6750: what may stand behind `Bearer`; anything else would break the login's own framing.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class TokenError(wire_errors.SaslAuthenticationFailedError):
    """The user's function gave no token; final, as a refused login is."""


class Provider(AbstractTokenProvider):
    """What kafka-python asks at every login, and again before a session ends (KIP-368)."""

    def __init__(self, name: str, extensions: Mapping[str, str]) -> None:
        super().__init__()
        self._name, self._give, self._extensions = name, find(name), dict(extensions)

    def token(self) -> str:
        """Return a token of this moment; raises TokenError."""
        try:
            token = self._give()
        except Exception as error:  # noqa: BLE001 (the user's code; whatever it is, its words may hold a secret)
            raise TokenError(f"the token provider {self._name} raised {type(error).__name__}") from None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise TokenError(f"the token provider {self._name} gave no token: a bearer token as a string is wanted")
        return token

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the login (KIP-342)."""
        return self._extensions


def find(name: str) -> Callable[[], str]:
    """Find the function `module:attribute` in this process; raises OptionError saying what of it is missing."""
    if not _NAME.fullmatch(name):
        raise OptionError(f"{_OPTION}: {name!r} is wrong; module:function is wanted")
    module_name, _, path = name.partition(":")
    try:
        found = importlib.import_module(module_name)
    except ImportError as error:
        raise OptionError(
            f"{_OPTION}: module {module_name!r} cannot be imported ({error}); "
            "it must be installed on the driver and on every worker"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{_OPTION}: module {module_name!r} has no {path!r}; module:function is wanted")
        found = getattr(found, part)
    if not callable(found):
        raise OptionError(
            f"{_OPTION}: {name!r} is of type {type(found).__name__}; a function without arguments is wanted"
        )
    return found
