"""The reports of a batch's tasks to the driver, and the report of the whole batch.

Rule: values only. Nothing here checks or decides; `seal` does.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from keyedwm.arrow.hashing import MODULUS
from keyedwm.core.control_row import ControlRow
from keyedwm.core.errors import OutOfTurnError
from keyedwm.core.rows import ControlKind
from pyspark_wm_sink.batch.batch_plan import BatchPlan
from pyspark_wm_sink.batch.task import Task

R = TypeVar("R", bound="TaskReport")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskReport(WriterCommitMessage):
    """The report of one task; `event_tops`: channel to the highest offset of its event rows.

    content: the sum of its event rows' hashes (`keyedwm.arrow.hashing`), None if it was not computed. null_rows: rows
    of nulls alone, counted if the frame has no `control` column.
    """

    task: Task
    event_rows: int
    control: tuple[ControlRow, ...]
    event_tops: Mapping[str, int]
    content: int | None = None
    null_rows: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchReport:
    """The report of all tasks of one batch.

    event_tops: channel to the highest offset of its event rows. is_retried: a task needed more than one attempt.
    content: the sum of all event rows' hashes, in hex; None if it was not computed. has_gaps: Spark numbered more
    attempts of tasks than have reported: one may be an unused twin, or belong to another query. begins: the lowest
    offset of each channel's event rows, if tasks reported it. plan: None if it is unknown.
    """

    query: str | None
    run: str | None
    batch: int | None
    attempt: str
    rows: int
    control: tuple[ControlRow, ...]
    event_tops: Mapping[str, int]
    is_retried: bool = False
    content: str | None = None
    has_gaps: bool = False
    begins: Mapping[str, int] = field(default_factory=dict)
    plan: BatchPlan | None = None

    @property
    def barriers(self) -> tuple[ControlRow, ...]:
        """The barrier rows."""
        return tuple(row for row in self.control if row.kind is ControlKind.BARRIER)

    def tops_digest(self) -> str | None:
        """A short digest of the highest offset of each channel's event rows; None if no row has an offset."""
        if not self.event_tops:
            return None
        text = json.dumps(self.event_tops, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def first_offsets(self) -> dict[str, int] | None:
        """Return where each channel begins in this batch: by the plan, else by its rows, else at or before its barrier.

        None if that is unknown.
        """
        planned = {} if self.plan is None else self.plan.begins
        if self.plan is not None and self.plan.is_all_keyedwm:
            return planned
        ends = {channel: offset for channel, (_, offset) in self.delivered().items() if offset is not None}
        return {**ends, **self.begins, **planned} or (None if self.plan is None else {})

    def delivered(self) -> dict[str, tuple[int | None, int | None]]:
        """Each channel's (snapshot, next offset) by its barrier; by the furthest if there are several."""
        rows = sorted(self.barriers, key=lambda row: (row.snapshot or 0, row.offset or 0))
        return {row.channel: (row.snapshot, row.offset) for row in rows if row.channel is not None}


def require_all(messages: Sequence[WriterCommitMessage | None], kind: type[R]) -> list[R]:
    """Return the reports of all tasks; raises OutOfTurnError if a message is missing."""
    reports = [message for message in messages if isinstance(message, kind)]
    if len(reports) != len(messages):
        raise OutOfTurnError(
            f"commit was called with {len(reports)} of {len(messages)} task reports, every task must have sent one"
        )
    return reports


def query_of(reports: Sequence[TaskReport]) -> str | None:
    """Return the id of the query that the tasks belong to."""
    return next((report.task.query for report in reports), None)


def merge_reports(reports: Sequence[TaskReport], batch: int | None) -> BatchReport:
    """Merge the reports of all tasks; a batch write has no query, even if a query's thread started it."""
    queries = {(r.task.query, r.task.run, r.task.batch) for r in reports} if batch is not None else set()
    if len(queries) > 1 or any(of_task != batch for _, _, of_task in queries):
        raise OutOfTurnError(f"the task reports of batch {batch} name other batches: {sorted(map(str, queries))}")
    query, run, _ = queries.pop() if queries else (None, None, None)
    tops: dict[str, int] = {}
    for report in reports:
        for channel, top in report.event_tops.items():
            tops[channel] = max(top, tops.get(channel, top))
    return BatchReport(
        query=query,
        run=run,
        batch=batch,
        attempt=uuid.uuid4().hex,
        rows=sum(report.event_rows for report in reports),
        control=tuple(row for report in reports for row in report.control),
        event_tops=tops,
        is_retried=any(report.task.attempt > 0 for report in reports),
        content=_content(reports),
        has_gaps=_has_gaps(reports),
    )


def _has_gaps(reports: Sequence[TaskReport]) -> bool:
    numbers = {report.task.number for report in reports}
    return bool(numbers) and max(numbers) - min(numbers) >= len(numbers)


def _content(reports: Sequence[TaskReport]) -> str | None:
    """Return the sum over all tasks, which does not depend on how rows are spread over them."""
    sums = [report.content for report in reports if report.content is not None]
    return f"{sum(sums) % MODULUS:016x}" if len(sums) == len(reports) else None
