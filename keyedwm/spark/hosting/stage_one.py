"""Stage one, before the shuffle: a task's event rows become partials, cut by bucket; control rows go to every bucket.

Rule: a control row comes as its text beside the events, since a column of text costs the events nearly nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import grouped
from keyedwm.arrow.valid_text import valid_texts
from keyedwm.core.control_row import ControlRow, decode_rows, joined
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, Staged, shipped
from keyedwm.runtime.worker import VersionChecked, freeze_gc, task_number

# What is staged beside the columns of the plan: the control row as its text, null for an event row.
CONTROL_TEXT = "__control"


@dataclass(frozen=True, slots=True)
class StageOne(VersionChecked):
    """The function of a `mapInArrow` over the plan's columns and CONTROL_TEXT, by place.

    ids: of the buckets. input_number: of the operator, if it has several.
    """

    plan: Staged
    ids: Sequence[int]
    input_number: int = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled (`SHIPPED`)."""
        control: list[ControlRow] = []
        events = self._events(batches, control)
        yield from shipped(self.plan, self.ids, task_number(), events, control, input_number=self.input_number)
        freeze_gc()

    def _events(self, batches: Iterable[pa.RecordBatch], control: list[ControlRow]) -> Iterator[pa.Table]:
        """The event rows; the others are added to `control`."""
        # Spark gives timestamps in the session's time zone, the plan knows them in UTC.
        wanted = pa.schema([self.plan.schema.field(name) for name in self.plan.columns])
        for unnamed in grouped(batches, GROUP_ROWS, GROUP_BYTES):
            rows = unnamed.rename_columns([*wanted.names, CONTROL_TEXT])
            texts = rows.column(CONTROL_TEXT)
            control_texts = texts.drop_null().to_pylist()
            control += decode_rows(joined(control_texts))
            events = rows.filter(pc.is_null(texts)) if control_texts else rows
            yield valid_texts(events.select(wanted.names).cast(wanted))
