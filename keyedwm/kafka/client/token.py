"""OAUTHBEARER: the user's function that gives tokens, named in an option and imported in every process.

Rule: options are checked without the Kafka client, which takes longer to load than they do: see `token_provider`.
"""

from __future__ import annotations

from collections.abc import Callable

from keyedwm.config import user_functions

PROPERTY = "sasl.oauthbearer.token.provider"


def find(name: str) -> Callable[[], str]:
    """Find the function `module:attribute` in this process; raises OptionError saying what of it is missing."""
    return user_functions.find(f"kafka.{PROPERTY}", name)
