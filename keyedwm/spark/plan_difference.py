"""What a checkpoint's plan has that the plan of the query has not, in words, for the refusal of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from keyedwm.windows.given import shown

# Of plans that tell more than what decides: the line by line text that does.
_DECISIVE = ("store", "window_join", "process")
_MOST = 3


def difference(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    """Return what tells two plans apart, "" where what is noted of them does not. old: None in notes of 0.2.0."""
    if old is None:
        return ""
    before, now = Counter(_lines(old)), Counter(_lines(new))
    gone, come = (list(only.elements()) for only in (before - now, now - before))
    return f"it has {_listed(gone)} where this plan has {_listed(come)}" if gone or come else ""


def _lines(told: Any) -> Iterator[str]:
    """Yield a plan as it is noted, a line for each setting and column."""
    decisive = next((told[name] for name in _DECISIVE if name in told), told)
    values = decisive.values() if isinstance(decisive, Mapping) else [decisive]
    for value in values:
        for one in value if isinstance(value, list) else [value]:
            yield " ".join(_words(one))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _words(one)
    else:
        yield str(value)


def _listed(lines: list[str]) -> str:
    if not lines:
        return "nothing"
    more = f" and {len(lines) - _MOST} more" if len(lines) > _MOST else ""
    return ", ".join(map(shown, lines[:_MOST])) + more
