"""One window of a vector's stream through the standalone operator that keeps messages.

It plays what the vectorised windows have no setting for: a step that does not divide the size, late panes together,
and windows that count rows.
Rule: the operator is put away and built anew after each step. Each row is a message of one partition, numbered as it
comes. Windows that count rows in the order of event time are given the rows that the watermark has passed, in that
order. Results of windows that count rows are fetched at watermarks and at the end, unless the vector tells some with
a row.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from conformance.stream_words import StreamConfig, table_of
from conformance.trigger_plans import Panes
from keyedwm.operators.frames.plan import SessionWindow
from keyedwm.operators.messages.plan import Reason, StorePlan
from keyedwm.operators.messages.retention import Retention
from keyedwm.operators.messages.windows import AnyWindow, hopping, hopping_key_rows, hopping_rows
from keyedwm.operators.state.store import MemoryStore
from keyedwm.windows import WindowOperator

_RECORD = [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
_KEEP = Retention(max_messages=1 << 40)


def is_counted(config: Mapping) -> bool:
    """Whether a window counts rows."""
    return str(config.get("type", "")).startswith(("count", "tuple"))


class StorePlayer:
    """Windows over messages."""

    def __init__(self, stream: StreamConfig, panes: Panes) -> None:
        self._stream, self._counts_rows = stream, is_counted(stream.window_config)
        self._plan = StorePlan(
            schema=pa.schema([*stream.fields, *_RECORD]),
            by=("key",) if stream.is_keyed else (),
            window=self._window(),
            aggregates=stream.aggregates,
            retention=_KEEP if self._counts_rows else Retention(time_ms=max(stream.lateness_ms, self._span(stream))),
            early=panes.early,
            late_rows=panes.late_rows if panes.is_late_together else None,
            late_every_ms=panes.late_ms if panes.is_late_together else None,
            accumulating=stream.accumulating,
        )
        self._store = MemoryStore()
        self._now_ms, self._offset = stream.config.get("clock_start", 0), 0
        self._waiting: list[dict] = []
        self._fetches_at_end = self._counts_rows and not any(
            step["out"] for step in stream.vector["steps"] if stream.rows(step)
        )
        self._answers: list[dict] = []
        self.late_rows = 0

    def step(self, step: dict) -> list[dict]:
        """See Player."""
        operator = WindowOperator(self._plan, self._store)
        self._now_ms = step.get("ms", self._now_ms) or 0
        rows, do = self._stream.rows(step), step["do"]
        is_over = do == "end" or step.get("ts") == "max"
        if rows:
            self._add_rows(operator, rows)
        elif is_over:
            self._pass(operator, 1 << 62)
            operator.finish()
        elif do == "watermark":
            self._pass(operator, step["ts"])
            operator.watermark(step["ts"])
        else:
            operator.timeout(self._now_ms)
            if do == "timers":
                operator.watermark(self._now_ms)
        reasons = operator.get_rejected()["reason"].to_pylist()
        self.late_rows = reasons.count(Reason.RETENTION.value)
        self._answers += [self._stream.as_answer(row) for row in operator.flush().to_pylist()]
        if self._fetches_at_end and rows:
            return []
        answers, self._answers = self._answers, []
        return answers

    def _window(self) -> AnyWindow:
        stream = self._stream
        if not self._counts_rows:
            return stream.session or hopping(stream.size_ms, stream.slide_ms, stream.offset_ms)
        return (hopping_key_rows if stream.is_keyed else hopping_rows)(stream.size_ms, stream.slide_ms)

    @staticmethod
    def _span(stream: StreamConfig) -> int:
        session: SessionWindow | None = stream.session
        return session.gap_ms if session else stream.size_ms

    def _add_rows(self, operator: WindowOperator, rows: list[dict]) -> None:
        if self._counts_rows and self._stream.config.get("order_by") in {"event-time", "event_time", "time"}:
            self._waiting += rows
        else:
            self._hand_over(operator, rows)

    def _pass(self, operator: WindowOperator, watermark_ms: int) -> None:
        """Hand over what waited for the watermark."""
        due = [row for row in self._waiting if row["event_time"] <= watermark_ms]
        self._waiting = [row for row in self._waiting if row["event_time"] > watermark_ms]
        if due:
            self._hand_over(operator, sorted(due, key=_time))

    def _hand_over(self, operator: WindowOperator, rows: list[dict]) -> None:
        messages = [row | {"topic": "t", "partition": 0, "offset": self._offset + at} for at, row in enumerate(rows)]
        self._offset += len(rows)
        operator.add_message(table_of(messages, self._plan.schema), now_ms=self._now_ms)


def windows_with(event_ms: int, stream: StreamConfig) -> list[list[int]]:
    """The windows that a row alone comes out in, in order."""
    vector = {**stream.vector, "steps": [{"do": "event", "ts": event_ms, "value": 0}, {"do": "end", "out": []}]}
    player = StorePlayer(
        StreamConfig({**vector, "config": {**stream.config, "agg": "count"}}, stream.window_config), Panes()
    )
    answers = [answer for step in vector["steps"] for answer in player.step(step)]
    return sorted([answer["start"], answer["end"]] for answer in answers)


def _time(row: Mapping) -> int:
    return row["event_time"]
