"""The content of a fetched run of bytes: the headers of its record batches, and which batches have rows.

Rule: nothing here looks inside a batch. Bounds are checked before every read. A batch cut off at the end is left for
the next fetch (KIP-74). Anything except a whole batch of format 2, or a whole message of format 0 or 1, raises
CorruptRecordError. Each message counts as a batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import crc32c
import numpy as np

from keyedwm.kafka.client.errors import CorruptRecordError
from keyedwm.kafka.client.values import TopicPartition
from keyedwm.runtime.compiled import compiled

HEADER_BYTES = 61
LEAST_MESSAGE_BYTES = 26  # of format 0
_EPOCH_AT = 12
CHECKED_FROM = 21  # the checksum covers the attributes and everything after them
CODEC_BITS, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
# Attributes that only the table has: a message of format 0 or 1; a message of format 0, which has no time.
OLD, NO_TIME = 1 << 16, 1 << 17
_OLD_CHECKED_FROM = 16
_ABORT = 0


class BatchField(IntEnum):
    """Headers of the table of batches, one row per batch."""

    START = 0
    END = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    ATTRIBUTES = 4
    FIRST_TIME = 5
    MAX_TIME = 6
    PRODUCER = 7
    COUNT = 8
    CRC = 9


class _Fault(IntEnum):
    NONE = 0
    TOO_SMALL = 1
    OLD_FORMAT = 2
    UNKNOWN_FORMAT = 3
    OFFSETS = 4


_FAULTS = {
    _Fault.TOO_SMALL: "claims fewer bytes than its header has",
    _Fault.UNKNOWN_FORMAT: "is of an unknown message format",
    _Fault.OFFSETS: "has a base offset that is not above the last offset of the batch before it",
}


@dataclass(frozen=True, slots=True)
class Batches:
    """The whole batches in `raw`, in order: `table` is int64[batches, len(BatchField)].

    next_offset: one past the last offset of the last batch, or the requested offset without a batch.
    """

    tp: TopicPartition
    raw: bytes
    table: np.ndarray
    next_offset: int

    def __len__(self) -> int:
        return len(self.table)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last batch; there must be one."""
        return self.leader_epoch_of(-1)

    def leader_epoch_of(self, row: int) -> int:
        """The leader epoch of a batch, -1 for an old message."""
        if self.table[row, BatchField.ATTRIBUTES] & OLD:
            return -1
        at = int(self.table[row, BatchField.START]) + _EPOCH_AT
        return int(struct.unpack_from(">i", self.raw, at)[0])


def find_batches(tp: TopicPartition, raw: bytes, wanted_offset: int) -> Batches:
    """Read the batch headers in the bytes of a fetch from offset `wanted_offset`."""
    data = np.frombuffer(raw, np.uint8)
    table = np.empty((len(raw) // HEADER_BYTES, len(BatchField)), np.int64)
    count, fault, at_offset = _scan(data, table, False)  # noqa: FBT003 (compiled: no keywords)
    if fault == _Fault.OLD_FORMAT:
        table = np.empty((len(raw) // LEAST_MESSAGE_BYTES + 1, len(BatchField)), np.int64)
        count, fault, at_offset = _scan(data, table, True)  # noqa: FBT003 (compiled: no keywords)
    table = table[:count]
    # The intact batches before a damaged one are returned first; the next call fails at the damaged one.
    if fault and not (count and table[-1, BatchField.LAST_OFFSET] >= wanted_offset):
        raise CorruptRecordError.of(tp, int(at_offset), _FAULTS[_Fault(fault)])
    next_offset = max(wanted_offset, int(table[-1, BatchField.LAST_OFFSET]) + 1) if count else wanted_offset
    return Batches(tp, raw, table, next_offset)


def verify(batches: Batches, wanted_offset: int) -> Batches:
    """Check every batch's CRC-32C (an old message's CRC-32); return the batches before the first wrong one.

    Raises CorruptRecordError if no batch from `wanted_offset` on is before it: intact batches are returned first.
    """
    view = memoryview(batches.raw)
    spans = batches.table[:, (BatchField.START, BatchField.END, BatchField.ATTRIBUTES)].tolist()
    computed = np.array([_checksum(view[start:end], attributes) for start, end, attributes in spans], np.int64)
    wrong = np.flatnonzero(computed != batches.table[:, BatchField.CRC])
    if not len(wrong):
        return batches
    whole, row = batches.table[: wrong[0]], batches.table[wrong[0]]
    if len(whole) and whole[-1, BatchField.LAST_OFFSET] >= wanted_offset:
        return replace(batches, table=whole, next_offset=int(whole[-1, BatchField.LAST_OFFSET]) + 1)
    raise CorruptRecordError.of(
        batches.tp, int(row[BatchField.BASE_OFFSET]), "has a wrong checksum", int(row[BatchField.LAST_OFFSET]) + 1
    )


def _checksum(batch: memoryview, attributes: int) -> int:
    return zlib.crc32(batch[_OLD_CHECKED_FROM:]) if attributes & OLD else crc32c.crc32c(batch[CHECKED_FROM:])


def visible(batches: Batches, span: tuple[int, int], aborted: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return the numbers of batches with rows in span[0] <= offset < span[1], without markers and aborted ones.

    aborted: (producer id, first offset) of each aborted transaction the broker named; empty for read_uncommitted.
    """
    table = batches.table
    attributes = table[:, BatchField.ATTRIBUTES]
    keep = (table[:, BatchField.BASE_OFFSET] < span[1]) | (
        (attributes & OLD) != 0
    )  # a compressed set has its first offset inside
    keep &= table[:, BatchField.LAST_OFFSET] >= span[0]
    keep &= ((attributes & CONTROL) == 0) & (table[:, BatchField.COUNT] != 0)
    for row in _of_aborted(batches, aborted):
        keep[row] = False
    return np.flatnonzero(keep)


def _of_aborted(batches: Batches, aborted: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Return the transactional batches of aborted transactions, decided as the Java consumer does."""
    coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
    if not coming:
        return
    open_producers: set[int] = set()
    for row in np.flatnonzero(batches.table[:, BatchField.ATTRIBUTES] & (TRANSACTIONAL | CONTROL)).tolist():
        producer = int(batches.table[row, BatchField.PRODUCER])
        while coming and coming[-1][0] <= batches.table[row, BatchField.LAST_OFFSET]:
            open_producers.add(coming.pop()[1])
        if batches.table[row, BatchField.ATTRIBUTES] & CONTROL:
            if producer in open_producers and _is_abort(batches, row):
                open_producers.discard(producer)
        elif producer in open_producers:
            yield row


def _is_abort(batches: Batches, row: int) -> bool:
    """Whether a control batch is the marker that ends a transaction by aborting it (key: version, type)."""
    # length, attributes, timestamp delta, offset delta, key length: at least one byte each, the key follows
    at, end = (int(batches.table[row, column]) for column in (BatchField.START, BatchField.END))
    marker = memoryview(batches.raw)[at + HEADER_BYTES : end]
    position = _after_varint(marker, 0) + 1
    for _ in range(3):
        position = _after_varint(marker, position)
    if position + 4 > len(marker):
        offset = int(batches.table[row, BatchField.BASE_OFFSET])
        raise CorruptRecordError.of(batches.tp, offset, "is a control batch without a transaction marker", offset + 1)
    return bool(struct.unpack_from(">hh", marker, position)[1] == _ABORT)


def _after_varint(data: memoryview, position: int) -> int:
    while position < len(data) and data[position] & 0x80:
        position += 1
    return position + 1


@compiled
def _big_endian(data, at, width):  # type: ignore[no-untyped-def]
    value = np.int64(data[at])
    if value > 127 and width > 1:
        value -= 256
    for i in range(at + 1, at + width):
        value = (value << 8) | np.int64(data[i])
    return value


@compiled
def _note_message(data, at, end, offset, row):  # type: ignore[no-untyped-def]
    """Fill the row of a message of format 0 or 1."""
    version = np.int64(data[at + 16])
    row[0], row[1] = at, end
    row[2], row[3] = offset, offset
    row[4] = (np.int64(data[at + 17]) & 15) | (1 << 16) | ((1 - version) << 17)
    row[5] = row[6] = _big_endian(data, at + 18, 8) if version else np.int64(-1)
    row[7], row[8] = -1, 1
    row[9] = _big_endian(data, at + 12, 4) & 0xFFFFFFFF


@compiled
def _scan(data, table, old_too):  # type: ignore[no-untyped-def]
    """Fill the table; returns (batches found, fault, base offset of the faulty batch)."""
    at, count, size = 0, 0, len(data)
    least_base = np.int64(-1)
    while at + 17 <= size:
        base = _big_endian(data, at, 8)
        end = at + 12 + _big_endian(data, at + 8, 4)
        version = data[at + 16]
        if version < 2 and not old_too:
            return count, 2, base
        if version > 2:
            return count, 3, base
        if end < at + (61 if version == 2 else 26 + 8 * version):
            return count, 1, base
        if end > size:
            break
        if version < 2:
            if base <= least_base:
                return count, 4, base
            _note_message(data, at, end, base, table[count])
            least_base = base
            count += 1
            at = end
            continue
        last_delta = _big_endian(data, at + 23, 4)
        last = base + last_delta
        if base <= least_base or last_delta < 0 or last < base:
            return count, 4, base
        row = table[count]
        row[0] = at
        row[1] = end
        row[2] = base
        row[3] = last
        row[4] = _big_endian(data, at + 21, 2)
        row[5] = _big_endian(data, at + 27, 8)
        row[6] = _big_endian(data, at + 35, 8)
        row[7] = _big_endian(data, at + 43, 8)
        row[8] = _big_endian(data, at + 57, 4)
        row[9] = _big_endian(data, at + 17, 4) & 0xFFFFFFFF
        least_base = last
        count += 1
        at = end
    return count, 0, np.int64(-1)
