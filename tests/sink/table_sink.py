"""The tasks of a query that writes to a table of any format, as plain calls, and what goes wrong with their commit."""

from __future__ import annotations

import pyarrow as pa

from keyedwm.core.control_row import ControlRow
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.batch.task import Task
from pyspark_wm_sink.tables.publication import Publication
from pyspark_wm_sink.tables.stage import StagedFiles, stage


def stage_rows(
    to: Publication, numbers: list[int] | pa.Table, batch: int = 0, query: str = "q", control: tuple = ()
) -> StagedFiles:
    task = Task(query=query, run="r", batch=batch, partition=0, attempt=0)
    rows = numbers if isinstance(numbers, pa.Table) else pa.table({"n": pa.array(numbers, pa.int64())})
    message = stage(to.stage, task, rows.to_batches() if rows.num_rows else [])
    return StagedFiles(
        task=task, files=message.files, event_rows=message.event_rows, control=control, event_tops=message.event_tops,
        content=message.content, null_rows=message.null_rows,
    )  # fmt: skip


def barrier(snapshot: int, offset: int = 0) -> ControlRow:
    return ControlRow(kind=ControlKind.BARRIER, channel="t-0", snapshot=snapshot, channels=1, offset=offset)


def disk_full(*_args, **_options):
    raise OSError("No space left on device")


def answer_lost(real):
    def append(*args, **options):
        real(*args, **options)
        raise OSError("connection reset")

    return append
