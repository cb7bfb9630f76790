"""Compression of record batches as Kafka's Java client writes and reads it.

Rule: decompressed bytes come in chunks of a bounded size, so a small batch cannot fill the memory (a "zip bomb").
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator

import lz4.frame
import snappy
import zstandard

from keyedwm.kafka.client.values import Codec, WireLimits

_GZIP_WINDOW = 31
# The bytes that a member gets first: a stream of many small members must not copy the rest of itself for each.
_GZIP_STEP_BYTES = 256
_ZSTD_WINDOW = 1 << 27
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10


class TooLargeError(ValueError):
    """Decompression would need more memory at once than allowed."""


class DamagedBytesError(ValueError):
    """The bytes are not what the codec writes."""


def chunks(codec: Codec, data: bytes | memoryview, limits: WireLimits) -> Iterator[bytes]:
    """Decompress a batch's records: one chunk of at most `first_bytes`, smaller ones if there is more.

    A codec that cannot be read in parts may use `unit_bytes` at once. Raises TooLargeError or DamagedError.
    """
    try:
        yield from _DECOMPRESS[codec](data, limits)
    except (zlib.error, zstandard.ZstdError, RuntimeError, struct.error, snappy.UncompressError, EOFError) as error:
        raise DamagedBytesError(str(error)) from error


def compress(codec: Codec, data: bytes | memoryview) -> bytes:
    """Compress a batch's records."""
    return _COMPRESS[codec](data)


def _gunzip(data: bytes | memoryview, limits: WireLimits) -> Iterator[bytes]:
    """Decompress gzip, which may have several members, as for Java's reader; each byte is passed on about once.

    A chunk has the content of many members, since each chunk costs its reader some 200 microseconds.
    """
    view = memoryview(data)
    at, room = 0, limits.first_bytes
    buffer = io.BytesIO()
    while at < len(view):
        member = zlib.decompressobj(_GZIP_WINDOW)
        step = _GZIP_STEP_BYTES
        while not member.eof:
            fed = member.unconsumed_tail or view[at : at + step]
            if not len(fed):
                raise DamagedBytesError("the gzip stream is cut off")
            at += 0 if member.unconsumed_tail else len(fed)
            buffer.write(member.decompress(fed, room - buffer.tell()))
            step = limits.next_bytes
            if buffer.tell() == room:
                yield buffer.getvalue()
                buffer, room = io.BytesIO(), limits.next_bytes
        at -= len(member.unused_data)
    if buffer.tell():
        yield buffer.getvalue()


def _unlz4(data: bytes | memoryview, limits: WireLimits) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    out = frame.decompress(data, limits.first_bytes)
    while not frame.eof and not frame.needs_input:
        yield out
        out = frame.decompress(b"", limits.next_bytes)
    if not frame.eof:
        raise DamagedBytesError("the lz4 frame is cut off")
    if frame.unused_data:
        raise DamagedBytesError(f"{len(frame.unused_data)} bytes stand behind the lz4 frame")
    yield out


def _unzstd(data: bytes | memoryview, limits: WireLimits) -> Iterator[bytes]:
    # Only the used part of a window's memory is touched: for the first chunk a large window does no harm.
    out = _zstd_reader(data, _ZSTD_WINDOW).read(limits.first_bytes)
    yield out
    if len(out) < limits.first_bytes:
        return
    if zstandard.get_frame_parameters(data).window_size > limits.unit_bytes:
        raise TooLargeError
    reader = _zstd_reader(data, limits.unit_bytes)
    reader.read(limits.first_bytes)
    while out := reader.read(limits.next_bytes):
        yield out


def _zstd_reader(data: bytes | memoryview, window_bytes: int) -> zstandard.ZstdDecompressionReader:
    return zstandard.ZstdDecompressor(max_window_size=window_bytes).stream_reader(data, read_across_frames=True)


def _unsnappy(data: bytes | memoryview, limits: WireLimits) -> Iterator[bytes]:
    if bytes(data[:8]) != _XERIAL:
        _snappy_length(data, limits.unit_bytes)
        yield snappy.uncompress(bytes(data))
        return
    buffer = io.BytesIO()
    at, room = 16, limits.first_bytes
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 4 + size > len(data):
            raise DamagedBytesError("a snappy block is cut off")
        block = data[at + 4 : at + 4 + size]
        length = _snappy_length(block, limits.unit_bytes)
        if buffer.tell() and buffer.tell() + length > room:
            yield buffer.getvalue()
            buffer, room = io.BytesIO(), limits.next_bytes
        if length > room:
            room = limits.next_bytes
            yield snappy.uncompress(bytes(block))
        else:
            buffer.write(snappy.uncompress(bytes(block)))
        at += 4 + size
    if buffer.tell():
        yield buffer.getvalue()


def _snappy_length(data: bytes | memoryview, limit: int) -> int:
    """Return the length that a raw block states at its beginning, to check the limit before memory is allocated."""
    length = shift = 0
    for byte in bytes(data[:5]):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DamagedBytesError("a snappy block has no length")
    if length > limit:
        raise TooLargeError
    return length


def _snappy(data: bytes | memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = snappy.compress(bytes(data[at : at + _XERIAL_BLOCK]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _gzip(data: bytes | memoryview) -> bytes:
    member = zlib.compressobj(wbits=_GZIP_WINDOW)
    return member.compress(data) + member.flush()


_DECOMPRESS: dict[Codec, Callable[[bytes | memoryview, WireLimits], Iterator[bytes]]] = {
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
