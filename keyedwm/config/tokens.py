"""Bearer tokens that a user's function gives: for Kafka's OAUTHBEARER, and for a schema registry.

Rule: a token stands in no message, and neither do the words of an error that the function raises: they are not ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# RFC 6750: what may stand behind `Bearer`; anything else would break the login's own framing.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class NoTokenError(Exception):
    """The function gave no token; the caller raises an error of its own with these words."""


def is_token(text: object) -> bool:
    """Whether something can be sent as a bearer token."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def ask_for_token(who: str, give: Callable[[], Any]) -> str:
    """Return a token of this moment; raises NoTokenError. who: names the function in it."""
    try:
        token = give()
    except Exception as error:  # noqa: BLE001 (the user's code; whatever it is, its words may hold a secret)
        raise NoTokenError(f"{who} raised {type(error).__name__}") from None
    if not is_token(token):
        raise NoTokenError(f"{who} gave no token: a bearer token as a string is expected")
    return str(token)
