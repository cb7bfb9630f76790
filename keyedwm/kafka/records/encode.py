"""Arrow columns as record batches (format 2): the opposite of `records`.

Rule: rows stay in order, a batch holds at most `batch_bytes` before compression unless one record alone is larger, and
bytes are copied once. Offsets and times are deltas to the batch's first record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import crc32c
import numpy as np

from keyedwm.kafka.client.values import LIMITS, Codec
from keyedwm.kafka.records.batches import CHECKED_FROM, HEADER_BYTES, TRANSACTIONAL
from keyedwm.kafka.records.codecs import compress
from keyedwm.kafka.records.record_columns import Layout, RecordColumns, lay_out
from keyedwm.runtime.compiled import compiled, inlined

_NO_PRODUCER = -1
_NUMBERS_BYTES = 31  # the most bytes of a record's lengths, deltas and header count
_NO_LEADER_EPOCH, _FORMAT = -1, 2


class Producer(NamedTuple):
    """The producer that writes: the broker drops repeated sequences of one producer, and fences older epochs."""

    producer_id: int = _NO_PRODUCER
    epoch: int = _NO_PRODUCER
    transactional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One encoded record batch."""

    data: bytes
    count: int


def encode(
    rows: RecordColumns | Layout,
    *,
    codec: Codec = Codec.NONE,
    producer: Producer | None = None,
    base_sequence: int = 0,
    batch_bytes: int = LIMITS.batch_bytes,
) -> Iterator[Batch]:
    """Yield the record batches of the rows; sequences count up from `base_sequence` if there is a producer."""
    laid = lay_out(rows) if isinstance(rows, RecordColumns) else rows
    times, key, value, names, contents = laid.timestamp_ms, laid.key, laid.value, laid.names, laid.contents
    fields = np.stack([key.starts, key.lengths, value.starts, value.lengths])
    pairs = np.stack([names.starts, names.lengths, contents.starts, contents.lengths])
    data = (key.data, value.data, names.data, contents.data)
    header_sizes = np.zeros(len(times), np.int64)
    _measure_headers(laid.headers, pairs, header_sizes)
    sizes = np.maximum(key.lengths, 0) + np.maximum(value.lengths, 0) + header_sizes + _NUMBERS_BYTES
    sequence = base_sequence
    cuts = list(_cuts(sizes, batch_bytes))
    # One buffer for all batches: new memory costs more than writing into it.
    out = np.empty(HEADER_BYTES + max((int(sizes[first:last].sum()) for first, last in cuts), default=0), np.uint8)
    for first, last in cuts:
        end = _write(out, (first, last), times, fields, data, (header_sizes, laid.headers), pairs)
        yield Batch(_finished(out[:end], codec, times[first:last], producer or Producer(), sequence), last - first)
        sequence = (sequence + last - first) & 0x7FFFFFFF


def _cuts(sizes: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Return runs of rows whose sizes add up to at most `limit`, but at least one row each."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + limit, "right")))
        yield first, last
        first = last


def _finished(out: np.ndarray, codec: Codec, times: np.ndarray, producer: Producer, sequence: int) -> bytes:
    """The batch with its header in front, compressed."""
    if codec is not Codec.NONE:
        packed = compress(codec, out.data[HEADER_BYTES:])
        out = np.concatenate([out[:HEADER_BYTES], np.frombuffer(packed, np.uint8)])
    attributes = int(codec) | (TRANSACTIONAL if producer.transactional else 0)
    if producer.producer_id == _NO_PRODUCER:
        sequence = _NO_PRODUCER
    count, first, latest = len(times), int(times[0]), int(times.max())
    header = (attributes, count - 1, first, latest, producer.producer_id, producer.epoch, sequence, count)
    struct.pack_into(">hiqqqhii", out.data, CHECKED_FROM, *header)
    checksum = crc32c.crc32c(out.data[CHECKED_FROM:])
    struct.pack_into(">qiibI", out.data, 0, 0, len(out) - 12, _NO_LEADER_EPOCH, _FORMAT, checksum)
    return out.tobytes()


@compiled
def _measure_headers(spans, pairs, sizes):  # type: ignore[no-untyped-def]
    """Bytes of each row's headers, without their count."""
    for i in range(len(sizes)):
        for h in range(spans[0, i], spans[1, i]):
            name, content = pairs[1, h], pairs[3, h]
            sizes[i] += _size(name) + name + _size(content) + max(content, 0)


@compiled
def _write(out, span, times, fields, data, headers, pairs):  # type: ignore[no-untyped-def]  # noqa: PLR0917 (compiled: no keywords)
    """Write the records [span[0], span[1]) after the room for the header; return the end."""
    at, first = 61, span[0]
    keys, values, names, contents = data
    header_sizes, spans = headers
    for i in range(first, span[1]):
        time, offset, many = times[i] - times[first], i - first, spans[1, i] - spans[0, i]
        key, value = fields[1, i], fields[3, i]
        size = 1 + _size(time) + _size(offset) + _size(key) + max(key, 0) + _size(value) + max(value, 0)
        at = _number(out, at, size + _size(many) + header_sizes[i])
        out[at] = 0  # attributes, unused
        at = _number(out, _number(out, at + 1, time), offset)
        at = _field(out, at, keys, fields[0, i], key)
        at = _field(out, at, values, fields[2, i], value)
        at = _number(out, at, many)
        for h in range(spans[0, i], spans[1, i]):
            at = _field(out, at, names, pairs[0, h], pairs[1, h])
            at = _field(out, at, contents, pairs[2, h], pairs[3, h])
    return at


@inlined
def _field(out, at, data, start, length):  # type: ignore[no-untyped-def]
    at = _number(out, at, length)
    if length <= 0:
        return at
    # unsigned: positions that might count from the end would keep the copy from being vectorised
    to, begin = np.uint64(at), np.uint64(start)
    for i in range(np.uint64(length)):
        out[to + i] = data[begin + i]
    return at + length


@inlined
def _number(out, at, number):  # type: ignore[no-untyped-def]
    """Write a zigzag number; returns the position after it."""
    rest, at = np.uint64((number << 1) ^ (number >> 63)), np.uint64(at)
    while rest >= np.uint64(128):
        out[at] = np.uint8((rest & np.uint64(127)) | np.uint64(128))
        rest >>= np.uint64(7)
        at += np.uint64(1)
    out[at] = np.uint8(rest)
    return np.int64(at) + 1


@inlined
def _size(number):  # type: ignore[no-untyped-def]
    """Bytes that `_number` takes."""
    rest, size = np.uint64((number << 1) ^ (number >> 63)), 1
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    return size
