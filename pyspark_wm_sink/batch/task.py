"""The work of every task on its rows, whatever the target: separate events from control rows and collect statistics.

Rule: a task decides nothing. It reports what it staged, and the driver checks the reports of all tasks together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from keyedwm.arrow.control_rows import control_rows
from keyedwm.arrow.hashing import MODULUS, content_sum
from keyedwm.arrow.rows import grouped, split_control
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import InputError, OutOfTurnError
from keyedwm.core.rows import channel_name
from pyspark_wm_sink.limits import LIMITS, Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Identifies the task attempt that staged rows.

    Fields that Spark does not set for a batch write are None. `number` is Spark's task attempt id, unique within one
    application.
    """

    query: str | None
    run: str | None
    batch: int | None
    partition: int
    attempt: int
    number: int = 0

    @staticmethod
    def current() -> Task:
        """Return the task that runs in this process; raises OutOfTurnError outside of a Spark task."""
        context = TaskContext.get()
        if context is None:
            raise OutOfTurnError("rows can be written only inside a Spark task, and no task is running here")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return Task(
            query=context.getLocalProperty("sql.streaming.queryId"),
            run=context.getLocalProperty("spark.jobGroup.id"),
            batch=None if batch is None else int(batch),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            number=context.taskAttemptId(),
        )


class TaskInput:
    """Reads a task's record batches in groups and collects what its report contains.

    has_control: the frame has the `control` column. has_offsets: it has Kafka's topic, partition and offset columns.
    group_bytes: the approximate size of a group. content: the columns of the sum over the event rows, None for no sum.
    """

    def __init__(
        self,
        *,
        has_control: bool,
        has_offsets: bool,
        group_bytes: int,
        content: Sequence[str] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._has_control, self._has_offsets = has_control, has_offsets
        self._group_bytes, self._content, self._limits = group_bytes, content, limits
        self.content: int | None = None if content is None else 0
        self.control: list[ControlRow] = []
        self.event_tops: dict[str, int] = {}
        self.event_rows = self.null_rows = 0

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield (all rows, event rows) of each group."""
        for rows in grouped(batches, self._limits.group_rows, self._group_bytes):
            events = rows
            if self._has_control:
                events, control = split_control(rows)
                self._check_count(control.num_rows)
                self.control += control_rows(control)
            else:
                self.null_rows += _null_rows(rows)
            self.event_rows += events.num_rows
            if self._has_offsets:
                _update_tops(self.event_tops, events)
            if self._content is not None and self.content is not None:
                self.content = (self.content + content_sum(events.select(self._content))) % MODULUS
            yield rows, events

    def _check_count(self, more: int) -> None:
        if len(self.control) + more > self._limits.control_rows:
            raise InputError(
                f"a task has more than {self._limits.control_rows} control rows in one batch: make fewer watermarks "
                f"into rows with the source's option watermarkThrottle (batch or frame), or read less in a task with "
                f"maxRecordsPerPartition or a higher maxPartitions"
            )


def _null_rows(rows: pa.Table) -> int:
    """Count the rows whose columns are all null."""
    if not all(column.null_count for column in rows.columns):
        return 0
    is_null = functools.reduce(pc.and_, (pc.is_null(column) for column in rows.columns))
    return int(pc.sum(is_null).as_py() or 0)


def _update_tops(tops: dict[str, int], events: pa.Table) -> None:
    """Record the highest offset of each channel's event rows."""
    # A task has one core: Arrow's threads would only wait for each other.
    highest = events.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "max")])
    for row in highest.to_pylist():
        if row["topic"] is not None and row["partition"] is not None and row["offset_max"] is not None:
            channel = channel_name(row["topic"], row["partition"])
            tops[channel] = max(row["offset_max"], tops.get(channel, row["offset_max"]))
