"""Windows over frames and over messages that are kept, vectorised; no Spark here."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keyedwm.windows.store.join.window_join import WindowJoin
    from keyedwm.windows.store.window_operator import WindowOperator

__all__ = ["WindowJoin", "WindowOperator"]


def __getattr__(name: str) -> Any:
    """Load an operator when it is asked for: workers import this package and never need it."""
    if name == "WindowOperator":
        from keyedwm.windows.store.window_operator import WindowOperator

        return WindowOperator
    if name == "WindowJoin":
        from keyedwm.windows.store.join.window_join import WindowJoin

        return WindowJoin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
