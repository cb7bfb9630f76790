"""What every task does with its rows, whatever the target: tell events from control rows, and report.

Rule: a task decides nothing. Its report says what it brought, and the driver judges all reports together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from keyedwm.arrow.rows import US_PER_MS, ControlRow, grouped, split_control
from keyedwm.core.errors import InputError, OutOfTurnError
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS, Kind, channel_name
from pyspark_wm_sink.seal import Brought

_GROUP_ROWS = 1 << 20
R = TypeVar("R", bound="Report")


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Who staged: fields that Spark did not set (a batch write) are None. `number` is unique within one Spark."""

    query: str | None
    run: str | None
    batch: int | None
    partition: int
    attempt: int
    number: int = 0

    @staticmethod
    def current() -> Task:
        """Return the task that runs here."""
        context = TaskContext.get()
        if context is None:
            raise OutOfTurnError("rows are written by a Spark task, there is none")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return Task(
            query=context.getLocalProperty("sql.streaming.queryId"),
            run=context.getLocalProperty("spark.jobGroup.id"),
            batch=None if batch is None else int(batch),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            number=context.taskAttemptId(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Report(WriterCommitMessage):
    """What one task brought; `event_tops`: channel to the highest offset of its event rows."""

    task: Task
    event_rows: int
    control: tuple[ControlRow, ...]
    event_tops: Mapping[str, int]


class Intake:
    """Reads a task's batches in groups of a good size and notes what the report has to say.

    has_control: the frame has the `control` column. has_offsets: it has Kafka's topic, partition and offset columns.
    group_bytes: how large a group gets, about.
    """

    def __init__(self, *, has_control: bool, has_offsets: bool, group_bytes: int) -> None:
        self._has_control, self._has_offsets = has_control, has_offsets
        self._group_bytes = group_bytes
        self.control: list[ControlRow] = []
        self.event_tops: dict[str, int] = {}
        self.event_rows = 0

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield (all rows, event rows) of each group."""
        for rows in grouped(batches, _GROUP_ROWS, self._group_bytes):
            events = rows
            if self._has_control:
                events, control = split_control(rows)
                self.control += _control_rows(control)
            self.event_rows += events.num_rows
            if self._has_offsets:
                _raise_tops(self.event_tops, events)
            yield rows, events


def all_of(messages: Sequence[WriterCommitMessage | None], kind: type[R]) -> list[R]:
    """Return what all tasks reported; raises OutOfTurnError if a message is missing."""
    reports = [message for message in messages if isinstance(message, kind)]
    if len(reports) != len(messages):
        raise OutOfTurnError("a commit was asked for with messages missing, each task must have sent one")
    return reports


def gather(reports: Sequence[Report], batch: int | None) -> Brought:
    """Join what the tasks say; a batch write has no query, whatever thread it was started from."""
    queries = {(r.task.query, r.task.run, r.task.batch) for r in reports} if batch is not None else set()
    if len(queries) > 1 or any(named != batch for _, _, named in queries):
        raise OutOfTurnError(f"the tasks of batch {batch} name other batches: {sorted(map(str, queries))}")
    query, run, _ = queries.pop() if queries else (None, None, None)
    tops: dict[str, int] = {}
    for report in reports:
        for channel, top in report.event_tops.items():
            tops[channel] = max(top, tops.get(channel, top))
    return Brought(
        query=query,
        run=run,
        batch=batch,
        attempt=uuid.uuid4().hex,
        rows=sum(report.event_rows for report in reports),
        control=tuple(row for report in reports for row in report.control),
        event_tops=tops,
    )


def _raise_tops(tops: dict[str, int], events: pa.Table) -> None:
    """Note the highest offset of each channel's event rows."""
    highest = events.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    for row in highest.to_pylist():
        if row["topic"] is not None and row["partition"] is not None and row["offset_max"] is not None:
            channel = channel_name(row["topic"], row["partition"])
            tops[channel] = max(row["offset_max"], tops.get(channel, row["offset_max"]))


def _control_rows(rows: pa.Table) -> list[ControlRow]:
    """Control rows one by one: they are rare."""
    offset_type = rows.schema.field("offset").type if "offset" in rows.column_names else None
    has_offset = offset_type is not None and pa.types.is_integer(offset_type)
    if not rows.num_rows:
        return []
    structs = rows.column(CONTROL)
    columns = {name: pc.struct_field(structs, name).to_pylist() for name in CONTROL_FIELDS if name != "watermark"}
    us = pc.struct_field(structs, "watermark").cast(pa.int64()).to_pylist()
    offsets = rows.column("offset").to_pylist() if has_offset else [None] * rows.num_rows
    return [
        ControlRow(
            kind=_kind(columns["kind"][i]),
            offset=offsets[i],
            key=columns["key"][i],
            watermark_ms=None if us[i] is None else us[i] // US_PER_MS,
            channel=columns["channel"][i],
            snapshot=columns["snapshot"][i],
            channels=columns["channels"][i],
        )
        for i in range(rows.num_rows)
    ]


def _kind(word: str | None) -> Kind:
    try:
        return Kind(word)
    except ValueError:
        raise InputError(
            f"a control row has kind {word!r}, one of {', '.join(kind.value for kind in Kind)} is wanted"
        ) from None
