"""What key columns are called in listings of windows: a key may be called as any other column of a listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keyedwm.operators.names import HIDDEN


def key_column(number: int) -> str:
    """Return what a by column is called in listings."""
    return f"{HIDDEN}key{number}"


def key_columns(told: Mapping[str, Any]) -> dict[str, str]:
    """Return what by columns are called in listings → their names, but for the channel's, which every row has."""
    # Of a join of sessions, its own columns tell of messages otherwise.
    channel = told.get("columns", told["record"])[:2]
    return {key_column(number): name for number, name in enumerate(told["by"]) if name not in channel}


def shown_names(told: Mapping[str, Any], listed: Sequence[str]) -> dict[str, str]:
    """Return the same with the names that are shown; listed: the other columns, which keep theirs."""
    return {column: shown_name(name, listed) for column, name in key_columns(told).items()}


def shown_name(key: str, listed: Sequence[str]) -> str:
    """Return what a key column is called beside these columns."""
    return f"key_{key}" if key.lower() in listed else key
