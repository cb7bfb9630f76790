from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc
import pytest
import zstandard

from keyedwm.kafka.client.errors import CorruptRecordError, RecordTooLargeError
from keyedwm.kafka.client.values import Codec, WireLimits
from keyedwm.kafka.records.batches import find_batches
from keyedwm.kafka.records.codecs import compress
from keyedwm.kafka.records.read import ColumnSelection, Records, read_records
from tests.kafka import fuzz
from tests.kafka.reference import WHERE, Record, read_by_us, signed, write

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
BOMB_BYTES = 64 << 20
MUTATIONS = int(os.environ.get("KEYEDWM_MUTATIONS", "400"))


@pytest.mark.starts  # no process, but it takes long
def test_a_damaged_batch_ends_in_the_reference_rows_or_in_an_error_that_says_where(seed: int) -> None:
    outcomes = fuzz.run(MUTATIONS, seed)
    assert set(outcomes) == {"refused", "read", "no rows"}
    assert outcomes["refused"] > MUTATIONS // 4
    assert outcomes["read"] > MUTATIONS // 100, "mutations too wild: nothing gets as far as rows"


@pytest.mark.starts  # no process, but it takes long
def test_no_damage_makes_the_compiled_loops_leave_their_bounds(seed: int, tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.kafka.fuzz", "--count", str(MUTATIONS), "--seed", str(seed + 1)]
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("codec", PACKED)
def test_a_small_batch_that_would_fill_the_memory_is_refused(codec: Codec) -> None:
    bomb = packed([Record(5, 0, None, b"")], codec, bytes(BOMB_BYTES))
    read_by_us(write([Record(5, 0, None, b"")], codec))  # what compiles at its first call takes memory of its own

    def read() -> CorruptRecordError:
        with pytest.raises(CorruptRecordError, match="at offset 5 of t-3") as caught:
            read_by_us(bomb)
        return caught.value

    error, taken_bytes = fuzz.taken_by(read)
    assert error.next_offset == 6
    assert taken_bytes <= fuzz.MOST_BYTES


@pytest.mark.parametrize("codec", PACKED)
def test_an_honest_batch_that_decompresses_a_hundredfold_is_read_in_little_memory(codec: Codec) -> None:
    records = [Record(5 + i, i, b"k%d" % (i % 7), b"x" * 20_000) for i in range(5_000)]
    batch = write(records, codec)
    assert len(batch) * 10 < BOMB_BYTES < sum(len(record.value or b"") for record in records)

    def read() -> list[tuple[int, int, bytes, int]]:
        rows = []
        for part in read_records(find_batches(WHERE, batch, 5), (7, 5_004), ColumnSelection()):
            lengths = pc.binary_length(part.value).to_pylist()
            rows += zip(part.offset.tolist(), part.timestamp_ms.tolist(), part.key.to_pylist(), lengths, strict=True)
            assert part.next_offset == part.offset[-1] + 1
        return rows

    rows, taken_bytes = fuzz.taken_by(read)
    assert rows == [(r.offset, r.timestamp_ms, r.key, 20_000) for r in records[2:-1]]
    assert taken_bytes <= fuzz.MOST_BYTES


@functools.cache
def written_once() -> list[tuple[bytes, int]]:
    """Return a batch of many tiny records and one of many headers, not compressed, with their counts of records."""
    tiny = write([Record(i, 0, None, None) for i in range(400_000)])
    headed = write([Record(i, 0, None, None, (("", None),) * 500) for i in range(4_000)])
    return [(tiny, 400_000), (headed, 4_000)]


@pytest.mark.starts  # no process, but it takes long
@pytest.mark.parametrize("codec", [Codec.NONE, *PACKED])
def test_many_tiny_records_or_headers_are_taken_in_steps(codec: Codec) -> None:
    for plain, count in written_once():
        batch = plain if codec is Codec.NONE else packed([Record(0, 0, None, None)], codec, plain[61:], count)
        parts = read_records(find_batches(WHERE, batch, 0), (0, count), ColumnSelection(headers=True))
        rows, taken_bytes = fuzz.taken_by(lambda parts=parts: [part.count for part in parts])
        assert sum(rows) == count
        assert len(rows) > 2
        assert taken_bytes <= fuzz.MOST_BYTES


@pytest.mark.parametrize("codec", PACKED)
def test_a_record_beyond_the_fetch_size_is_read_when_the_user_allows_it(codec: Codec) -> None:
    batch = write([Record(0, 0, None, b"small"), Record(1, 0, None, bytes(20 << 20))], codec)
    batches = find_batches(WHERE, batch, 0)
    assert (
        len(read_parts(read_records(batches, (0, 2), ColumnSelection(), (), WireLimits(unit_bytes=21 << 20)))[1])
        == 20 << 20
    )
    with pytest.raises(RecordTooLargeError, match=r"at offset 0 of t-3 .* larger kafka\.fetch\.max\.bytes allows"):
        read_parts(read_records(batches, (0, 2), ColumnSelection()))


def test_a_large_window_of_zstd_does_no_harm_until_it_is_filled() -> None:
    strong = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    )
    few, many = Record(0, 0, None, b"v" * 1_000), Record(0, 0, None, bytes(1 << 20))
    for record, count, readable in ((few, 10, True), (many, 20, False)):
        plain = write([record._replace(offset=i) for i in range(count)])
        compressor = strong.compressobj()
        batch = packed([record], Codec.ZSTD, compressor.compress(plain[61:]) + compressor.flush(), count, raw=True)
        if readable:
            assert len(read_by_us(batch)) == count
        else:
            with pytest.raises(RecordTooLargeError, match=r"\(zstd\) in \d+ bytes of memory: a larger kafka\.fetch"):
                read_by_us(batch)


def packed(records: list[Record], codec: Codec, content: bytes, count: int = 1, *, raw: bool = False) -> bytes:
    """A batch with these contents instead of its records; raw: they are compressed already."""
    head = bytearray(write(records, codec)[:61])
    head[21:23] = codec.to_bytes(2, "big")  # a writer leaves small contents as they are, and says so
    head[23:27] = (count - 1).to_bytes(4, "big")
    head[57:61] = count.to_bytes(4, "big")
    batch = bytes(head) + (content if raw else compress(codec, content))
    return signed(batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:])


def read_parts(parts: Iterable[Records]) -> list[bytes]:
    return [value for part in parts for value in part.value.to_pylist()]
