"""The kinds of window over kept messages, and which of them a plan has."""

from __future__ import annotations

from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.plan import StorePlan
from keyedwm.operators.messages.shape import MessageShape
from keyedwm.operators.messages.shapes.grid import GridShape, RowGridShape
from keyedwm.operators.messages.shapes.on_demand import OnDemandShape
from keyedwm.operators.messages.shapes.rows_of_key import KeyRowsShape
from keyedwm.operators.messages.shapes.session import SessionShape
from keyedwm.operators.messages.shapes.session_rows import RowSessionShape
from keyedwm.operators.messages.windows import (
    HoppingWindow,
    KeyRowWindow,
    RowWindow,
    SessionKind,
    SessionRowWindow,
    WindowKind,
)

SHAPES: dict[type[WindowKind], type[MessageShape]] = {
    HoppingWindow: GridShape,
    RowWindow: RowGridShape,
    KeyRowWindow: KeyRowsShape,
    SessionKind: SessionShape,
    SessionRowWindow: RowSessionShape,
    OnDemandWindow: OnDemandShape,
}


def shape_of(plan: StorePlan) -> type[MessageShape]:
    """Return the shape of a plan's windows."""
    return SHAPES[type(plan.kind)]
