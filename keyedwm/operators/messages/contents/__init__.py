"""The contents of windows over kept messages, by the windows of `messages/windows.py` and the files beside it."""

from __future__ import annotations

from keyedwm.operators.messages.contents import (  # noqa: F401 (a new kind of window is a line here)
    grid,
    on_demand,
    rows_of_key,
    session,
    session_rows,
)
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.window_content import StoreContent

SHAPES = StoreContent.of_windows
KINDS = {kind.called: kind for kind in SHAPES}


def content_of(plan: StorePlan) -> type[StoreContent]:
    """Return the class of the content of a plan's windows."""
    return SHAPES[type(plan.kind)]
