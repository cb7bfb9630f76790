"""Messages of format 0 and 1, written by kafka-python, alone and in compressed sets, and what damage makes of them."""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter
from collections.abc import Sequence

import lz4.frame
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.client.values import Codec, WireLimits
from keyedwm.kafka.records.batches import find_batches
from keyedwm.kafka.records.codecs import compress
from tests.kafka.reference import WHERE, Record, read_by_us, write

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FORMATS = [(version, codec) for version in (0, 1) for codec in CODECS]
RECORDS = [
    Record(7, 5_000, b"k", b"value"),
    Record(8, 4_000, None, b""),
    Record(11, 2**41, b"", None),
    Record(900, 0, None, None),
    Record(901, 1, b"long", b"v" * 70_000),
]
APPEND_TIME = 8


def signed(message: bytes | bytearray) -> bytes:
    return bytes(message[:12]) + struct.pack(">I", zlib.crc32(message[16:])) + bytes(message[16:])


def message(
    version: int, record: Record, codec: Codec = Codec.NONE, *, offset: int | None = None, bits: int = 0
) -> bytes:
    """One message; offset: another one than the record's; bits: of its attributes, besides the codec's."""
    builder = LegacyRecordBatchBuilder(magic=version, compression_type=0, batch_size=1 << 30)
    builder.append(0, record.timestamp_ms, record.key, record.value)
    built = bytearray(builder.build())
    built[:8] = (record.offset if offset is None else offset).to_bytes(8, "big")
    built[17] |= codec | bits
    return signed(built)


def message_set(version: int, codec: Codec, records: Sequence[Record], *, bits: int = 0, time_ms: int = 9) -> bytes:
    """Messages as they lie in a log, together in one if a codec compresses them."""
    if codec is Codec.NONE:
        return b"".join(message(version, record) for record in records)
    base, last = (records[0].offset if version else 0), records[-1].offset
    inner = b"".join(message(version, record, offset=record.offset - base) for record in records)
    return message(version, Record(last, time_ms, None, compress(codec, inner)), codec, bits=bits)


def as_read(version: int, records: Sequence[Record]) -> list[Record]:
    return list(records) if version else [r._replace(timestamp_ms=-1, timestamp_type=-1) for r in records]


@pytest.mark.parametrize(("version", "codec"), FORMATS)
def test_old_messages_are_read_as_they_were_written(version: int, codec: Codec) -> None:
    raw, records = message_set(version, codec, RECORDS), as_read(version, RECORDS)
    assert read_by_us(raw) == records
    assert read_by_us(raw, limits=WireLimits(rows=2)) == records
    assert read_by_us(raw, (8, 901)) == records[1:4]
    assert read_by_us(raw, (12, 900)) == []
    batches = find_batches(WHERE, raw, 0)
    assert (batches.next_offset, batches.leader_epoch) == (902, -1)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_the_brokers_own(codec: Codec) -> None:
    if codec is Codec.NONE:
        raw = b"".join(message(1, record._replace(timestamp_ms=9), bits=APPEND_TIME) for record in RECORDS)
    else:
        raw = message_set(1, codec, RECORDS, bits=APPEND_TIME)
    assert read_by_us(raw) == [record._replace(timestamp_ms=9, timestamp_type=1) for record in RECORDS]


def test_a_log_of_all_formats_is_read_in_order_and_cut_off_at_any_byte() -> None:
    parts: list[tuple[bytes, list[Record]]] = []
    for number, (version, codec) in enumerate([*FORMATS, (2, Codec.NONE), (1, Codec.GZIP), (2, Codec.LZ4)]):
        records = [r._replace(offset=r.offset + 1_000 * number, value=b"%d" % number) for r in RECORDS]
        raw = write(records, codec) if version == 2 else message_set(version, codec, records)
        parts.append((raw, as_read(version, records)))
    log = b"".join(raw for raw, _ in parts)
    expected = [record for _, records in parts for record in records]
    assert read_by_us(log) == expected
    for cut_at in range(0, len(log), 7):
        own_records = read_by_us(log[:cut_at])
        assert own_records == expected[: len(own_records)]
        assert find_batches(WHERE, log[:cut_at], 0).next_offset == (own_records[-1].offset + 1 if own_records else 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_damage_is_named_with_its_offset(codec: Codec) -> None:
    raw = bytearray(message_set(1, codec, [RECORDS[0]]))
    raw[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="at offset 7 of t-3 has a wrong checksum") as caught:
        read_by_us(bytes(raw))
    assert caught.value.next_offset == 8


def test_a_set_inside_a_set_is_refused() -> None:
    inner = message_set(1, Codec.GZIP, RECORDS)
    nested = message(1, Record(901, 0, None, compress(Codec.GZIP, inner)), Codec.GZIP)
    with pytest.raises(
        CorruptRecordError, match="at offset 901 of t-3 has a message of another format or a compressed"
    ):
        read_by_us(nested)


def test_a_set_that_would_fill_the_memory_is_refused() -> None:
    raw = message_set(1, Codec.GZIP, [Record(5, 0, None, bytes(20 << 20))])
    with pytest.raises(
        RecordTooLargeError, match=r"at offset 5 of t-3 .* a larger kafka\.fetch\.max\.bytes allows more"
    ):
        read_by_us(raw)
    assert len(read_by_us(raw, limits=WireLimits(unit_bytes=21 << 20))) == 1


@pytest.mark.parametrize("has_size", [False, True])
def test_lz4_of_format_0_is_read_whatever_its_header_s_checksum(has_size: bool) -> None:
    inner = message_set(0, Codec.NONE, RECORDS)
    frame = bytearray(lz4.frame.compress(inner, store_size=has_size))
    frame[14 if has_size else 6] ^= 0xFF
    raw = message(0, Record(901, 0, None, bytes(frame)), Codec.LZ4)
    assert read_by_us(raw) == as_read(0, RECORDS)
    with pytest.raises(CorruptRecordError, match=r"at offset 901 of t-3 cannot be decompressed \(lz4"):
        read_by_us(message(1, Record(901, 0, None, bytes(frame)), Codec.LZ4))


def plainly(log_bytes: bytes, base: int = 0) -> list[Record]:
    """Messages that are not compressed, read by the format's description."""
    records, at = [], 0
    while at < len(log_bytes):
        offset, size, _, version, _ = struct.unpack_from(">qiIbb", log_bytes, at)
        body, end = at + 18 + 8 * version, at + 12 + size
        (time_ms,) = struct.unpack_from(">q", log_bytes, at + 18) if version else (-1,)
        fields: list[bytes | None] = []
        for _ in range(2):
            (length,) = struct.unpack_from(">i", log_bytes, body)
            fields.append(None if length < 0 else log_bytes[body + 4 : body + 4 + length])
            body += 4 + max(length, 0)
        assert body == end
        records.append(Record(offset + base, time_ms, fields[0], fields[1], (), 0 if version else -1))
        at = end
    return records


def outcome(raw: bytes) -> tuple[list[Record], CorruptRecordError | None]:
    try:
        return read_by_us(raw), None
    except CorruptRecordError as error:
        return [], error


def test_damaged_messages_end_in_the_same_rows_or_in_an_error_that_says_where(seed: int) -> None:
    chance, outcomes = random.Random(seed), Counter[str]()
    few = [record._replace(value=record.value and record.value[:9]) for record in RECORDS]
    for number in range(2_000):
        version = chance.choice((0, 1))
        batch_bytes = bytearray(message_set(version, Codec.NONE, few))
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(batch_bytes))
            batch_bytes[at : at + chance.choice((1, 4))] = bytes(
                [chance.choice((0, 1, 0x7F, 0x80, 0xFF, batch_bytes[at] ^ 1))]
            )
        is_set = number % 2 == 0
        if is_set:  # its checksum is right, so that the damage reaches the decoder
            whole = message(version, Record(901, 0, None, compress(Codec.GZIP, bytes(batch_bytes))), Codec.GZIP)
        else:
            whole = bytes(batch_bytes)
        rows, error = outcome(whole)
        if error:
            assert f"at offset {error.offset} of t-3 " in str(error)
            outcomes["refused"] += 1
            continue
        if not is_set:  # a checksum covers all but the offset
            assert [r[1:] for r in rows] == [r[1:] for r in as_read(version, few)[: len(rows)]]
        else:
            inner = plainly(bytes(batch_bytes))
            assert rows == [r._replace(offset=r.offset + (901 - inner[-1].offset if version else 0)) for r in inner]
        outcomes["read"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 100
