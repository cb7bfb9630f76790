"""Which differences between a run of the product and a vector the rules of the design make, found by the config.

Rule: a difference is excused only if it is exactly the one that a rule makes. A pane too many is set aside, and where
panes hold what is new, its value is part of the next pane that the vector tells of the same window. A pane that is
missing must be one of those set aside, or empty. No value is excused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance import decided
from conformance.stream_words import PER_INPUT, Told
from conformance.trigger_plans import Panes

_EARLY, _ON_TIME, _LATE = "EARLY", "ON_TIME", "LATE"


@dataclass(frozen=True)
class Rules:
    """The rules for one vector. in_store: whether the operator that keeps messages plays it."""

    told: Told
    panes: Panes
    in_store: bool
    first_ms: int | None

    @property
    def answers_late_at_watermark(self) -> bool:
        """Whether the vector tells late panes with the next watermark."""
        return self.told.vector.get("family") == "session.lateness"

    @property
    def is_samza_session(self) -> bool:
        """Whether sessions are held until timers run."""
        return "clock" in self.told.config and self.told.session is not None

    def too_many(self, pane: Mapping, before: list[dict]) -> str | None:
        """Why the product has this pane and the vector not; before: the panes of its window so far, also set aside."""
        config, panes, timing = self.told.config, self.panes, pane["timing"]
        if config.get("windows_before_first_event") is False and self._is_before_first(pane):
            return decided.BEFORE_ZERO
        if not panes.is_known:
            return decided.NEAREST
        if timing == _EARLY and panes.is_once and before:
            return decided.REPEATS
        if timing == _ON_TIME:
            if panes.only_news and before and self._has_no_news(pane, before):
                return decided.ALWAYS
            if not panes.has_end or (panes.is_once and before):
                return decided.AT_END
        if timing == _LATE:
            if self.in_store and self.told.lateness_ms < _span(self.told):
                return decided.KEPT
            if self.answers_late_at_watermark or not panes.has_end or panes.is_late_together:
                return decided.AT_ONCE
        return None

    def too_few(self, wanted: Mapping, before: list[dict]) -> str | None:
        """Why the vector has this pane, which is empty or tells nothing new, and the product not."""
        config, value = self.told.config, wanted.get(self.told.field)
        if config.get("closing") == "always" and wanted.get("timing") == _LATE and before:
            says_nothing = not value if not self.told.accumulating else value == before[-1][self.told.field]
            return decided.NO_CLOSING if says_nothing else None
        if config.get("emit_empty") and value in (0, [], None) and not before and self._stands(wanted):
            return decided.NOT_EMPTY
        return None

    def differs(self, wanted: Mapping, made: Mapping, field: str) -> str | None:
        """Why a field of two panes that are one differs."""
        config = self.told.config
        if field == "output_ts" and self._may_stand(wanted):
            return decided.ROW_TIME
        if field == "last":
            if made["last"]:
                return decided.LAST if not self.panes.is_done and not self.told.lateness_ms else None
            ends_early = self.panes.is_once or not self.panes.is_known
            is_over = made["timing"] == _LATE and config.get("closing") is None
            return decided.LAST if ends_early or is_over else None
        return None

    def together(self, values: list) -> Any:
        """The value of a pane that says what these say."""
        name = self.told.aggregate
        if len(values) == 1:
            return values[0]
        if name == "list":
            return sorted(one for value in values for one in value)
        if name in {"sum", "count"}:
            return sum(value for value in values if value is not None)
        if name in {"min", "max"}:
            return (min if name == "min" else max)(value for value in values if value is not None)
        return None if name == PER_INPUT else values

    def _has_no_news(self, pane: Mapping, before: list[dict]) -> bool:
        value = pane[self.told.field]
        return not value if not self.told.accumulating else value == before[-1][self.told.field]

    def _is_before_first(self, pane: Mapping) -> bool:
        return pane["start"] < 0 or (self.first_ms is not None and pane["start"] < self.first_ms)

    def _stands(self, window: Mapping) -> bool:
        """Whether it is one of the windows."""
        size_ms, slide_ms = self.told.size_ms, self.told.slide_ms
        on_grid = (window["start"] - self.told.offset_ms) % slide_ms == 0
        return on_grid and window["end"] - window["start"] == size_ms

    def _may_stand(self, wanted: Mapping) -> bool:
        """Whether another event time of a result can be meant: that of a row in it, or the end of its window."""
        if self.told.config.get("output_time", "eow") not in {"earliest", "latest"} or "end" not in wanted:
            return False
        ends = {wanted["end"] - 1, wanted["end"] - 1 + self.told.lateness_ms}
        values = wanted.get("values")
        if values is not None:  # of a bundle, where a row's value is its event time
            rows = {max(values)} if self.told.config["output_time"] == "latest" and values else set(values)
            return wanted["output_ts"] in rows | ends
        return wanted["start"] <= wanted["output_ts"] <= max(ends)


def _span(told: Told) -> int:
    return told.session.gap_ms if told.session else told.size_ms
