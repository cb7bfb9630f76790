"""The first step of an operator on the records of a reading task.

Rule: what leaves is what the operator's own stage one ships, made by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from keyedwm.arrow.rows import RowBuilder, grouped
from keyedwm.core.control_row import ControlRow
from keyedwm.operators.shuffle import GROUP_BYTES, GROUP_ROWS, shipped
from pyspark_wm_source.options.stage import Stage
from pyspark_wm_source.task.items import Item, events_of


def run_stage(
    items: Iterable[Item], stage: Stage, stamps: Mapping[str, int | None], task: int
) -> Iterator[pa.RecordBatch]:
    """Yield what the task ships to the operator's buckets (`SHIPPED`): its rows or partials, its control rows, and
    rejected records.
    """
    control: list[ControlRow] = []
    rejected: list[pa.Array] = []
    builder = RowBuilder(stage.columns, stamps)
    each = (stage.rows(one, builder) for one in events_of(items, control, rejected))
    rows = grouped(each, GROUP_ROWS, GROUP_BYTES, lambda: sum(one.nbytes for one in rejected) >= GROUP_BYTES)
    yield from shipped(stage.shipped, stage.ids, task, rows, control, rejected=rejected, input_number=stage.number)
