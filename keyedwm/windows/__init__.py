"""Windows, joins and their plans for programs without Spark: the public names of `keyedwm.operators`.

Rule: an operator loads when its name is asked for; the workers of Spark import none of this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyedwm.operators.messages.join.window_join import WindowJoin
    from keyedwm.operators.messages.window_operator import WindowOperator

__all__ = ["WindowJoin", "WindowOperator"]

_HOMES = {
    "WindowJoin": "keyedwm.operators.messages.join.window_join",
    "WindowOperator": "keyedwm.operators.messages.window_operator",
}


def __getattr__(name: str) -> Any:
    """Load an operator from the module that defines it."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
