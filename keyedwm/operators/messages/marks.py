"""Marks of plans among the lines that decide whose state it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_KEYS = "rows of each key"
OF_SESSIONS = "sessions"
# So many lines of windows, names of columns and the record come first, and a column may be called as a mark is.
_NAMED = 7


def is_marked(told: Mapping[str, Any], mark: str) -> bool:
    """Return whether a plan has a mark; told: of a store, or of a side of a join, which has no names in its lines."""
    lines = told["store"]
    return mark in (lines[_NAMED:] if len(lines) > _NAMED else lines)
