"""Record batches of in-band rows: events by whole columns, control rows one by one (they are rare).

Rule: this module decides nothing. It lays out the rows that its callers decided on, in the callers' schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from dataclasses import field as attribute
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyedwm.arrow.control_rows import control_array
from keyedwm.arrow.schema import RECORD_TYPE, REJECTED_TYPE, TIMESTAMP, US_PER_MS, axis_column
from keyedwm.core.control_row import ControlRow
from keyedwm.core.places import Field
from keyedwm.core.rows import CONTROL, EVENT_TIME, HEADERS, REJECTED, WATERMARK, topic_partition

if TYPE_CHECKING:
    from keyedwm.arrow.places import FieldColumns

_SMALL_ROWS = 4_096
_FULL_ROWS = 16_384
_FULL_BYTES = 64 << 20  # far below the 2 GiB of values that one Arrow binary column can hold
_FEW_CONTROL = 256
_LARGEST_MS = (2**63 - 1) // US_PER_MS
# A row with a rejected record has these columns, and no value of an event.
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Rejects:
    """The rejected records of a run. marked: whether each record is one. reasons: a text for each of them, in order."""

    marked: NDArray[np.bool_]
    reasons: pa.Array


@dataclass(frozen=True, kw_only=True)
class Events:
    """Decoded records of one channel, column by column; a column that was not requested is None.

    offset: int64; timestamp_ms: int64; timestamp_type: int32 (array or one number); event_ms: axis name → (int64 ms,
    validity or None). All have the length `count`. rejects: the rejected records, whose rows have no event time; None
    for none. decoded: the values of fields that were read with a schema.
    """

    topic: str
    partition: int
    count: int
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None
    offset: NDArray[np.int64]
    timestamp_ms: NDArray[np.int64]
    timestamp_type: NDArray[np.int32] | int
    event_ms: Mapping[str, tuple[NDArray[np.int64], NDArray[np.bool_] | None]]
    rejects: Rejects | None = None
    decoded: Mapping[Field, pa.Array] = attribute(default_factory=dict)

    def where(self, mask: NDArray[np.bool_]) -> Events:
        """Return the events that the mask selects; none of them is a reject then."""
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        arrays = {name: value.filter(pa.array(mask)) for name, value in columns.items() if isinstance(value, pa.Array)}
        arrays |= {name: value[mask] for name, value in columns.items() if isinstance(value, np.ndarray)}
        times = {
            axis: (ms[mask], None if valid is None else valid[mask]) for axis, (ms, valid) in self.event_ms.items()
        }
        decoded = {place: values.filter(pa.array(mask)) for place, values in self.decoded.items()}
        return replace(self, **arrays, event_ms=times, decoded=decoded, count=int(np.count_nonzero(mask)), rejects=None)


class RowBuilder:
    """Lays out rows of one batch; `watermarks` maps each axis to the coalesced watermark stamped on every row (ms).

    fields: reads columns out of keys and values.
    """

    def __init__(
        self, schema: pa.Schema, watermarks: Mapping[str, int | None], fields: FieldColumns | None = None
    ) -> None:
        self.schema = schema
        self._fields = fields
        self._watermarks = dict(watermarks)
        self._event: dict[str, Callable[[Events], pa.Array]] = {
            "key": lambda e: e.key,
            "value": lambda e: e.value,
            "topic": lambda e: pa.repeat(pa.scalar(e.topic, pa.string()), e.count),
            "partition": lambda e: _constant(e.partition, np.int32, e.count),
            "offset": lambda e: pa.array(e.offset),
            "timestamp": lambda e: timestamps(e.timestamp_ms, None),
            "timestampType": lambda e: _constant(e.timestamp_type, np.int32, e.count),
            HEADERS: lambda e: e.headers,
            CONTROL: lambda e: pa.nulls(e.count, self.schema.field(CONTROL).type),
            REJECTED: _rejected,
        }
        for axis in watermarks:
            self._event[axis_column(EVENT_TIME, axis)] = lambda e, axis=axis: timestamps(*e.event_ms[axis])  # type: ignore[misc]
            self._event[axis_column(WATERMARK, axis)] = lambda e, axis=axis: self._stamp(axis, e.count)  # type: ignore[misc]

    def events(self, events: Events) -> pa.RecordBatch:
        """Lay out one run of rows. A rejected record's row has only its place, the watermarks and column `rejected`."""
        read = {} if self._fields is None else self._fields.read(events.key, events.value, events.decoded)
        arrays = [read[f.name] if f.name in read else self._event[f.name](events) for f in self.schema]
        if events.rejects is not None:
            positions = pa.array(np.arange(events.count), mask=events.rejects.marked)
            arrays = [
                array.take(positions) if field.name not in (*_PLACE, REJECTED) and not self._is_stamp(field) else array
                for field, array in zip(self.schema, arrays, strict=True)
            ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def control(self, control_rows: Sequence[ControlRow]) -> pa.RecordBatch:
        """Lay out control rows, in their order."""
        channels = [(None, None) if row.channel is None else topic_partition(row.channel) for row in control_rows]
        columns = {
            "topic": [topic for topic, _ in channels],
            "partition": [partition for _, partition in channels],
            "offset": [row.offset for row in control_rows],
        }
        count = len(control_rows)
        arrays = []
        for field in self.schema:
            axis = next((a for a in self._watermarks if field.name == axis_column(WATERMARK, a)), None)
            if axis is not None:
                arrays.append(self._stamp(axis, count))
            elif field.name in columns:
                arrays.append(pa.array(columns[field.name], field.type))
            elif field.name == CONTROL:
                arrays.append(control_array(control_rows))
            else:
                arrays.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def interleave(
        self, events: pa.RecordBatch, control_rows: Sequence[ControlRow], before: Sequence[int]
    ) -> pa.RecordBatch:
        """Put control row i before event row `before[i]` (ascending), in the order of `control_rows`."""
        both = pa.concat_batches([events, self.control(control_rows)])
        # A control row sorts just before its event; numpy's stable sort keeps every other order.
        places = np.concatenate([np.arange(events.num_rows) * 2 + 1, np.asarray(before, np.int64) * 2])
        return both.take(pa.array(np.argsort(places, kind="stable")))

    def _is_stamp(self, field: pa.Field) -> bool:
        return field.name in (axis_column(WATERMARK, axis) for axis in self._watermarks)

    def _stamp(self, axis: str, count: int) -> pa.Array:
        ms = self._watermarks[axis]
        if ms is None:
            return pa.nulls(count, TIMESTAMP)
        return pa.array(np.full(count, ms * US_PER_MS, np.int64)).view(TIMESTAMP)


def rejected_records(events: Events, rejects: Rejects) -> pa.Array:
    """Return the rejected records of a run, each whole and with its reason (`REJECTED_TYPE`)."""
    records = RowBuilder(pa.schema(list(RECORD_TYPE)), {}).events(events.where(rejects.marked))
    return pa.StructArray.from_arrays([*records.columns, rejects.reasons], fields=list(REJECTED_TYPE))


def _rejected(events: Events) -> pa.Array:
    """The column of rejected records, null for each event."""
    if events.rejects is None:
        return pa.nulls(events.count, REJECTED_TYPE)
    marked = events.rejects.marked
    at = pa.array(np.cumsum(marked) - 1, mask=~marked)
    return rejected_records(events, events.rejects).take(at)


def timestamps(ms: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> pa.Array:
    """Turn milliseconds into Spark timestamps; invalid times, and times beyond a timestamp's range, become null."""
    unfit = (ms > _LARGEST_MS) | (ms < -_LARGEST_MS)
    if unfit.any():
        ms, valid = np.where(unfit, 0, ms), ~unfit if valid is None else valid & ~unfit
    us = ms * US_PER_MS
    return pa.array(us, mask=None if valid is None else ~valid).view(TIMESTAMP)


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join runs of small batches (small channels, control rows) in their order, so that Spark gets few batches.

    A joined batch has at most _FULL_BYTES; a batch that is larger already is passed on without a copy.
    """
    run: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if run and size + batch.nbytes > _FULL_BYTES:
            yield _joined(run)
            run, rows, size = [], 0, 0
        run.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if batch.num_rows >= _SMALL_ROWS or rows >= _FULL_ROWS:
            yield _joined(run)
            run, rows, size = [], 0, 0
    if run:
        yield _joined(run)


def grouped(
    batches: Iterable[pa.RecordBatch],
    enough_rows: int,
    enough_bytes: int,
    is_full: Callable[[], bool] = lambda: False,
) -> Iterator[pa.Table]:
    """Join Spark's small batches into tables of at least `enough_rows` or `enough_bytes`; the last may be smaller.

    is_full: whether the table must end here for another reason.
    """
    run: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        run.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= enough_rows or size >= enough_bytes or is_full():
            yield pa.Table.from_batches(run)
            run, rows, size = [], 0, 0
    if run:
        yield pa.Table.from_batches(run)


def split_control(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split into (event rows, control rows), each in order. If control rows are few, event rows are not copied."""
    if not rows.num_rows:
        return rows, rows  # before Arrow 26, indices_nonzero ends the process over a column without chunks
    is_control = pc.is_valid(rows.column(CONTROL))
    at = pc.indices_nonzero(is_control).to_numpy()
    control = rows.take(pa.array(at))
    if len(at) > _FEW_CONTROL:
        return rows.filter(pc.invert(is_control)), control
    ends = [*at, rows.num_rows]
    begins = [0, *(at + 1)]
    return pa.concat_tables(rows.slice(a, b - a) for a, b in zip(begins, ends, strict=True)), control


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _constant(value: NDArray[np.int32] | int, dtype: type, count: int) -> pa.Array:
    return pa.array(np.full(count, value, dtype) if np.ndim(value) == 0 else value)
