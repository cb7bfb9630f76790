"""What a reading task does to its records for an operator that runs its first step there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from pyspark_wm_source.options.join_side import SideStage
from pyspark_wm_source.options.message_store import MessageStage
from pyspark_wm_source.options.stage import Stage
from pyspark_wm_source.task.cut_messages import cut_messages
from pyspark_wm_source.task.cut_side import cut_side
from pyspark_wm_source.task.items import Item
from pyspark_wm_source.task.preaggregate import preaggregate


def run_stage(
    items: Iterable[Item], stage: Stage | SideStage | MessageStage, stamps: Mapping[str, int | None], task: int
) -> Iterator[pa.RecordBatch]:
    """Yield what the task ships to the operator's buckets, in `stage.shipped`."""
    if isinstance(stage, SideStage):
        return cut_side(items, stage, stamps, task)
    if isinstance(stage, MessageStage):
        return cut_messages(items, stage, stamps, task)
    return preaggregate(items, stage, stamps, task)
