"""A side of a join inside the source: records are divided by bucket in the task that reads them (option joinSide).

Rule: what leaves is what `join`'s own step before the shuffle ships, made by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from keyedwm.arrow.rows import RowBuilder, grouped
from keyedwm.arrow.schema import US_PER_MS
from keyedwm.core.control_row import ControlRow
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, shipped
from pyspark_wm_source.options.join_side import SideStage
from pyspark_wm_source.task.items import Item, events_of


def cut_side(
    items: Iterable[Item], stage: SideStage, stamps: Mapping[str, int | None], task: int
) -> Iterator[pa.RecordBatch]:
    """Yield what the task ships to the buckets: the rows of its events, and its control rows."""
    control: list[ControlRow] = []
    builder = RowBuilder(stage.columns, stamps)
    rows = grouped((builder.events(one) for one in events_of(items, control)), GROUP_ROWS, GROUP_BYTES)
    tables = (_timed(some, stage) for some in rows)
    yield from shipped(stage.side.shipped, stage.ids, task, tables, control, input_number=stage.number)


def _timed(rows: pa.Table, stage: SideStage) -> pa.Table:
    """The side's columns, then its event times in ms; an event time that no timestamp can hold is null, as in rows."""
    first = len(stage.side.schema)
    times = [pc.divide(time.cast(pa.int64()), US_PER_MS) for time in rows.columns[first:]]
    return pa.Table.from_arrays([*rows.columns[:first], *times], names=[*stage.side.schema.names, *stage.side.times])
