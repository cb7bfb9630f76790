"""Messages of format 0 and 1, which Kafka before 0.11 wrote and topics may still hold, as records.

Rule: as for format 2, every length is checked before it is followed. A compressed message contains a set of
messages; in format 1 their offsets count from the first message of the set, and the outer message has the absolute
offset of the last one. Format 0 has no times: time and kind are -1, as Kafka's own consumer has them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.client.values import Codec, WireLimits
from keyedwm.kafka.records.batches import CODEC_BITS, LEAST_MESSAGE_BYTES, LOG_APPEND_TIME, NO_TIME, Batches, BatchField
from keyedwm.kafka.records.decode import RecordField
from keyedwm.kafka.records.pieces import ENLARGE, opened
from keyedwm.runtime.compiled import bare, inlined

_BODY_AT, _TIME_BYTES = 18, 8
_LZ4_MAGIC_BYTES, _LZ4_SIZE_BIT = 4, 0x08
_OWN_TIME = -2  # no common time for the set: each message has its own


class _Fault(IntEnum):
    NONE = 0
    LENGTH = 1
    OFFSET = 2
    NESTED = 3


_FAULTS = {
    _Fault.LENGTH: "has a message whose lengths do not add up",
    _Fault.OFFSET: "has a message whose offset does not follow the one before",
    _Fault.NESTED: "has a message of another format or a compressed one inside a compressed one",
}


def messages(
    batches: Batches, rows: np.ndarray, span: tuple[int, int], limits: WireLimits
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Find the messages with span[0] <= offset < span[1] in these rows of the table, all of an old format.

    Yields bytes, the fields of their messages (see RecordField), and whether nothing follows.
    """
    table = batches.table[rows]
    is_compressed = (table[:, BatchField.ATTRIBUTES] & CODEC_BITS) != 0
    # Uncompressed messages follow each other, so they are read together.
    groups = np.split(table, np.flatnonzero(is_compressed[1:] | is_compressed[:-1]) + 1)
    for number, group in enumerate(groups):
        first, last = group[0], group[-1]
        base, time_ms = 0, _OWN_TIME
        if first[BatchField.ATTRIBUTES] & CODEC_BITS:
            data = np.frombuffer(_unpacked(batches, first, limits), np.uint8)
            at, end = 0, len(data)
            if not first[BatchField.ATTRIBUTES] & NO_TIME:
                base = int(first[BatchField.LAST_OFFSET]) - int(last_offset(data))
            if first[BatchField.ATTRIBUTES] & LOG_APPEND_TIME:
                time_ms = int(first[BatchField.MAX_TIME])
        else:
            data = np.frombuffer(batches.raw, np.uint8)
            at, end = int(first[BatchField.START]), int(last[BatchField.END])
        cursor = np.array([at, -1], np.int64)
        while cursor[0] < end:
            fields = np.empty(
                (len(RecordField), min((end - int(cursor[0])) // LEAST_MESSAGE_BYTES + 1, limits.rows)), np.int64
            )
            count, fault = find_messages(data, end, base, time_ms, span, fields, cursor)
            if fault:
                offset = int(
                    group[np.searchsorted(group[:, BatchField.START], cursor[0], "right") - 1, BatchField.LAST_OFFSET]
                )
                raise CorruptRecordError.of(batches.tp, offset, _FAULTS[_Fault(fault)], offset + 1)
            yield data, fields[:, :count], cursor[0] == end and number == len(groups) - 1


def _unpacked(batches: Batches, row: np.ndarray, limits: WireLimits) -> bytes:
    """The set of messages in a compressed message."""
    tp, offset = batches.tp, int(row[BatchField.LAST_OFFSET])
    view = memoryview(batches.raw)[int(row[BatchField.START]) : int(row[BatchField.END])]
    at = _BODY_AT + (0 if row[BatchField.ATTRIBUTES] & NO_TIME else _TIME_BYTES)
    at += 4 + max(struct.unpack_from(">i", view, at)[0], 0)  # the key
    if at + 4 > len(view) or at + 4 + struct.unpack_from(">i", view, at)[0] != len(view):
        raise CorruptRecordError.of(tp, offset, _FAULTS[_Fault.LENGTH], offset + 1)
    packed = view[at + 4 :]
    if row[BatchField.ATTRIBUTES] & NO_TIME and row[BatchField.ATTRIBUTES] & CODEC_BITS == Codec.LZ4:
        packed = _with_lz4_checksum(packed)
    content = io.BytesIO()
    for chunk in opened(tp, row, packed, limits):
        content.write(chunk)
        if content.tell() > limits.unit_bytes:
            raise RecordTooLargeError(
                f"the compressed messages at offset {offset} of {tp} take more than the {limits.unit_bytes} bytes that "
                f"may be decompressed at once: {ENLARGE}"
            )
    return content.getvalue()


def _with_lz4_checksum(frame: memoryview) -> memoryview:
    """Put the right checksum into the header of an lz4 frame: writers of format 0 summed another span (KAFKA-3160)."""
    end = _LZ4_MAGIC_BYTES + 2 + (8 if len(frame) > _LZ4_MAGIC_BYTES and frame[_LZ4_MAGIC_BYTES] & _LZ4_SIZE_BIT else 0)
    checksum = _xxh32(frame[_LZ4_MAGIC_BYTES:end]) >> 8 & 0xFF
    return memoryview(bytes(frame[:end]) + bytes([checksum]) + bytes(frame[end + 1 :]))


def _xxh32(data: memoryview) -> int:
    """xxHash of less than 16 bytes, with the seed 0."""
    whole = len(data) // 4 * 4
    hash_value = 374761393 + len(data)
    for (lane,) in struct.iter_unpack("<I", data[:whole]):
        hash_value = _rotated(hash_value + lane * 3266489917, 17) * 668265263
    for byte in data[whole:]:
        hash_value = _rotated(hash_value + byte * 374761393, 11) * 2654435761
    for shift, factor in ((15, 2246822519), (13, 3266489917), (16, 1)):
        hash_value &= 0xFFFFFFFF
        hash_value = (hash_value ^ hash_value >> shift) * factor
    return hash_value & 0xFFFFFFFF


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return number << bits | number >> (32 - bits)


@inlined
def _big_endian(data, at, width):  # type: ignore[no-untyped-def]
    value = np.int64(data[at])
    if value > 127:
        value -= 256
    for i in range(at + 1, at + width):
        value = (value << 8) | np.int64(data[i])
    return value


@bare
def last_offset(data):  # type: ignore[no-untyped-def]
    """Return the offset of the last whole message, -1 without one."""
    at, last = 0, np.int64(-1)
    while at + 12 <= len(data):
        size = _big_endian(data, at + 8, 4)
        if size < 0 or at + 12 + size > len(data):
            break
        last = _big_endian(data, at, 8)
        at += 12 + size
    return last


@bare
def find_messages(data, end, base, time_ms, span, fields, cursor):  # type: ignore[no-untyped-def]  # noqa: PLR0911, PLR0917 (each fault has its exit)
    """Find messages with span[0] <= offset < span[1] before `end`; returns (how many, fault or 0).

    base: the number added to each offset; time_ms: the time of all messages, or _OWN_TIME. When `fields` is full it
    stops; `cursor` holds the position and the offset before it.
    """
    row = 0
    while cursor[0] < end and row < fields.shape[1]:
        at = cursor[0]
        if end - at < LEAST_MESSAGE_BYTES:
            return row, 1
        offset, version = _big_endian(data, at, 8) + base, np.int64(data[at + 16])
        stop, appended = at + 12 + _big_endian(data, at + 8, 4), np.int64(data[at + 17]) & 8
        if version > 1 or data[at + 17] & 7:
            return row, 3
        if offset <= cursor[1]:
            return row, 2
        key_at = at + 22 + 8 * version
        if stop > end or stop < key_at + 4:
            return row, 1
        key = _big_endian(data, key_at - 4, 4)
        if key > stop - key_at - 4:
            return row, 1
        value_at = key_at + max(key, 0) + 4
        value = _big_endian(data, value_at - 4, 4)
        if value_at + max(value, 0) != stop:
            return row, 1
        if span[0] <= offset < span[1]:
            time = _big_endian(data, at + 18, 8) if version else np.int64(-1)
            fields[0, row] = offset
            fields[1, row] = time if time_ms == -2 else time_ms
            fields[2, row] = np.int64(appended != 0 or time_ms != -2) if version else np.int64(-1)
            fields[3, row], fields[4, row] = key_at, max(key, -1)
            fields[5, row], fields[6, row] = value_at, max(value, -1)
            fields[7, row], fields[8, row] = stop, 0
            row += 1
        cursor[0], cursor[1] = stop, offset
    return row, 0
