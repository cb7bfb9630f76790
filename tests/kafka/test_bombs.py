"""Small batches made to cost much: what a fetched byte may take of memory, and how often a byte is handed over."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import snappy
from kafka.protocol.producer import ProduceRequest

from keyedwm.core.inline import HEADER
from keyedwm.kafka.client.connection import Retry
from keyedwm.kafka.client.values import LIMITS, Codec, TopicPartition, WireLimits
from keyedwm.kafka.records import codecs
from keyedwm.kafka.records import read as records
from keyedwm.kafka.records.read import ColumnSelection
from keyedwm.kafka.requests.cluster import Cluster
from keyedwm.kafka.requests.fetch import OffsetRange, read_ranges
from tests.kafka import fuzz
from tests.kafka.reference import Record, signed, write

MakeTopic = Callable[..., str]
MOST_HEADERS = 65_536
A_MIB = WireLimits(unit_bytes=1 << 20)


def header_bomb() -> bytes:
    """31 records, each a control record by its first header, with as many empty headers as one may have."""
    headers = ((HEADER, b"1"), *(("", None),) * (MOST_HEADERS - 1))
    return write([Record(offset, 0, None, b"", headers) for offset in range(31)], Codec.ZSTD)


def produce(cluster: Cluster, topic: str, batch: bytes) -> None:
    """Write a batch as it is."""
    retry = Retry(cluster.config, "test")
    (node,) = cluster.leaders([TopicPartition(topic, 0)], retry)
    kind = ProduceRequest.TopicProduceData
    part = kind.PartitionProduceData(index=0, records=batch)
    topic_data = [kind(name=topic, partition_data=[part])]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topic_data, max_version=11)
    answer = cluster.connection.call(node, request)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize(
    "columns",
    [ColumnSelection(control_header=HEADER), ColumnSelection(headers=True, control_header=HEADER), ColumnSelection()],
)
def test_a_header_bomb_takes_bounded_memory_and_builds_no_header_of_a_control_record(
    cluster: Cluster, make_topic: MakeTopic, columns: ColumnSelection, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = header_bomb()
    assert len(bomb) < 1_000
    topic = make_topic(1)
    produce(cluster, topic, bomb)
    built: list[int] = []
    build = records._headers

    def build_counted(header_bytes: Any, starts: Any, counts: Any) -> Any:
        built.append(int(counts.sum()))
        return build(header_bytes, starts, counts)

    monkeypatch.setattr(records, "_headers", build_counted)
    span = [OffsetRange(topic, 0, 0, 31)]
    list(read_ranges(cluster, span, columns))  # what compiles takes memory, once

    def read() -> int:
        return sum(len(part.records.control_records) for part in read_ranges(cluster, span, columns))

    control_count, taken_bytes = fuzz.taken_by(read)
    assert control_count == (31 if columns.control_header else 0)
    assert taken_bytes <= fuzz.MOST_BYTES
    assert sum(built) == 0


@pytest.mark.starts  # no process, but it takes long
def test_control_records_that_compress_well_take_bounded_memory() -> None:
    bomb = write([Record(offset, 0, None, b"", ((HEADER, b"1"),)) for offset in range(200_000)], Codec.ZSTD)
    assert len(bomb) < 2_000_000
    columns = ColumnSelection(control_header=HEADER)
    fuzz.taken_by(lambda: sum(len(part.control_records) for part in fuzz.read_batch(bomb, columns)))
    control_count, taken_bytes = fuzz.taken_by(
        lambda: sum(len(part.control_records) for part in fuzz.read_batch(bomb, columns))
    )
    assert control_count == 200_000
    assert taken_bytes <= 2 * fuzz.MOST_BYTES


def longest(codec: Codec, block_bytes: int | None) -> bytes:
    """Three records of nearly the longest that are decompressed; for snappy in blocks of a size, None: Java's."""
    value = bytes(LIMITS.unit_bytes - 64)
    sound = write([Record(offset, 0, None, value) for offset in range(3)])
    content = sound[fuzz.HEADER :]
    if block_bytes is None:
        packed = codecs.compress(codec, content)
    else:
        packed = codecs.compress(Codec.SNAPPY, b"")
        for at in range(0, len(content), block_bytes):
            block = snappy.compress(content[at : at + block_bytes])
            packed += struct.pack(">i", len(block)) + block
    head = bytearray(sound[: fuzz.HEADER])
    struct.pack_into(">i", head, 8, len(head) - 12 + len(packed))
    struct.pack_into(">h", head, 21, int(codec))
    return signed(bytes(head) + packed)


@pytest.mark.parametrize(
    ("codec", "block_bytes", "times"),
    [
        *((codec, None, 3) for codec in Codec if codec is not Codec.NONE),
        (Codec.SNAPPY, LIMITS.unit_bytes - 50, 5),
        (Codec.SNAPPY, LIMITS.unit_bytes - 100_000, 5),
    ],
)
def test_the_longest_records_that_are_read_take_bounded_memory(
    codec: Codec, block_bytes: int | None, times: int
) -> None:
    batch = longest(codec, block_bytes)
    assert len(batch) < 4 << 20
    sum(part.count for part in fuzz.read_batch(write([Record(0, 0, None, b"")], codec), ColumnSelection()))  # compiles
    rows, taken_bytes = fuzz.taken_by(lambda: sum(part.count for part in fuzz.read_batch(batch, ColumnSelection())))
    assert rows == 3
    assert taken_bytes <= times * fuzz.MOST_BYTES // 2


def test_many_small_gzip_members_are_handed_over_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    member = gzip.compress(b"x", mtime=0)
    gzip_bytes = member * 20_000
    fed_bytes = 0
    make = zlib.decompressobj

    class CountingDecompressor:
        def __init__(self, window: int) -> None:
            self._one = make(window)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._one, name)

        def decompress(self, part: Any, most: int) -> bytes:
            nonlocal fed_bytes
            fed_bytes += len(part)
            return self._one.decompress(part, most)

    monkeypatch.setattr(codecs.zlib, "decompressobj", CountingDecompressor)
    assert b"".join(codecs.chunks(Codec.GZIP, gzip_bytes, A_MIB)) == b"x" * 20_000
    assert fed_bytes <= 20 * len(gzip_bytes)


def test_three_megabytes_of_empty_gzip_members_cost_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    member = gzip.compress(b"", mtime=0)
    members = 3 * (1 << 20) // len(member)
    fed_bytes = decompressor_count = 0
    make = zlib.decompressobj

    class CountingDecompressor:
        def __init__(self, window: int) -> None:
            nonlocal decompressor_count
            decompressor_count += 1
            self._one = make(window)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._one, name)

        def decompress(self, part: Any, most: int) -> bytes:
            nonlocal fed_bytes
            fed_bytes += len(part)
            return self._one.decompress(part, most)

    monkeypatch.setattr(codecs.zlib, "decompressobj", CountingDecompressor)
    assert list(codecs.chunks(Codec.GZIP, member * members, A_MIB)) == []
    assert decompressor_count == members
    assert fed_bytes <= 256 * members


def test_a_gzip_member_for_each_record_makes_no_more_pieces_than_one_member() -> None:
    batch = write([Record(offset, 0, None, b"") for offset in range(9_000)])
    records_only = batch[fuzz.HEADER :]
    pieces = [records_only[at : at + 9] for at in range(0, len(records_only), 9)]
    assert len(pieces) > 5_000
    one, many = (
        list(codecs.chunks(Codec.GZIP, gzip_bytes, A_MIB))
        for gzip_bytes in (gzip.compress(records_only), b"".join(gzip.compress(part) for part in pieces))
    )
    assert one == many == [records_only]


def test_gzip_members_of_any_size_are_read_whole() -> None:
    parts = [bytes([n % 251]) * n for n in (0, 1, 255, 256, 257, 70_000, 5 << 20, 3)]
    gzip_bytes = b"".join(gzip.compress(part) for part in parts)
    assert b"".join(codecs.chunks(Codec.GZIP, gzip_bytes, A_MIB)) == b"".join(parts)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
@pytest.mark.parametrize("size", [5, LIMITS.first_bytes, LIMITS.first_bytes + 5])
def test_bytes_behind_what_a_codec_wrote_are_damage(codec: Codec, size: int) -> None:
    sound = codecs.compress(codec, bytes(size))
    assert sum(len(chunk) for chunk in codecs.chunks(codec, sound, LIMITS)) == size
    for rest in (b"x", bytes(8), b"others' bytes that are long enough to be a header"):
        with pytest.raises(codecs.DamagedBytesError):
            list(codecs.chunks(codec, sound + rest, LIMITS))
