"""The one line that says where a query stands: its watermark, who holds it and why, and the backlog.

Rule: a line comes at the first batch, once in an interval, and when the watermark has stood for a minute or moves
again. Which partition is the slowest changes from batch to batch where all is well, so that alone makes no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyedwm.arrow.instants import instant_ms

_STANDS_S = 60.0
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass
class _Seen:
    """What is known of a source. moved: key → the watermark, and when it was seen first."""

    told_s: float | None = None
    stood: bool = False
    moved: dict[str, tuple[str | None, float]] = field(default_factory=dict)


class StatusLines:
    """Decides of each source of each query when its line is due. every_s: the interval."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._sources: dict[tuple[str, int], _Seen] = {}

    def line(self, query: str, source: int, facts: Mapping[str, Any], now_s: float) -> str | None:
        """Return the line after a batch; None if none is due. facts: as `source_progress` gives them."""
        seen = self._sources.setdefault((query, source), _Seen())
        for key, watermark in facts["watermark"].items():
            if key not in seen.moved or seen.moved[key][0] != watermark:
                seen.moved[key] = watermark, now_s
        stands = any(now_s - since_s >= _STANDS_S for _, since_s in seen.moved.values())
        is_due = seen.told_s is None or now_s - seen.told_s >= self._every_s
        if not is_due and stands == seen.stood:
            return None
        seen.told_s, seen.stood = now_s, stands
        subject = f"query {query}" + (f", source {source}" if source else "")
        since_s = {key: moved_s for key, (_, moved_s) in seen.moved.items()}
        return f"{subject}: " + "; ".join([*_watermarks(facts, since_s, now_s), *_rest(facts)])

    def forget(self, query: str) -> None:
        """Begin anew with a query that ended."""
        self._sources = {place: seen for place, seen in self._sources.items() if place[0] != query}


def _watermarks(facts: Mapping[str, Any], since_s: Mapping[str, float], now_s: float) -> Iterator[str]:
    for key, watermark in facts["watermark"].items():
        of_key = f" of key {key}" if len(facts["watermark"]) > 1 else ""
        if watermark is None:
            told = f"no watermark{of_key} yet"
        else:
            delay_s = now_s - instant_ms(watermark) / 1_000
            side = "behind" if delay_s >= 0 else "ahead of"
            told = f"watermark{of_key} {watermark}, {_about(abs(delay_s))} {side} the clock"
        stood_s = now_s - since_s[key]
        if stood_s >= _STANDS_S:
            told += f", unmoved for {_about(stood_s)}"
        holders = facts["held_by"].get(key)
        if holders:
            first, *others = holders.split("; ")
            count = sum(facts["causes"].get(key, {}).values()) - 1
            told += f", held by {first}" + (f" and {count} more" if others else "")
        yield told


def _rest(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"backlog {facts['backlog']}"
    if facts["idle"]:
        yield f"idle {facts['idle']} of {sum(map(len, facts['offsets'].values()))}"
    if "coordinator" in facts:
        yield facts["coordinator"]


def _about(span_s: float) -> str:
    """Return a length of time in its largest unit of which there are two."""
    for name, unit_s in _UNITS:
        if span_s >= 2 * unit_s:
            return f"{span_s / unit_s:.0f} {name}"
    return f"{span_s:.0f} s"
