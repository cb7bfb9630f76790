"""Drives a window operator in one process: a step at a time, its outputs as one table, its state as blobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from keyedwm.operators.batch_figures import KeyWatermarkSummary
from keyedwm.operators.frames.plan import WindowPlan
from keyedwm.operators.protocol import operator_of
from keyedwm.operators.results import Output
from keyedwm.operators.state.store import LIMITS, MemoryStore, StateLimits


class DrivenOperator:
    """The operator of a plan over one input; `blobs` is the state that it goes on from."""

    def __init__(
        self, plan: WindowPlan, blobs: Mapping[str, bytes] | None = None, limits: StateLimits = LIMITS
    ) -> None:
        self._plan = plan
        self._store = MemoryStore(dict(blobs or {}), limits)
        self._operator = operator_of(plan, self._store)

    @property
    def late_rows(self) -> int:
        """How many rows were late."""
        return self._operator.late_rows

    @property
    def open_entries(self) -> int:
        """How many entries the state holds."""
        return self._operator.open_entries

    @property
    def standing(self) -> KeyWatermarkSummary | None:
        """How the keys stand that have watermarks of their own."""
        return self._operator.key_summary()

    def outputs(self, name: str, *arguments: object) -> list[Output]:
        """Call the operator by the name of a method."""
        return list(getattr(self._operator, name)(*arguments))

    def take(self, partials: pa.Table, now_ms: int | None = None) -> pa.Table:
        """Take partials."""
        return self._table(self._operator.on_rows(0, partials, now_ms))

    def advance(self, watermark_ms: int) -> pa.Table:
        """Take a watermark."""
        return self._table(self._operator.on_watermark(0, 0, watermark_ms))

    def clock(self, now_ms: int) -> pa.Table:
        """Let wall-clock time pass."""
        return self._table(self._operator.on_timer(now_ms))

    def complete(self) -> pa.Table:
        """End the input."""
        return self._table(self._operator.on_end())

    def changed(self) -> tuple[dict[str, bytes], set[str]]:
        """Write the state, and return the blobs that were written and the names of those that were removed."""
        blobs, removed = self._operator.drain()
        self._store.blobs.update(blobs)
        for name in removed:
            del self._store.blobs[name]
        return dict(blobs), set(removed)

    def snapshot(self) -> dict[str, bytes]:
        """Write the state, and return all of it."""
        self.changed()
        return dict(self._store.blobs)

    def _table(self, outputs: Iterator[Output]) -> pa.Table:
        tables = [output.rows for output in outputs]
        return pa.concat_tables(tables) if tables else self._plan.result_schema.empty_table()
