"""Instants as text for people: messages, progress reports and statistics."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def iso_text(time_ms: int) -> str | None:
    """Return an instant in ISO 8601, UTC; None outside of the years 1 to 9999."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def time_text(time_ms: int | None) -> str:
    """Return an instant in ISO 8601, or as epoch milliseconds outside of the years 1 to 9999; `none` for None."""
    return "none" if time_ms is None else iso_text(time_ms) or f"{time_ms} ms"


def instant_text(time_ms: int) -> str:
    """Return an instant as epoch milliseconds, and within the years 1 to 9999 also in ISO 8601."""
    iso = iso_text(time_ms)
    return f"{time_ms} ms" if iso is None else f"{time_ms} ms ({iso})"


def instant_ms(text: str) -> int:
    """Return the epoch milliseconds of a text: `N ms`, or ISO 8601 as `iso_text` writes it."""
    if text.endswith(" ms"):
        return int(text.removesuffix(" ms"))
    since = datetime.fromisoformat(text.replace("Z", "+00:00")) - _EPOCH
    return since // timedelta(milliseconds=1)
