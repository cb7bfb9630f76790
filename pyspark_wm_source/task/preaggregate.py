"""Stage one inside the source: records become partials in the task that reads them (options frame, by, aggregates).

Rule: what leaves is what `aggregate`'s own stage one ships, made by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from keyedwm.arrow.rows import Events, RowBuilder, grouped
from keyedwm.core.control_row import ControlRow
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, shipped
from pyspark_wm_source.options.stage import Stage
from pyspark_wm_source.task.items import Item, events_of


def preaggregate(
    items: Iterable[Item], stage: Stage, stamps: Mapping[str, int | None], task: int
) -> Iterator[pa.RecordBatch]:
    """Yield what the task ships to the buckets: partials of its events, and its control rows."""
    control: list[ControlRow] = []
    builder = RowBuilder(stage.columns, stamps)
    rows = (_columns(one, builder, stage) for one in events_of(items, control))
    yield from shipped(stage.plan, stage.ids, task, grouped(rows, GROUP_ROWS, GROUP_BYTES), control)


def _columns(events: Events, builder: RowBuilder, stage: Stage) -> pa.RecordBatch:
    rows = builder.events(events)
    ms, valid = events.event_ms[stage.axis]
    arrays = [reader.read(rows) for reader in stage.readers.values()]
    time = pa.array(ms, mask=None if valid is None else ~valid)
    return pa.RecordBatch.from_arrays([*arrays, time], schema=stage.plan.schema)
