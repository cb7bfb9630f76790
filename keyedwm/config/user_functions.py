"""Functions of the user's that options name as `module:function`, imported in every process that needs them.

Rule: a bearer token that such a function returns stands in no message, and neither does the text of an error that it
raises: both may hold a secret.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# RFC 6750: what may stand behind `Bearer`; anything else would break the login's own framing.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


def find(option: str, name: str) -> Callable[[], Any]:
    """Find the function `module:attribute` in this process; raises OptionError saying what of it is missing.

    option: the option that names it, for errors.
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
