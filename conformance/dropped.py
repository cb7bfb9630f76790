"""How many rows were dropped, as vectors count them: once for each window that a row would have come into.

Rule: the windows of a stream are dealt out to tumbling operators, one for each place on which windows of this size can
stand. Each emits its late rows with the window that is gone; those windows count that the vector has.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import pyarrow as pa

from conformance.driver import DrivenOperator
from conformance.stream_words import Told, table_of
from conformance.trigger_plans import Panes
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.results import PANE, WINDOW

_MOST = 1_000


class Dropped:
    """Counts what one window of a vector drops."""

    def __init__(self, told: Told, panes: Panes) -> None:
        self._told = told
        self._operators = [
            (plan, DrivenOperator(plan))
            for window in self._windows()
            for plan in [
                WindowPlan(
                    schema=pa.schema(told.fields),
                    by=("key",) if told.is_keyed else (),
                    window=window,
                    aggregates=(("rows", count()),),
                    lateness_ms=0 if panes.is_done else told.lateness_ms,
                    late=LatePolicy.EMIT,
                )
            ]
        ]
        self.total = 0

    def step(self, step: dict) -> None:
        """Take a step; `total` says how many were dropped so far."""
        rows = self._told.rows(step)
        for plan, operator in self._operators:
            if rows:
                taken = operator.take(combine_rows(plan, table_of(rows, plan.schema)), 0)
                self.total += sum(self._dropped(row) for row in taken.to_pylist())
            elif step["do"] == "watermark" and step["ts"] != "max":
                operator.advance(step["ts"])

    def _windows(self) -> Iterator[SlidingWindow | SessionWindow]:
        told = self._told
        if told.session is not None:
            yield told.session
            return
        beat_ms = gcd(told.size_ms, told.slide_ms)
        places = range(told.offset_ms % beat_ms, told.size_ms, beat_ms)
        if len(places) > _MOST:
            raise ValueError(f"windows stand on {len(places)} places")
        for offset_ms in places:
            yield SlidingWindow(told.size_ms, told.size_ms, offset_ms)

    def _dropped(self, row: dict) -> int:
        if row[PANE]["timing"] != "expired":
            return 0
        start_ms = round(row[WINDOW]["start"].timestamp() * 1000)
        is_ours = self._told.session is not None or (start_ms - self._told.offset_ms) % self._told.slide_ms == 0
        return row["rows"] if is_ours else 0
