"""The one check of what callers hand over as a frame."""

from __future__ import annotations

from keyedwm.core.errors import OptionError


def require_frame(df: object, asked_by: str) -> None:
    """Raise OptionError unless `df` has columns. asked_by: the function, in the message."""
    if not hasattr(df, "columns"):
        raise OptionError(f"{asked_by}: df={df!r}: a frame is expected; load() a reader")
