"""Record batches as Arrow columns.

Rule: only requested columns are built; bytes are copied once, from the fetched (or decompressed) bytes into Arrow's
buffers. A batch that cannot be read raises CorruptRecordError with topic, partition and offset; it never yields a wrong
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from keyedwm.arrow.columns import text_of
from keyedwm.arrow.schema import HEADERS_TYPE
from keyedwm.kafka.client.values import LIMITS, TopicPartition, WireLimits
from keyedwm.kafka.records.batches import OLD, Batches, BatchField, visible
from keyedwm.kafka.records.decode import (
    FAULTS,
    LEAST_RECORD_BYTES,
    UNNAMED,
    Fault,
    HeaderField,
    PlanColumn,
    RecordField,
    begin,
    find_headers,
    find_named,
    find_records,
    gather,
)
from keyedwm.kafka.records.old_formats import messages
from keyedwm.kafka.records.pieces import CLAIM, corrupt, pieces

# The most rows of one step, headers counted as rows: the fields of each take 72 bytes, a record itself may have seven.


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The costly columns to build; offsets and timestamps are always built.

    control_header: records whose first header has this name are control records: they come in
        `Records.control_records`, not as rows.
    """

    key: bool = True
    value: bool = True
    headers: bool = False
    control_header: str | None = None


class ControlRecord(NamedTuple):
    """One in-band control record: its offset, the value of its first header, and its own value."""

    offset: int
    header: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records of one partition in offset order, one row each.

    key, value: binary, or None if not requested. headers: list<struct<key, value>>, null for a record without headers.
    offset: int64; timestamp_ms: int64; timestamp_type: int32, 0 create time, 1 log-append time, -1 none (format 0).
    next_offset: the first offset that was not read yet; it is beyond the last row if offsets have no visible record.
    control_records: the records of `ColumnSelection.control_header`, in offset order.
    """

    count: int
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None
    offset: np.ndarray
    timestamp_ms: np.ndarray
    timestamp_type: np.ndarray
    next_offset: int
    control_records: tuple[ControlRecord, ...] = ()


def read_records(
    batches: Batches,
    span: tuple[int, int],
    selection: ColumnSelection,
    aborted: Iterable[tuple[int, int]] = (),
    limits: WireLimits = LIMITS,
) -> Iterator[Records]:
    """Yield the records with span[0] <= offset < span[1], some MB at a time.

    At least one Records is yielded, perhaps without rows. Control batches and the batches of the aborted transactions
    (producer id, first offset) are skipped. limits: the most that is decoded at once.
    """
    finish = min(batches.next_offset, span[1])
    row_numbers = visible(batches, span, aborted)
    if not len(row_numbers):
        yield no_records(selection, finish)
        return
    is_old = (batches.table[row_numbers, BatchField.ATTRIBUTES] & OLD) != 0
    for rows in np.split(row_numbers, np.flatnonzero(np.diff(is_old)) + 1):
        if batches.table[rows[0], BatchField.ATTRIBUTES] & OLD:
            steps = messages(batches, rows, span, limits)
        else:
            steps = _steps_of(batches, rows, span, selection, limits)
        for data, fields, is_end in steps:
            if is_end and rows[-1] == row_numbers[-1]:
                # The last piece also passes the markers and aborted batches after it.
                yield _decoded(data, fields, selection, finish)
            elif fields.shape[1]:
                yield _decoded(data, fields, selection, int(fields[RecordField.OFFSET, -1]) + 1)
            del data, fields  # or they would stay in memory while the next piece is made


def _steps_of(
    batches: Batches, rows: np.ndarray, span: tuple[int, int], selection: ColumnSelection, limits: WireLimits
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Find the records of batches, rows of the table; yield bytes, the records' fields, and whether nothing follows."""
    behind = batches.table[rows[-1], BatchField.LAST_OFFSET]
    for data, plan, more in pieces(batches, rows, limits):
        last = not more and plan[-1, PlanColumn.LAST_OFFSET] == behind
        bytes_in = np.frombuffer(data, np.uint8)
        for fields, is_end in _fields_of(batches.tp, bytes_in, plan, span, selection=selection, most_rows=limits.rows):
            yield bytes_in, fields, last and is_end
        del data, bytes_in


def no_records(selection: ColumnSelection, next_offset: int) -> Records:
    """Columns without rows."""
    return Records(
        0,
        pa.array([], pa.binary()) if selection.key else None,
        pa.array([], pa.binary()) if selection.value else None,
        pa.array([], HEADERS_TYPE) if selection.headers else None,
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        next_offset,
    )


def _fields_of(
    tp: TopicPartition,
    data: np.ndarray,
    plan: np.ndarray,
    span: tuple[int, int],
    *,
    selection: ColumnSelection,
    most_rows: int,
) -> Iterator[tuple[np.ndarray, bool]]:
    """Find the records of one piece, step by step; true with the last step."""
    counts, sizes = plan[:, PlanColumn.COUNT], plan[:, PlanColumn.END] - plan[:, PlanColumn.START]
    offsets = plan[:, PlanColumn.LAST_OFFSET] - plan[:, PlanColumn.BASE_OFFSET] + 1
    wrong = np.flatnonzero((counts < 0) | (counts > sizes // LEAST_RECORD_BYTES) | (counts > offsets))
    if len(wrong):
        raise corrupt(tp, plan[wrong[0]], CLAIM)
    left, cursor = int(counts.sum()), begin(plan)
    while cursor[0] < len(plan):
        fields = np.empty((len(RecordField), min(left, most_rows)), np.int64)
        rows, fault = find_records(data, plan, span, fields, cursor)
        if fault:
            raise corrupt(tp, plan[rows], FAULTS[Fault(fault)])
        steps = _steps(fields[:, :rows], selection, most_rows)
        yield from ((step, cursor[0] == len(plan) and step is steps[-1]) for step in steps)


def _steps(fields: np.ndarray, selection: ColumnSelection, most_rows: int) -> list[np.ndarray]:
    """Cut the records where their headers would need too much memory at once."""
    headers = fields[RecordField.HEADERS]
    if not selection.headers or int(headers.sum()) <= most_rows:
        return [fields]
    step = np.cumsum(headers) // most_rows
    return np.split(fields, np.flatnonzero(np.diff(step)) + 1, axis=1)


def _decoded(data: np.ndarray, fields: np.ndarray, selection: ColumnSelection, next_offset: int) -> Records:
    fields, control_records = _split_control(data, fields, selection)
    return Records(
        fields.shape[1],
        _binary(data, fields[RecordField.KEY_AT], fields[RecordField.KEY_LENGTH]) if selection.key else None,
        _binary(data, fields[RecordField.VALUE_AT], fields[RecordField.VALUE_LENGTH]) if selection.value else None,
        _headers(data, fields[RecordField.HEADERS_AT], fields[RecordField.HEADERS]) if selection.headers else None,
        # copied, or a view would keep all fields in memory
        fields[RecordField.OFFSET].copy(),
        fields[RecordField.TIME].copy(),
        fields[RecordField.KIND].astype(np.int32),
        next_offset,
        control_records,
    )


def _split_control(
    data: np.ndarray, fields: np.ndarray, selection: ColumnSelection
) -> tuple[np.ndarray, tuple[ControlRecord, ...]]:
    """Split the control records from the rows; records without headers cost one comparison."""
    if selection.control_header is None or not fields[RecordField.HEADERS].any():
        return fields, ()
    content = np.zeros((2, fields.shape[1]), np.int64)
    name = np.frombuffer(selection.control_header.encode(), np.uint8)
    if not find_named(data, fields[RecordField.HEADERS_AT], fields[RecordField.HEADERS], name, content):
        return fields, ()
    is_control = content[1] != UNNAMED
    control_fields = fields[:, is_control]
    headers = _binary(data, *content[:, is_control]).to_pylist()
    values = _binary(data, control_fields[RecordField.VALUE_AT], control_fields[RecordField.VALUE_LENGTH]).to_pylist()
    offsets = control_fields[RecordField.OFFSET].tolist()
    return fields[:, ~is_control], tuple(map(ControlRecord, offsets, headers, values))


def _binary(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Binary values copied together; a length of -1 is null."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    out = np.empty(ends[-1], np.uint8)
    gather(data, starts, ends, out)
    valid, nulls = _validity(lengths >= 0)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [valid, pa.py_buffer(ends), pa.py_buffer(out)], nulls)


def _headers(data: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Lists of (key, value), null for a record without headers."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    fields = np.empty((len(HeaderField), ends[-1]), np.int64)
    find_headers(data, starts, counts, fields)
    names = text_of(_binary(data, fields[HeaderField.NAME_AT], fields[HeaderField.NAME_LENGTH]))
    contents = _binary(data, fields[HeaderField.CONTENT_AT], fields[HeaderField.CONTENT_LENGTH])
    pairs = pa.StructArray.from_arrays([names, contents], names=["key", "value"])
    valid, nulls = _validity(counts > 0)
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [valid, pa.py_buffer(ends)], nulls, children=[pairs])


def _validity(valid: np.ndarray) -> tuple[pa.Buffer | None, int]:
    """Arrow's bitmap, None if nothing is null, and the number of nulls."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls
