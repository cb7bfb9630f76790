"""Messages that an operator keeps, inside the source: divided by bucket in the task that reads them.

Rule: what leaves is what the operator's own step before the shuffle ships, made by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from keyedwm.arrow.rows import Events, RowBuilder, grouped
from keyedwm.core.control_row import ControlRow
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, shipped
from pyspark_wm_source.options.message_store import MessageStage
from pyspark_wm_source.task.items import Item, events_of


def cut_messages(
    items: Iterable[Item], stage: MessageStage, stamps: Mapping[str, int | None], task: int
) -> Iterator[pa.RecordBatch]:
    """Yield what the task ships to the buckets: whole messages, and its control rows."""
    control: list[ControlRow] = []
    builder = RowBuilder(stage.columns, stamps)
    rows = grouped((_columns(one, builder, stage) for one in events_of(items, control)), GROUP_ROWS, GROUP_BYTES)
    yield from shipped(stage.messages, stage.ids, task, rows, control, input_number=stage.number)


def _columns(events: Events, builder: RowBuilder, stage: MessageStage) -> pa.RecordBatch:
    rows = builder.events(events)
    arrays = [
        reader.read(rows).cast(field.type) for reader, field in zip(stage.readers, stage.messages.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=stage.messages.schema)
