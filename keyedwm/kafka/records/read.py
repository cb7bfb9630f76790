"""Record batches as Arrow columns.

Rule: only wanted columns are built; bytes are copied once, from the fetched (or decompressed) ones into Arrow's
buffers. A batch that cannot be read raises CorruptRecordError naming topic, partition and offset; it never gives a
wrong row.
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

# Rows of one step, headers counted as rows: what is noted about each takes 72 bytes, its bytes may be seven.


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The costly columns to build; offsets and timestamps always come.

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

    key, value: binary, or None if not wanted; headers: list<struct<key, value>>, null for a record without any.
    offset: int64; timestamp_ms: int64; timestamp_type: int32, 0 create time, 1 log-append time, -1 none (format 0).
    next_offset: the first offset not looked at yet; beyond the last row where offsets carry no visible record.
    control_records: the records named by `Wanted.control_header`, in offset order.
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
    wanted: ColumnSelection,
    aborted: Iterable[tuple[int, int]] = (),
    limits: WireLimits = LIMITS,
) -> Iterator[Records]:
    """Yield the records with span[0] <= offset < span[1], some MB at a time.

    At least one Records comes, perhaps without rows. Control batches and the batches of the aborted transactions
    (producer id, first offset) are left out. limits: of what is decoded at once.
    """
    finish = min(batches.next_offset, span[1])
    chosen = visible(batches, span, aborted)
    if not len(chosen):
        yield no_records(wanted, finish)
        return
    is_old = (batches.table[chosen, BatchField.ATTRIBUTES] & OLD) != 0
    for rows in np.split(chosen, np.flatnonzero(np.diff(is_old)) + 1):
        if batches.table[rows[0], BatchField.ATTRIBUTES] & OLD:
            steps = messages(batches, rows, span, limits)
        else:
            steps = _steps_of(batches, rows, span, wanted, limits)
        for data, found, is_end in steps:
            if is_end and rows[-1] == chosen[-1]:
                # Markers and aborted batches behind the last piece are passed with it.
                yield _decoded(data, found, wanted, finish)
            elif found.shape[1]:
                yield _decoded(data, found, wanted, int(found[RecordField.OFFSET, -1]) + 1)
            del data, found  # or they would be held while the next piece is made


def _steps_of(
    batches: Batches, rows: np.ndarray, span: tuple[int, int], wanted: ColumnSelection, limits: WireLimits
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Find the records of batches, rows of the table; yields bytes, what was found, and whether nothing follows."""
    behind = batches.table[rows[-1], BatchField.LAST_OFFSET]
    for data, plan, more in pieces(batches, rows, limits):
        last = not more and plan[-1, PlanColumn.LAST_OFFSET] == behind
        bytes_in = np.frombuffer(data, np.uint8)
        for found, is_end in _found(batches.tp, bytes_in, plan, span, wanted=wanted, most_rows=limits.rows):
            yield bytes_in, found, last and is_end
        del data, bytes_in


def no_records(wanted: ColumnSelection, next_offset: int) -> Records:
    """Columns without rows."""
    return Records(
        0,
        pa.array([], pa.binary()) if wanted.key else None,
        pa.array([], pa.binary()) if wanted.value else None,
        pa.array([], HEADERS_TYPE) if wanted.headers else None,
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        next_offset,
    )


def _found(
    tp: TopicPartition,
    data: np.ndarray,
    plan: np.ndarray,
    span: tuple[int, int],
    *,
    wanted: ColumnSelection,
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
        found = np.empty((len(RecordField), min(left, most_rows)), np.int64)
        rows, fault = find_records(data, plan, span, found, cursor)
        if fault:
            raise corrupt(tp, plan[rows], FAULTS[Fault(fault)])
        steps = _steps(found[:, :rows], wanted, most_rows)
        yield from ((step, cursor[0] == len(plan) and step is steps[-1]) for step in steps)


def _steps(found: np.ndarray, wanted: ColumnSelection, most_rows: int) -> list[np.ndarray]:
    """Cut what was found where its headers would take too much memory at once."""
    headers = found[RecordField.HEADERS]
    if not wanted.headers or int(headers.sum()) <= most_rows:
        return [found]
    step = np.cumsum(headers) // most_rows
    return np.split(found, np.flatnonzero(np.diff(step)) + 1, axis=1)


def _decoded(data: np.ndarray, found: np.ndarray, wanted: ColumnSelection, next_offset: int) -> Records:
    found, control_records = _split_control(data, found, wanted)
    return Records(
        found.shape[1],
        _binary(data, found[RecordField.KEY_AT], found[RecordField.KEY_LENGTH]) if wanted.key else None,
        _binary(data, found[RecordField.VALUE_AT], found[RecordField.VALUE_LENGTH]) if wanted.value else None,
        _headers(data, found[RecordField.HEADERS_AT], found[RecordField.HEADERS]) if wanted.headers else None,
        # copied, or a view would hold on to all that was found
        found[RecordField.OFFSET].copy(),
        found[RecordField.TIME].copy(),
        found[RecordField.KIND].astype(np.int32),
        next_offset,
        control_records,
    )


def _split_control(
    data: np.ndarray, found: np.ndarray, wanted: ColumnSelection
) -> tuple[np.ndarray, tuple[ControlRecord, ...]]:
    """Split the control records from the rows; records without headers cost one comparison."""
    if wanted.control_header is None or not found[RecordField.HEADERS].any():
        return found, ()
    content = np.zeros((2, found.shape[1]), np.int64)
    name = np.frombuffer(wanted.control_header.encode(), np.uint8)
    if not find_named(data, found[RecordField.HEADERS_AT], found[RecordField.HEADERS], name, content):
        return found, ()
    named = content[1] != UNNAMED
    theirs = found[:, named]
    headers = _binary(data, *content[:, named]).to_pylist()
    values = _binary(data, theirs[RecordField.VALUE_AT], theirs[RecordField.VALUE_LENGTH]).to_pylist()
    offsets = theirs[RecordField.OFFSET].tolist()
    return found[:, ~named], tuple(map(ControlRecord, offsets, headers, values))


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
    found = np.empty((len(HeaderField), ends[-1]), np.int64)
    find_headers(data, starts, counts, found)
    names = text_of(_binary(data, found[HeaderField.NAME_AT], found[HeaderField.NAME_LENGTH]))
    contents = _binary(data, found[HeaderField.CONTENT_AT], found[HeaderField.CONTENT_LENGTH])
    pairs = pa.StructArray.from_arrays([names, contents], names=["key", "value"])
    valid, nulls = _validity(counts > 0)
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [valid, pa.py_buffer(ends)], nulls, children=[pairs])


def _validity(valid: np.ndarray) -> tuple[pa.Buffer | None, int]:
    """Arrow's bitmap, None if nothing is null, and the number of nulls."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls
