"""The second stage: partials and watermarks in, panes out."""

from __future__ import annotations

from collections.abc import Mapping

from keyedwm.windows.framed import FrameOperator
from keyedwm.windows.plan import Plan, Session
from keyedwm.windows.session_operator import SessionOperator


def operator_of(plan: Plan, state: Mapping[str, bytes] | None = None) -> FrameOperator | SessionOperator:
    """Return the plan's operator, as its blobs say if there are any; FormatError if they are another plan's."""
    if isinstance(plan.window, Session):
        return SessionOperator(plan, plan.window, state or {})
    return FrameOperator(plan, plan.window, state or {})
