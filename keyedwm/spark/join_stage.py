"""A side of a join before the shuffle: its event rows are cut by bucket, its control rows go to every bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import grouped
from keyedwm.core.control_row import ControlRow, decode_rows, joined
from keyedwm.windows.join.plan import JoinSide
from keyedwm.windows.join.ship import ship_side
from keyedwm.windows.shuffle import GROUP_BYTES, GROUP_ROWS
from keyedwm.worker import freeze_gc, task_number


@dataclass(frozen=True, slots=True)
class JoinStage:
    """The function of a `mapInArrow` over the side's columns, its times and the control text, by place."""

    side: JoinSide
    number: int
    ids: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled."""
        control: list[ControlRow] = []
        events = self._events(batches, control)
        yield from ship_side(self.side, self.number, self.ids, task=task_number(), events=events, control=control)
        freeze_gc()

    def _events(self, batches: Iterable[pa.RecordBatch], control: list[ControlRow]) -> Iterator[pa.Table]:
        """The event rows; the others are added to `control`."""
        times = [pa.field(name, pa.int64()) for name in self.side.times]
        # Spark gives timestamps in the session's time zone, the plan knows them in UTC.
        wanted = pa.schema([*self.side.schema, *times])
        for rows in grouped(batches, GROUP_ROWS, GROUP_BYTES):
            texts = rows.column(len(wanted))
            control_texts = texts.drop_null().to_pylist()
            control += decode_rows(joined(control_texts))
            events = rows.filter(pc.is_null(texts)) if control_texts else rows
            yield pa.Table.from_arrays(events.columns[: len(wanted)], names=wanted.names).cast(wanted)
