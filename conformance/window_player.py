"""One window of a vector's stream through the operator of the vectorised windows.

Rule: the operator is built anew from its blobs before each step.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from conformance.driver import DrivenOperator
from conformance.stream_words import Told, table_of
from conformance.trigger_plans import Panes
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SlidingWindow, WindowPlan


class Player(Protocol):
    """Plays one window of a vector, a step at a time."""

    late_rows: int

    def step(self, step: dict) -> list[dict]:
        """What a step gives, in the words of a vector; `late_rows` says how many of its rows were late."""


class WindowPlayer:
    """Sliding windows and sessions out of partials."""

    def __init__(self, told: Told, panes: Panes) -> None:
        self._told = told
        self._plan = WindowPlan(
            schema=pa.schema(told.fields),
            by=("key",) if told.is_keyed else (),
            window=told.session or SlidingWindow(told.size_ms, told.slide_ms, told.offset_ms),
            aggregates=told.aggregates,
            lateness_ms=0 if panes.is_shut else told.lateness_ms,
            early=panes.early,
            accumulating=told.accumulating,
            late=LatePolicy(told.config.get("late_policy", "drop")),
        )
        self._state: dict[str, bytes] = {}
        self._now_ms, self._top = told.config.get("clock_start", 0), 0
        self.late_rows = 0

    def step(self, step: dict) -> list[dict]:
        """See Player."""
        operator = DrivenOperator(self._plan, self._state)
        made = self._made(operator, step)
        self.late_rows = operator.late_rows
        self._state = operator.snapshot()
        return [self._told.shown(row) for row in made.to_pylist()]

    def _made(self, operator: DrivenOperator, step: dict) -> pa.Table:
        do, rows = step["do"], self._told.rows(step)
        self._now_ms = step.get("ms", self._now_ms) or 0
        if rows:
            made = operator.take(combine_rows(self._plan, table_of(rows, self._plan.schema)), self._now_ms)
            if do != "message":
                return made
            self._top = max(self._top, step["ts"])
            return pa.concat_tables([made, operator.advance(self._top)])
        if do == "timers":
            return pa.concat_tables([operator.clock(self._now_ms), operator.advance(self._now_ms)])
        if do == "watermark":
            return operator.complete() if step["ts"] == "max" else operator.advance(step["ts"])
        if do == "clock":
            return operator.clock(self._now_ms)
        return {"end": operator.complete, "nothing": self._plan.result_schema.empty_table}[do]()
