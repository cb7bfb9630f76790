"""The facts of a batch that a source of ours hands to Spark's progress, read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress

_MARK = "held_by"  # a field that only our sources report


def facts_of(source: SourceProgress) -> dict[str, Any] | None:
    """Return what a source of ours said of a batch; None for another source, or where it planned nothing."""
    try:
        told = json.loads(source.latestOffset or "null")
    except ValueError:
        return None  # another source's own format
    return told if isinstance(told, dict) and _MARK in told else None
