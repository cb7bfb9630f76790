"""Stage one, before the shuffle: a task's event rows become partials, cut by bucket; control rows go to every bucket.

Rule: a control row travels as JSON text beside the events and is nobody's business on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import grouped
from keyedwm.core.rows import Kind
from keyedwm.spark.inbox import Control
from keyedwm.windows.plan import Plan
from keyedwm.windows.shipping import CONTROL_TOLD, GROUP_BYTES, GROUP_ROWS, shipped
from keyedwm.worker import settle_worker, task_number

# What is staged beside the columns of the plan: the control row as JSON, null for an event row.
CONTROL_TEXT = "__control"


@dataclass(frozen=True, slots=True)
class StageOne:
    """The function of a `mapInArrow` over the plan's columns and CONTROL_TEXT, by place; `ids`: the buckets' ids."""

    plan: Plan
    ids: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled (`SHIPPED`)."""
        control: list[str] = []
        yield from shipped(self.plan, self.ids, task_number(), self._events(batches, control), control)
        settle_worker()

    def _events(self, batches: Iterable[pa.RecordBatch], control: list[str]) -> Iterator[pa.Table]:
        """The event rows; the others' texts are added to `control`."""
        # Spark gives timestamps in the session's time zone, the plan knows them in UTC.
        wanted = pa.schema([self.plan.schema.field(name) for name in self.plan.columns])
        for unnamed in grouped(batches, GROUP_ROWS, GROUP_BYTES):
            rows = unnamed.rename_columns([*wanted.names, CONTROL_TEXT])
            texts = rows.column(CONTROL_TEXT)
            told = texts.drop_null().to_pylist()
            control += told
            events = rows.filter(pc.is_null(texts)) if told else rows
            yield events.select(wanted.names).cast(wanted)


def control_rows(text: str) -> list[Control]:
    """Read the control rows that were shipped together."""
    return [
        Control(**{**{name: row.get(name) for name in CONTROL_TOLD}, "kind": Kind(row["kind"])})
        for row in json.loads(text)
    ]
