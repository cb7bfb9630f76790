"""How many rows were dropped, as vectors count them: once for each window that a row would have come into.

Rule: the windows of a stream are dealt out to tumbling operators, one for each place on which windows of this size can
stand. Each emits its late rows with the window that is gone; those windows count that the vector has.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import pyarrow as pa

from conformance.driver import DrivenOperator
from conformance.stream_words import StreamConfig, table_of
from conformance.trigger_plans import Panes
from keyedwm.core.window_rules import LatePolicy
from keyedwm.operators.aggregates.functions import count
from keyedwm.operators.frames.partials import combine_rows
from keyedwm.operators.frames.plan import SessionWindow, SlidingWindow, WindowPlan
from keyedwm.operators.results import PANE, WINDOW

_MOST = 1_000


class DroppedRows:
    """Counts what one window of a vector drops."""

    def __init__(self, stream: StreamConfig, panes: Panes) -> None:
        self._stream = stream
        self._operators = [
            (plan, DrivenOperator(plan))
            for window in self._windows()
            for plan in [
                WindowPlan(
                    schema=pa.schema(stream.fields),
                    by=("key",) if stream.is_keyed else (),
                    window=window,
                    aggregates=(("rows", count()),),
                    lateness_ms=0 if panes.is_done else stream.lateness_ms,
                    late=LatePolicy.EMIT,
                )
            ]
        ]
        self.total = 0

    def step(self, step: dict) -> None:
        """Take a step; `total` says how many were dropped so far."""
        rows = self._stream.rows(step)
        for plan, operator in self._operators:
            if rows:
                late_rows = operator.take(combine_rows(plan, table_of(rows, plan.schema)), 0)
                self.total += sum(self._count_dropped(row) for row in late_rows.to_pylist())
            elif step["do"] == "watermark" and step["ts"] != "max":
                operator.advance(step["ts"])

    def _windows(self) -> Iterator[SlidingWindow | SessionWindow]:
        stream = self._stream
        if stream.session is not None:
            yield stream.session
            return
        beat_ms = gcd(stream.size_ms, stream.slide_ms)
        places = range(stream.offset_ms % beat_ms, stream.size_ms, beat_ms)
        if len(places) > _MOST:
            raise ValueError(f"windows stand on {len(places)} places")
        for offset_ms in places:
            yield SlidingWindow(stream.size_ms, stream.size_ms, offset_ms)

    def _count_dropped(self, row: dict) -> int:
        if row[PANE]["timing"] != "expired":
            return 0
        start_ms = round(row[WINDOW]["start"].timestamp() * 1000)
        is_ours = self._stream.session is not None or (start_ms - self._stream.offset_ms) % self._stream.slide_ms == 0
        return row["rows"] if is_ours else 0
