"""Users' functions that options name as `module:function`, imported in every process that needs them.

Rule: no message contains a bearer token that such a function returns, nor the text of an error that the function
raises: the text may contain a secret, too.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# RFC 6750: the characters that may follow `Bearer`; others would break the format of the login.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


def find(option: str, name: str) -> Callable[[], Any]:
    """Import the function `module:attribute`; raises OptionError, which names the part that is missing.

    option: the option that names the function, for errors.
    """
    if not _NAME.fullmatch(name):
        raise wrong(option, name, "module:function is expected")
    module_name, _, path = name.partition(":")
    try:
        attribute: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise OptionError(
            f"option {option}: module {module_name!r} cannot be imported ({error}); "
            "it must be installed on the driver and on every worker"
        ) from error
    for part in path.split("."):
        if not hasattr(attribute, part):
            raise OptionError(f"option {option}: module {module_name!r} has no {path!r}; module:function is expected")
        attribute = getattr(attribute, part)
    if not callable(attribute):
        raise OptionError(
            f"option {option}: {name!r} is of type {type(attribute).__name__}; a function without arguments is expected"
        )
    return attribute


class NoTokenError(Exception):
    """The function gave no token; the caller puts this text into its own error."""


def is_token(text: object) -> bool:
    """Whether something can be sent as a bearer token."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def ask_for_token(who: str, give: Callable[[], Any]) -> str:
    """Return a new token from `give`; raises NoTokenError. who: the name of `give` in the error."""
    try:
        token = give()
    except Exception as error:  # noqa: BLE001 (the user's code; whatever it is, its words may hold a secret)
        raise NoTokenError(f"{who} raised {type(error).__name__}") from None
    if not is_token(token):
        raise NoTokenError(f"{who} gave no token: a bearer token as a string is expected")
    return str(token)
