"""The second stage: partials and watermarks in, panes out."""

from __future__ import annotations

from collections.abc import Mapping

from keyedwm.windows.framed import FrameOperator
from keyedwm.windows.plan import Plan


def operator_of(plan: Plan, state: Mapping[str, bytes] | None = None) -> FrameOperator:
    """Return the plan's operator, as its blobs say if there are any."""
    return FrameOperator(plan, plan.window, state or {})
