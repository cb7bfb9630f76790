"""What windows are among the lines that decide whose state it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keyedwm.operators.messages.grid import Grid
from keyedwm.operators.messages.on_demand import OnDemandWindow
from keyedwm.operators.messages.windows import (
    HoppingWindow,
    KeyRowWindow,
    RowWindow,
    SessionKind,
    SessionRowWindow,
    WindowKind,
)
from keyedwm.operators.plan_checks import FARTHEST_MS

OF_KEYS = "rows of each key"
OF_SESSIONS = "sessions"
# So many lines of windows, names of columns and the record come first, and a column may be called as a mark is.
_NAMED = 7


def line_of(kind: WindowKind) -> str:
    """Return what a plan says of its windows first."""
    if isinstance(kind, SessionKind):
        return str(kind.window)
    grid = grid_of(kind)
    return str(kind) if grid is None or isinstance(kind, OnDemandWindow) else str(grid)


def marks_of(kind: WindowKind) -> list[str]:
    """Return the marks of a plan with such windows."""
    if isinstance(kind, SessionRowWindow):
        return [OF_KEYS, str(kind)]
    return [OF_KEYS] if isinstance(kind, KeyRowWindow) else [OF_SESSIONS] if isinstance(kind, SessionKind) else []


def grid_of(kind: WindowKind) -> Grid | None:
    """Return how windows lie, those of sessions by rows as one without an end; None for sessions of event time."""
    if isinstance(kind, SessionRowWindow):
        return Grid(FARTHEST_MS, FARTHEST_MS, 0, 0)
    if isinstance(kind, (RowWindow, KeyRowWindow)):
        return Grid(kind.size, kind.step, 0, 0)
    return kind.grid() if isinstance(kind, (HoppingWindow, OnDemandWindow)) else None


def is_marked(told: Mapping[str, Any], mark: str) -> bool:
    """Return whether a plan has a mark; told: of a store, or of a side of a join, which has no names in its lines."""
    lines = told["store"]
    return mark in (lines[_NAMED:] if len(lines) > _NAMED else lines)
