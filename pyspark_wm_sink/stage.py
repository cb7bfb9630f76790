"""Stage one task's rows: a Parquet file next to the table, not in its log, and a message that says what is in it.

Rule: staging decides nothing and publishes nothing. A staged file is visible to no reader of the table until the
driver's commit names it. What a killed task leaves behind stays invisible for ever and is VACUUM's business.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import WriterCommitMessage

from keyedwm.arrow.rows import US_PER_MS, ControlRow
from keyedwm.core.errors import InputError, UnavailableError
from keyedwm.core.rows import CONTROL, CONTROL_FIELDS, Kind, channel_name
from pyspark_wm_sink.stats import stats_json
from pyspark_wm_sink.storage import discard, files_of

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_COMPRESSION = "zstd"


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    """What every task of a query does; travels to the executors.

    schema: the table's columns. has_control: the frame has the `control` column. inline: control rows go into the file.
    has_offsets: the frame has Kafka's topic, partition and offset columns, so the cut can be proven.
    """

    path: str
    storage: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    has_control: bool
    inline: bool
    has_offsets: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Who staged: fields that Spark did not set (a batch write) are None."""

    query: str | None
    run: str | None
    batch: int | None
    partition: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One staged file, its name relative to the table, with what Delta wants to know about it."""

    name: str
    size: int
    rows: int
    stats: str
    modified_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged(WriterCommitMessage):
    """What one task staged; `file` is None when it had no row to write."""

    task: Task
    file: StagedFile | None
    event_rows: int
    control: tuple[ControlRow, ...]
    event_tops: Mapping[str, int]


def stage(plan: StagePlan, task: Task, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Write the rows of one task; raises UnavailableError when the storage refuses them."""
    control: list[ControlRow] = []
    tops: dict[str, int] = {}
    event_rows = 0
    output = _Output(plan, task)
    try:
        for rows in _groups(batches):
            events = rows
            if plan.has_control:
                is_event = pc.is_null(rows.column(CONTROL))
                events = rows.filter(is_event)
                control += _control_rows(rows.filter(pc.invert(is_event)))
            event_rows += events.num_rows
            if plan.has_offsets:
                _raise_tops(tops, events)
            output.write(rows if plan.inline else events)
        file = output.close()
    except OSError as error:
        output.remove()
        raise UnavailableError(f"the rows of table {plan.path} could not be staged: {error}") from error
    except BaseException:
        output.remove()
        raise
    return Staged(task=task, file=file, event_rows=event_rows, control=tuple(control), event_tops=tops)


class _Output:
    """One Parquet file, opened with the first row: no rows, no file."""

    def __init__(self, plan: StagePlan, task: Task) -> None:
        self._plan = plan
        self._name = f"part-{task.partition:05d}-{uuid.uuid4()}-c000.{_COMPRESSION}.parquet"
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        schema = self._plan.schema
        if self._writer is None:
            self._stream = files_of(self._plan.path, self._plan.storage).open_output_stream(self._name)
            self._writer = pq.ParquetWriter(
                self._stream, schema, compression=_COMPRESSION, metadata_collector=self._footer
            )
        self._writer.write_table(rows.select(schema.names).cast(schema), row_group_size=_GROUP_ROWS)

    def close(self) -> StagedFile | None:
        if self._writer is None or self._stream is None:
            return None
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        footer = self._footer[0]
        return StagedFile(
            name=self._name,
            size=size,
            rows=footer.num_rows,
            stats=stats_json(footer, self._plan.schema),
            modified_ms=time.time_ns() // 1_000_000,
        )

    def remove(self) -> None:
        """Leave nothing behind; if even that fails the file stays, invisible."""
        if self._writer is None or self._stream is None:
            return
        try:
            self._writer.close()
            self._stream.close()
            discard(self._plan.path, self._plan.storage, [self._name])
        except OSError:
            return


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join Spark's small batches into tables of a row group's size."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


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
