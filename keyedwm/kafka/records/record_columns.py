"""The places of records' bytes in Arrow columns, so that they are copied only once: into a record batch.

Rule: to choose and order rows moves positions, never bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyedwm.core.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Records to encode, all columns of the same length; checked when made.

    key, value: binary or string, None for all null; headers: list<struct<key, value>> or None; timestamp_ms: int64.
    """

    timestamp_ms: np.ndarray
    value: pa.Array | None = None
    key: pa.Array | None = None
    headers: pa.Array | None = None

    def __post_init__(self) -> None:
        for name in ("key", "value", "headers"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.timestamp_ms):
                raise InputError(
                    f"column {name} has {len(column)} rows, the timestamps {len(self.timestamp_ms)}: give equally many"
                )


class ColumnBytes(NamedTuple):
    """Values of a column: the start of each in `data` and its length, -1 for null; int64[values], uint8[bytes]."""

    starts: np.ndarray
    lengths: np.ndarray
    data: np.ndarray

    def select(self, order: np.ndarray | slice) -> ColumnBytes:
        """Choose values by position, or a run of them without a copy."""
        return ColumnBytes(self.starts[order], self.lengths[order], self.data)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Positions of all parts of records. headers: int64[2, rows], each row's span in names and contents."""

    timestamp_ms: NDArray[np.int64]
    key: ColumnBytes
    value: ColumnBytes
    headers: NDArray[np.int64]
    names: ColumnBytes
    contents: ColumnBytes

    @property
    def payload_bytes(self) -> int:
        """The bytes of keys and values."""
        return int(np.maximum(self.key.lengths, 0).sum() + np.maximum(self.value.lengths, 0).sum())

    def span(self, start: int, end: int) -> Layout:
        """The rows [start, end), without a copy."""
        return self.select(slice(start, end))

    def select(self, order: np.ndarray | slice) -> Layout:
        """Choose rows by position, in that order."""
        return replace(
            self,
            timestamp_ms=self.timestamp_ms[order],
            key=self.key.select(order),
            value=self.value.select(order),
            headers=np.ascontiguousarray(self.headers[:, order]),
        )


def lay_out(rows: RecordColumns) -> Layout:
    """Find the bytes of rows."""
    count = len(rows.timestamp_ms)
    spans, names, contents = _headers(rows.headers, count)
    return Layout(
        timestamp_ms=np.ascontiguousarray(rows.timestamp_ms, np.int64),
        key=column_bytes(rows.key, count),
        value=column_bytes(rows.value, count),
        headers=spans,
        names=names,
        contents=contents,
    )


def column_bytes(column: pa.Array | None, rows: int) -> ColumnBytes:
    """Return the places of a column's values; binary or string, None for all null."""
    if column is None:
        return ColumnBytes(np.zeros(rows, np.int64), np.full(rows, -1, np.int64), np.empty(0, np.uint8))
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    _, ends_buffer, data_buffer = column.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[column.offset : column.offset + rows + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    lengths = np.diff(ends)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return ColumnBytes(ends[:-1], lengths, data)


def _headers(column: pa.Array | None, rows: int) -> tuple[np.ndarray, ColumnBytes, ColumnBytes]:
    """Return the places of each row's headers, of their names and of their contents."""
    if column is None:
        return np.zeros((2, rows), np.int64), column_bytes(None, 0), column_bytes(None, 0)
    pairs = column.flatten()
    names, contents = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count:
        raise InputError("column headers has an entry without a name: every Kafka header needs one")
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts, dtype=np.int64)
    return np.stack([ends - counts, ends]), column_bytes(names, len(pairs)), column_bytes(contents, len(pairs))
