"""A side of a join before the shuffle: its event rows are cut by bucket, its control rows go to every bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import grouped
from keyedwm.arrow.valid_text import valid_texts
from keyedwm.core.control_row import ControlRow, decode_rows, joined
from keyedwm.operators.join.plan import JoinSide
from keyedwm.operators.join.ship import ship_side
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS
from keyedwm.runtime.worker import VersionChecked, freeze_gc, task_number


@dataclass(frozen=True, slots=True)
class JoinStage(VersionChecked):
    """The function of a `mapInArrow` over the side's columns, its times and the control text, by place."""

    side: JoinSide
    number: int
    ids: Sequence[int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled."""
        control: list[ControlRow] = []
        places = range(len(self.side.schema) + len(self.side.times))
        events = (self.typed(rows, places) for rows in _events(batches, control))
        yield from ship_side(self.side, self.number, self.ids, task=task_number(), events=events, control=control)
        freeze_gc()

    def typed(self, rows: pa.Table, places: Sequence[int]) -> pa.Table:
        """Return the side's rows, whose columns and times are at these places."""
        times = [pa.field(name, pa.int64()) for name in self.side.times]
        # Spark gives timestamps in the session's time zone, the plan knows them in UTC.
        wanted = pa.schema([*self.side.schema, *times])
        typed = pa.Table.from_arrays([rows.column(place) for place in places], names=wanted.names).cast(wanted)
        return valid_texts(typed)


@dataclass(frozen=True, slots=True)
class SelfJoinStage(VersionChecked):
    """The same for both sides of a frame that is joined with itself, so that it is read once.

    places: of each side's columns and times.
    """

    stages: tuple[JoinStage, JoinStage]
    places: tuple[Sequence[int], Sequence[int]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to be shuffled, of both sides."""
        control: list[ControlRow] = []
        part = 0
        for rows in _events(batches, control):
            for stage, places in zip(self.stages, self.places, strict=True):
                yield from self._ship(stage, part, [stage.typed(rows, places)], [])
            part += 1
        for stage in self.stages:
            yield from self._ship(stage, part, [], control)
        freeze_gc()

    @staticmethod
    def _ship(
        stage: JoinStage, part: int, events: Sequence[pa.Table], control: Sequence[ControlRow]
    ) -> Iterator[pa.RecordBatch]:
        return ship_side(
            stage.side, stage.number, stage.ids, task=task_number(), first_part=part, events=events, control=control
        )


def _events(batches: Iterable[pa.RecordBatch], control: list[ControlRow]) -> Iterator[pa.Table]:
    """The event rows; the others, which have a control text as their last column, are added to `control`."""
    for rows in grouped(batches, GROUP_ROWS, GROUP_BYTES):
        texts = rows.column(rows.num_columns - 1)
        control_texts = texts.drop_null().to_pylist()
        control += decode_rows(joined(control_texts))
        yield rows.filter(pc.is_null(texts)) if control_texts else rows
