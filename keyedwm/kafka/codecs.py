"""Compression of record batches as Kafka's Java client writes and reads it.

Rule: what is decompressed comes in chunks of a bounded size, so a small batch cannot fill the memory (a "zip bomb").
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import lz4.frame
import snappy
import zstandard

from keyedwm.kafka.values import Codec

# A batch that decompresses to no more comes in one chunk, as nearly all of them do; from then on in smaller ones.
FIRST_BYTES = 4 << 20
_NEXT_BYTES = 1 << 20
_GZIP_WINDOW = 31
_ZSTD_WINDOW = 1 << 27
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10


class TooLargeError(ValueError):
    """More memory would be needed at once than allowed."""


class DamagedError(ValueError):
    """The bytes are not what the codec writes."""


def chunks(codec: Codec, data: bytes | memoryview, most_bytes: int) -> Iterator[bytes]:
    """Decompress a batch's records: one chunk of at most FIRST_BYTES, smaller ones if there is more.

    most_bytes: what a codec that cannot be read in part may take at once. Raises TooLargeError or DamagedError.
    """
    try:
        yield from _DECOMPRESS[codec](data, most_bytes)
    except (zlib.error, zstandard.ZstdError, RuntimeError, struct.error, snappy.UncompressError, EOFError) as error:
        raise DamagedError(str(error)) from error


def compress(codec: Codec, data: bytes | memoryview) -> bytes:
    """Compress a batch's records."""
    return _COMPRESS[codec](data)


def _gunzip(data: bytes | memoryview, _most_bytes: int) -> Iterator[bytes]:
    rest: bytes | memoryview = data
    room = FIRST_BYTES
    # a gzip stream may consist of several members, as Java's reader accepts
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            out = member.decompress(rest, room)
            rest = member.unconsumed_tail
            if not rest and len(out) < room and not member.eof:
                raise DamagedError("the gzip stream is cut off")
            room = _NEXT_BYTES
            yield out
        rest = member.unused_data


def _unlz4(data: bytes | memoryview, _most_bytes: int) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    out = frame.decompress(data, FIRST_BYTES)
    while not frame.eof and not frame.needs_input:
        yield out
        out = frame.decompress(b"", _NEXT_BYTES)
    if not frame.eof:
        raise DamagedError("the lz4 frame is cut off")
    yield out


def _unzstd(data: bytes | memoryview, most_bytes: int) -> Iterator[bytes]:
    # A window's memory is touched only as far as bytes come out of it: for the first chunk a large one does no harm.
    out = _zstd_reader(data, _ZSTD_WINDOW).read(FIRST_BYTES)
    yield out
    if len(out) < FIRST_BYTES:
        return
    if zstandard.get_frame_parameters(data).window_size > most_bytes:
        raise TooLargeError
    reader = _zstd_reader(data, most_bytes)
    reader.read(FIRST_BYTES)
    while out := reader.read(_NEXT_BYTES):
        yield out


def _zstd_reader(data: bytes | memoryview, window_bytes: int) -> zstandard.ZstdDecompressionReader:
    return zstandard.ZstdDecompressor(max_window_size=window_bytes).stream_reader(data, read_across_frames=True)


def _unsnappy(data: bytes | memoryview, most_bytes: int) -> Iterator[bytes]:
    if bytes(data[:8]) != _XERIAL:
        yield _unsnappy_block(data, most_bytes)
        return
    parts: list[bytes] = []
    total, at, room = 0, 16, FIRST_BYTES
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 4 + size > len(data):
            raise DamagedError("a snappy block is cut off")
        block = _unsnappy_block(data[at + 4 : at + 4 + size], most_bytes)
        if parts and total + len(block) > room:
            yield b"".join(parts)
            parts, total, room = [], 0, _NEXT_BYTES
        parts.append(block)
        total += len(block)
        at += 4 + size
    yield b"".join(parts)


def _unsnappy_block(data: bytes | memoryview, limit: int) -> bytes:
    """One raw block; it says its length in front, so the limit is known to hold before memory is taken."""
    length = shift = 0
    for byte in bytes(data[:5]):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DamagedError("a snappy block has no length")
    if length > limit:
        raise TooLargeError
    return snappy.uncompress(bytes(data))


def _snappy(data: bytes | memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = snappy.compress(bytes(data[at : at + _XERIAL_BLOCK]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _gzip(data: bytes | memoryview) -> bytes:
    member = zlib.compressobj(wbits=_GZIP_WINDOW)
    return member.compress(data) + member.flush()


_DECOMPRESS: dict[Codec, Callable[[bytes | memoryview, int], Iterator[bytes]]] = {
    Codec.NONE: lambda data, _: iter((bytes(data),)),
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
_COMPRESS: dict[Codec, Callable[[bytes | memoryview], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: lambda data: lz4.frame.compress(data, block_linked=False),
    Codec.ZSTD: lambda data: zstandard.ZstdCompressor().compress(data),
}
