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
from conformance.late_rows import LateRows
from conformance.stream_words import StreamConfig
from conformance.trigger_plans import Panes

_EARLY, _LATE = "EARLY", "LATE"


@dataclass(frozen=True)
class Rules:
    """The rules for one vector. in_store: whether the operator that keeps messages plays it. times: of all rows."""

    stream: StreamConfig
    panes: Panes
    in_store: bool
    times: frozenset[int]
    late: LateRows

    @property
    def answers_late_at_watermark(self) -> bool:
        """Whether the vector tells late panes with the next watermark."""
        return self.stream.vector.get("family") == "session.lateness"

    @property
    def is_samza_session(self) -> bool:
        """Whether sessions are held until timers run."""
        return "clock" in self.stream.config and self.stream.session is not None

    def too_many(self, pane: Mapping, before: list[dict], *, ends_now: bool) -> str | None:
        """Why the product has this pane and the vector not.

        before: the panes of its window so far, also set aside. ends_now: its pane on time comes with the same step.
        """
        why = self._of_window(pane)
        if why is not None or not self.panes.is_known:
            return why or decided.NEAREST
        if self.panes.is_done and self.stream.session is not None and any(one["timing"] != _EARLY for one in before):
            return decided.GOES_ON
        if pane["timing"] == _EARLY:
            return self._early(before, ends_now=ends_now)
        return self._late(before) if pane["timing"] == _LATE else self._on_time(pane, before)

    def _of_window(self, pane: Mapping) -> str | None:
        """Why the vector has nothing of a window."""
        if self.late.holds_nothing_else(pane):
            return decided.BY_WINDOW
        if pane["start"] < 0 and self.stream.config.get("windows_before_first_event") is False:
            return decided.BEFORE_ZERO
        return None

    def _early(self, before: list[dict], *, ends_now: bool) -> str | None:
        early = self.panes.early
        if self.panes.is_once and before:
            return decided.REPEATS
        is_by_clock = "clock" in self.stream.config and early is not None and early.by_clock
        return decided.CLOCK_FIRST if ends_now and is_by_clock else None

    def _on_time(self, pane: Mapping, before: list[dict]) -> str | None:
        if self.panes.only_news and before and self._has_no_news(pane, before):
            return decided.ALWAYS
        return decided.AT_END if not self.panes.has_end or (self.panes.stops and before) else None

    def _late(self, before: list[dict]) -> str | None:
        if self.panes.is_done and before:
            return decided.GOES_ON
        if self.in_store and self.stream.lateness_ms < _span(self.stream):
            return decided.MIN_RETENTION
        comes_together = self.panes.late_goes_together and (self.panes.is_late_first or not self.in_store)
        if self.answers_late_at_watermark or not self.panes.has_end or comes_together:
            return decided.AT_ONCE
        return None

    def too_few(self, expected: Mapping, before: list[dict], passed_ms: int | None) -> str | None:
        """Why the vector has this pane, which is empty or tells nothing new, and the product not.

        passed_ms: the watermark of the step, if it has one.
        """
        config, value = self.stream.config, expected.get(self.stream.field)
        closing = str(config.get("closing", config.get("closing_behavior", "")))
        if closing.endswith("always") and expected.get("timing") == _LATE and before:
            if not self._is_over(before[-1], passed_ms):
                return None
            says_nothing = not value if not self.stream.accumulating else value == before[-1][self.stream.field]
            return decided.NO_CLOSING if says_nothing else None
        if config.get("emit_empty") and value in (0, [], None) and not before and self._stands(expected):
            return decided.NOT_EMPTY
        return None

    def differs(self, expected: Mapping, actual: Mapping, field: str, passed_ms: int | None) -> str | None:
        """Why a field of two panes that are one differs."""
        if field == "output_ts" and self.may_stand(expected):
            return decided.ROW_TIME
        if field == "last":
            if actual["last"]:
                return decided.LAST if not self.panes.is_done and not self.stream.lateness_ms else None
            ends_early = self.panes.stops or self.panes.is_late_first or not self.panes.is_known
            return decided.LAST if ends_early or self._is_over(actual, passed_ms) else None
        return None

    def together(self, values: list) -> Any:
        """The value of a pane that says what these say."""
        name = self.stream.aggregate
        if len(values) == 1:
            return values[0]
        if name == "list":
            return sorted(one for value in values for one in value)
        if name in {"sum", "count"}:
            return sum(value for value in values if value is not None)
        if name in {"min", "max"}:
            return (min if name == "min" else max)(value for value in values if value is not None)
        return values

    def _is_over(self, pane: Mapping, passed_ms: int | None) -> bool:
        """Whether the watermark of the step is past the allowed lateness of a window."""
        return passed_ms is not None and passed_ms >= pane["end"] - 1 + self.stream.lateness_ms

    def _has_no_news(self, pane: Mapping, before: list[dict]) -> bool:
        value = pane[self.stream.field]
        return not value if not self.stream.accumulating else value == before[-1][self.stream.field]

    def _stands(self, window: Mapping) -> bool:
        """Whether it is one of the windows."""
        if self.stream.session is not None:
            return False
        size_ms, slide_ms = self.stream.size_ms, self.stream.slide_ms
        on_grid = (window["start"] - self.stream.offset_ms) % slide_ms == 0
        return on_grid and window["end"] - window["start"] == size_ms

    def may_stand(self, expected: Mapping) -> bool:
        """Whether another event time of a result can be meant: that of a row of its window, or its end."""
        if self.stream.config.get("output_time", "eow") not in {"earliest", "latest"} or "end" not in expected:
            return False
        ends = {expected["end"] - 1, expected["end"] - 1 + self.stream.lateness_ms}
        rows = {time for time in self.times if expected["start"] <= time < expected["end"]}
        return expected["output_ts"] in rows | ends


def _span(stream: StreamConfig) -> int:
    return stream.session.gap_ms if stream.session else stream.size_ms
