"""Functions of the user's that options name as `module:function`, imported in every process that needs them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

from keyedwm.config.validation import wrong
from keyedwm.core.errors import OptionError

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


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
