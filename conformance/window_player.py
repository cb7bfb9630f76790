"""One window of a vector's stream through the operator of the vectorised windows.

Rule: the operator is built anew from its blobs before each step.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from conformance.driver import DrivenOperator
from conformance.stream_words import StreamConfig, table_of
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

    def __init__(self, stream: StreamConfig, panes: Panes) -> None:
        self._stream = stream
        self._plan = WindowPlan(
            schema=pa.schema(stream.fields),
            by=("key",) if stream.is_keyed else (),
            window=stream.session or SlidingWindow(stream.size_ms, stream.slide_ms, stream.offset_ms),
            aggregates=stream.aggregates,
            lateness_ms=0 if panes.is_shut else stream.lateness_ms,
            early=panes.early,
            accumulating=stream.accumulating,
            late=LatePolicy(stream.config.get("late_policy", "drop")),
        )
        self._state: dict[str, bytes] = {}
        self._now_ms, self._top = stream.config.get("clock_start", 0), 0
        self.late_rows = 0

    def step(self, step: dict) -> list[dict]:
        """See Player."""
        operator = DrivenOperator(self._plan, self._state)
        results = self._compute_results(operator, step)
        self.late_rows = operator.late_rows
        self._state = operator.snapshot()
        return [self._stream.as_answer(row) for row in results.to_pylist()]

    def _compute_results(self, operator: DrivenOperator, step: dict) -> pa.Table:
        do, rows = step["do"], self._stream.rows(step)
        self._now_ms = step.get("ms", self._now_ms) or 0
        if rows:
            results = operator.take(combine_rows(self._plan, table_of(rows, self._plan.schema)), self._now_ms)
            if do != "message":
                return results
            self._top = max(self._top, step["ts"])
            return pa.concat_tables([results, operator.advance(self._top)])
        if do == "timers":
            return pa.concat_tables([operator.clock(self._now_ms), operator.advance(self._now_ms)])
        if do == "watermark":
            return operator.complete() if step["ts"] == "max" else operator.advance(step["ts"])
        if do == "clock":
            return operator.clock(self._now_ms)
        return {"end": operator.complete, "nothing": self._plan.result_schema.empty_table}[do]()
