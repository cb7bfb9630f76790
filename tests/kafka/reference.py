"""Independent readers and writers of record batches to compare ours with.

kafka-python's for sound batches; for damaged ones a plain reader written from the format's description, because
kafka-python reads a record's attributes as a number of changing length and stops at a header name that is no UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import crc32c
import kafka.codec
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from keyedwm.kafka.client.values import LIMITS, Codec, TopicPartition, WireLimits
from keyedwm.kafka.records.batches import find_batches, verify
from keyedwm.kafka.records.read import ColumnSelection, read_records

WHERE = TopicPartition("t", 3)
EVERYTHING = (0, 2**62)


class Record(NamedTuple):
    """A record as a test writes and compares it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: int = 0


_ATTRIBUTES, _GZIP_TIME = 22, slice(65, 69)


def write(records: Sequence[Record], codec: Codec = Codec.NONE, **producer: Any) -> bytes:
    """One batch by kafka-python's builder; offsets are relative to the first record's."""
    who = {"is_transactional": False, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1} | producer
    builder = DefaultRecordBatchBuilder(magic=2, compression_type=int(codec), batch_size=1 << 30, **who)
    base = records[0].offset
    for record in records:
        builder.append(record.offset - base, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytearray(builder.build())
    batch[:8] = base.to_bytes(8, "big")
    if batch[_ATTRIBUTES] & 7 == Codec.GZIP:  # the builder leaves alone what would only get longer
        batch[_GZIP_TIME] = bytes(4)  # when it was made: a seed must give the same bytes again
        return signed(batch)
    return bytes(batch)


def signed(batch: bytes | bytearray) -> bytes:
    """The same batch with a checksum that fits its bytes."""
    return bytes(batch[:17]) + struct.pack(">I", crc32c.crc32c(bytes(batch[21:]))) + bytes(batch[21:])


def with_attributes(batch: bytes, bits: int) -> bytes:
    """The same batch with more attribute bits set."""
    (attributes,) = struct.unpack_from(">h", batch, 21)
    return signed(batch[:21] + struct.pack(">h", attributes | bits) + batch[23:])


def read_by_reference(batch: bytes) -> list[Record]:
    """The records of one batch by kafka-python's reader."""
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers or ()), r.timestamp_type)
        for r in DefaultRecordBatch(batch)
    ]


def read_plainly(batch: bytes) -> list[Record]:
    """The records of one sound or damaged batch, one by one; raises whatever it stumbles over."""
    base, attributes = struct.unpack_from(">q", batch)[0], struct.unpack_from(">h", batch, 21)[0]
    first, latest = struct.unpack_from(">qq", batch, 27)
    record_bytes = _DECOMPRESS[attributes & 7](batch[61 : 12 + struct.unpack_from(">i", batch, 8)[0]])
    records, at = [], 0
    for _ in range(struct.unpack_from(">i", batch, 57)[0]):
        length, at = _number(record_bytes, at)
        end = at + length
        time, at = _number(record_bytes, at + 1)
        offset, at = _number(record_bytes, at)
        key, at = _bytes(record_bytes, at)
        value, at = _bytes(record_bytes, at)
        count, at = _number(record_bytes, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(record_bytes, at)
            content, at = _bytes(record_bytes, at)
            headers.append((name.decode("utf-8", "replace"), content))
        if at != end:
            raise ValueError("lengths do not add up")
        timestamp = latest if attributes & 8 else first + time
        records.append(Record(base + offset, timestamp, key, value, tuple(headers), (attributes >> 3) & 1))
    return records


_DECOMPRESS = {
    0: bytes,
    1: kafka.codec.gzip_decode,
    2: kafka.codec.snappy_decode,
    3: kafka.codec.lz4_decode,
    4: kafka.codec.zstd_decode,
}


def _number(record_bytes: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = record_bytes[at]
        result |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return (result >> 1) ^ -(result & 1), at


def _bytes(record_bytes: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _number(record_bytes, at)
    return (None, at) if length < 0 else (record_bytes[at : at + length], at + length)


def read_by_us(
    raw: bytes,
    span: tuple[int, int] = EVERYTHING,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    limits: WireLimits = LIMITS,
) -> list[Record]:
    """The records of any number of batches by our reader, all columns, Arrow's own checks included."""
    batches = find_batches(WHERE, raw, span[0])
    whole = verify(batches, span[0])
    if len(whole) < len(batches):
        # A fetch would stop here and meet the damaged batch first in the next answer.
        verify(replace(batches, table=batches.table[len(whole) :]), span[0])
    own_records: list[Record] = []
    for records in read_records(batches, span, ColumnSelection(headers=True), aborted, limits):
        for column in (records.key, records.value, records.headers):
            column.validate(full=True)
        headers = [tuple((h["key"], h["value"]) for h in row or ()) for row in records.headers.to_pylist()]
        own_records += map(
            Record,
            records.offset.tolist(),
            records.timestamp_ms.tolist(),
            records.key.to_pylist(),
            records.value.to_pylist(),
            headers,
            records.timestamp_type.tolist(),
        )
    return own_records
