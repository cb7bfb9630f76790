"""Compression of record batches as Kafka's Java client writes and reads it.

Rule: nothing decompresses past its limit, so a small batch cannot fill the memory (a "zip bomb").
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import lz4.frame
import snappy
import zstandard

from keyedwm.kafka.values import Codec

_GZIP_WINDOW = 31
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10


class TooLargeError(ValueError):
    """More bytes would come out than the limit allows."""


class DamagedError(ValueError):
    """The bytes are not what the codec writes."""


def decompress(codec: Codec, data: bytes | memoryview, limit: int) -> bytes:
    """Decompress a batch's records; raises TooLargeError or DamagedError."""
    try:
        return _DECOMPRESS[codec](data, limit)
    except (zlib.error, zstandard.ZstdError, RuntimeError, struct.error, snappy.UncompressError, EOFError) as error:
        raise DamagedError(str(error)) from error


def compress(codec: Codec, data: bytes | memoryview) -> bytes:
    """Compress a batch's records."""
    return _COMPRESS[codec](data)


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    out = bytearray()
    rest: bytes | memoryview = data
    # a gzip stream may consist of several members, as Java's reader accepts
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW)
        out += member.decompress(rest, limit + 1 - len(out))
        if len(out) > limit:
            raise TooLargeError
        if not member.eof:
            raise DamagedError("the gzip stream is cut off")
        rest = member.unused_data
    return bytes(out)


def _unlz4(data: bytes | memoryview, limit: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    out = frame.decompress(data, limit + 1)
    if len(out) > limit:
        raise TooLargeError
    if not frame.eof:
        raise DamagedError("the lz4 frame is cut off")
    return out


def _unzstd(data: bytes | memoryview, limit: int) -> bytes:
    parts, total = [], 0
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data, read_across_frames=True)
    while part := reader.read(1 << 20):
        total += len(part)
        if total > limit:
            raise TooLargeError
        parts.append(part)
    return b"".join(parts)


def _unsnappy(data: bytes | memoryview, limit: int) -> bytes:
    if bytes(data[:8]) != _XERIAL:
        return _unsnappy_block(data, limit)
    parts, total, at = [], 0, 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 4 + size > len(data):
            raise DamagedError("a snappy block is cut off")
        parts.append(_unsnappy_block(data[at + 4 : at + 4 + size], limit - total))
        total += len(parts[-1])
        at += 4 + size
    return b"".join(parts)


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


def _plain(data: bytes | memoryview, limit: int) -> bytes:
    if len(data) > limit:
        raise TooLargeError
    return bytes(data)


_DECOMPRESS: dict[Codec, Callable[[bytes | memoryview, int], bytes]] = {
    Codec.NONE: _plain,
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
