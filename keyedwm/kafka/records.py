"""Record batches (format 2) as Arrow columns.

Rule: only wanted columns are built; bytes are copied once, from the fetched bytes (or the decompressed ones) into Arrow's
buffers. What cannot be read is a CorruptRecordError naming topic, partition and offset; never a wrong row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from keyedwm.kafka.batches import CODEC_BITS, HEADER_BYTES, LOG_APPEND_TIME, Batches, Column, carrying
from keyedwm.kafka.codecs import DamagedError, TooLargeError, decompress
from keyedwm.kafka.decode import FAULTS, Fault, Plan, Total, decode
from keyedwm.kafka.errors import CorruptRecordError
from keyedwm.kafka.values import Codec, TopicPartition

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
CHUNK_BYTES = 4 << 20
LARGEST_BATCH_BYTES = 128 << 20
_LEAST_RECORD_BYTES = 7


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of the costly columns to build; offsets and timestamps always come."""

    key: bool = True
    value: bool = True
    headers: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records of one partition in offset order, one row each.

    key, value: binary, or None if not wanted; headers: list<struct<key, value>>, null for a record without any.
    offset: int64; timestamp_ms: int64; timestamp_type: int32, 0 create time, 1 log-append time.
    next_offset: the first offset not looked at yet: beyond the last row where offsets are missing.
    """

    count: int
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None
    offset: np.ndarray
    timestamp_ms: np.ndarray
    timestamp_type: np.ndarray
    next_offset: int


def read_records(
    batches: Batches, start: int, end: int, wanted: Wanted, aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[Records]:
    """Yield the records with start <= offset < end, some MB at a time; the last one's next_offset is behind all batches.

    At least one Records comes, perhaps without rows. Batches of the aborted transactions are left out, control batches always.
    """
    chosen = carrying(batches, start, end, aborted)
    finish = min(end, batches.next_offset)
    if not len(chosen):
        yield no_records(wanted, max(start, finish))
        return
    pieces = _pieces(batches, chosen)
    piece = next(pieces)
    while piece is not None:
        following = next(pieces, None)
        # A batch not chosen (a marker, an aborted one) is passed together with the rows before it.
        after = int(batches.table[following[0], Column.BASE_OFFSET]) if following else finish
        _, data, plan = piece
        yield _decoded(batches.where, data, plan, (start, end), wanted, min(after, finish))
        piece = following


def no_records(wanted: Wanted, next_offset: int) -> Records:
    """Nothing but progress."""
    return Records(
        0,
        pa.array([], pa.binary()) if wanted.key else None,
        pa.array([], pa.binary()) if wanted.value else None,
        pa.array([], HEADERS_TYPE) if wanted.headers else None,
        np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), next_offset,
    )  # fmt: skip


def _pieces(batches: Batches, chosen: np.ndarray) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Runs of batches worth decoding together: (first row of the table, bytes, plan into the bytes)."""
    table = batches.table[chosen]
    codecs = table[:, Column.ATTRIBUTES] & CODEC_BITS
    plan = np.empty((len(chosen), len(Plan)), np.int64)
    plan[:, Plan.START] = table[:, Column.START] + HEADER_BYTES
    plan[:, Plan.END] = table[:, Column.END]
    plan[:, Plan.BASE_OFFSET] = table[:, Column.BASE_OFFSET]
    plan[:, Plan.LAST_OFFSET] = table[:, Column.LAST_OFFSET]
    plan[:, Plan.COUNT] = table[:, Column.COUNT]
    plan[:, Plan.FIRST_TIME] = table[:, Column.FIRST_TIME]
    plan[:, Plan.APPEND_TIME] = table[:, Column.MAX_TIME]
    plan[:, Plan.LOG_APPENDED] = (table[:, Column.ATTRIBUTES] & LOG_APPEND_TIME) != 0
    if not codecs.any():
        yield int(chosen[0]), batches.raw, plan
        return
    view = memoryview(batches.raw)
    first, size, parts = 0, 0, []
    for i in range(len(chosen)):
        part = _opened(batches, table[i], view[plan[i, Plan.START] : plan[i, Plan.END]])
        if parts and size + len(part) > CHUNK_BYTES:
            yield int(chosen[first]), b"".join(parts), plan[first:i]
            first, size, parts = i, 0, []
        plan[i, Plan.START], plan[i, Plan.END] = size, size + len(part)
        size += len(part)
        parts.append(part)
    yield int(chosen[first]), b"".join(parts), plan[first:]


def _opened(batches: Batches, row: np.ndarray, data: memoryview) -> bytes:
    """The records of one batch, decompressed."""
    offset, after = int(row[Column.BASE_OFFSET]), int(row[Column.LAST_OFFSET]) + 1
    number = int(row[Column.ATTRIBUTES]) & CODEC_BITS
    if number not in Codec._value2member_map_:
        raise CorruptRecordError.of(batches.where, offset, f"is compressed by an unknown codec ({number})", after)
    codec = Codec(number)
    try:
        opened = decompress(codec, data, LARGEST_BATCH_BYTES)
    except TooLargeError as error:
        found = f"decompresses ({codec.name.lower()}) to more than {LARGEST_BATCH_BYTES} bytes"
        raise CorruptRecordError.of(batches.where, offset, found, after) from error
    except DamagedError as error:
        found = f"cannot be decompressed ({codec.name.lower()}: {error})"
        raise CorruptRecordError.of(batches.where, offset, found, after) from error
    if int(row[Column.COUNT]) > len(opened) // _LEAST_RECORD_BYTES:
        raise CorruptRecordError.of(batches.where, offset, "claims more records than its bytes can hold", after)
    return opened


def _decoded(
    where: TopicPartition, data: bytes, plan: np.ndarray, span: tuple[int, int], wanted: Wanted, next_offset: int
) -> Records:
    rows = int(plan[:, Plan.COUNT].sum())
    size = int((plan[:, Plan.END] - plan[:, Plan.START]).sum())
    totals = np.zeros(len(Total), np.int64)
    offset, time, kind = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
    key, value = _Bytes(wanted.key, rows, size), _Bytes(wanted.value, rows, size)
    headers = _Bytes(wanted.headers, rows, 0)
    name, content = (_Bytes(wanted.headers, size // 2, size) for _ in range(2))
    fault, at = decode(
        np.frombuffer(data, np.uint8), plan, span[0], span[1], (wanted.key, wanted.value, wanted.headers), totals,
        offset, time, kind, key.ends, key.data, key.valid, value.ends, value.data, value.valid,
        headers.ends, headers.valid, name.ends, name.data, content.ends, content.data, content.valid,
    )  # fmt: skip
    if fault:
        row = plan[at]
        raise CorruptRecordError.of(
            where, int(row[Plan.BASE_OFFSET]), FAULTS[Fault(fault)], int(row[Plan.LAST_OFFSET]) + 1
        )
    n, many = int(totals[Total.ROWS]), int(totals[Total.HEADERS])
    return Records(
        n,
        key.array(n, totals[Total.KEY_BYTES], totals[Total.NULL_KEYS]) if wanted.key else None,
        value.array(n, totals[Total.VALUE_BYTES], totals[Total.NULL_VALUES]) if wanted.value else None,
        headers.lists(
            n, totals[Total.NULL_HEADERS],
            name.strings(many, totals[Total.HEADER_KEY_BYTES]),
            content.array(many, totals[Total.HEADER_VALUE_BYTES], totals[Total.NULL_HEADER_VALUES]),
        ) if wanted.headers else None,
        offset[:n], time[:n], kind[:n], next_offset,
    )  # fmt: skip


class _Bytes:
    """Room for the buffers of one column of at most `rows` values and `size` bytes; untouched room costs no memory."""

    def __init__(self, wanted: bool, rows: int, size: int) -> None:
        rows, size = (rows, size) if wanted else (0, 0)
        self.ends = np.empty(rows + 1, np.int32)
        self.ends[0] = 0
        self.data = np.empty(size, np.uint8)
        self.valid = np.zeros((rows + 7) // 8, np.uint8)

    def array(self, rows: int, size: int, nulls: int, kind: pa.DataType | None = None) -> pa.Array:
        """The column: its first `rows` values."""
        valid = pa.py_buffer(self.valid[: (rows + 7) // 8]) if nulls else None
        buffers = [valid, pa.py_buffer(self.ends[: rows + 1]), pa.py_buffer(self.data[:size])]
        return pa.Array.from_buffers(kind or pa.binary(), rows, buffers, int(nulls))

    def strings(self, rows: int, size: int) -> pa.Array:
        """The column as strings; bytes that are no UTF-8 are replaced, as Java does."""
        if _is_ascii(self.data[:size]):
            return self.array(rows, size, 0, pa.string())
        texts = self.array(rows, size, 0).to_pylist()
        return pa.array([text.decode("utf-8", "replace") for text in texts], pa.string())

    def lists(self, rows: int, nulls: int, names: pa.Array, contents: pa.Array) -> pa.Array:
        """Lists of (key, value) structs, one per row."""
        pairs = pa.StructArray.from_arrays([names, contents], names=["key", "value"])
        valid = pa.py_buffer(self.valid[: (rows + 7) // 8]) if nulls else None
        return pa.Array.from_buffers(
            HEADERS_TYPE, rows, [valid, pa.py_buffer(self.ends[: rows + 1])], int(nulls), children=[pairs]
        )


def _is_ascii(data: np.ndarray) -> bool:
    return not len(data) or int(data.max()) < 128
