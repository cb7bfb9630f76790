"""Tables as blobs: Arrow IPC streams; stored blobs end in a checksum.

Rule: a blob that was changed is rejected with an error, by its checksum: Arrow does not detect a changed value. The
checksum includes the name, so that no blob can replace another one. It is the CRC-32C, which processors compute at
several GB a second; a mark before it names the kind. Blobs without a checksum, which 0.2.0 wrote, are read unchecked;
readers of that version stop before the checksum.
"""

from __future__ import annotations

import crc32c
import pyarrow as pa

from keyedwm.core.errors import DamagedError

_MARK = b"KWC2"  # and four bytes of CRC-32C
_END_BYTES = len(_MARK) + 4
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def packed(table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as an Arrow IPC stream. compression: None, `lz4` or `zstd`, which a reader detects."""
    return _stream(table, compression).to_pybytes()


def unpacked(blob: bytes) -> pa.Table:
    """Return the table of a blob (the inverse of `packed`)."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def sealed(name: str, content: bytes | pa.Buffer) -> bytes:
    """Return content followed by its checksum. name: the name of the blob."""
    return b"".join((content, _MARK, _checksum(name, content).to_bytes(4, "little")))


def unsealed(name: str, blob: bytes) -> bytes:
    """Return the content before the checksum, or all of a blob without one; raise DamagedError if it was changed.

    name: the name of the blob, for the error.
    """
    return blob[:-_END_BYTES] if _agrees(name, blob) else blob


def stored(name: str, table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as a blob to be stored under this name; see `packed`."""
    return sealed(name, _stream(table, compression))


def read_stored(name: str, blob: bytes) -> pa.Table:
    """Return the table of a stored blob; raise DamagedError if it was changed. name: the name of the blob."""
    if not _agrees(name, blob) and blob[-len(_END_OF_STREAM) :] != _END_OF_STREAM:
        raise damaged(name, "is cut off or changed at its end")
    try:
        return unpacked(blob)  # the reader stops at the end of the stream, before the checksum
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(name, "is no Arrow table any more") from error


def damaged(name: str, damage: str) -> DamagedError:
    """Return the error about a blob that was changed."""
    return DamagedError(f"the checkpoint is damaged: the blob {name!r} of the operator's state {damage}")


def _agrees(name: str, blob: bytes) -> bool:
    """Whether a blob ends in its right checksum, or has no checksum."""
    if blob[-_END_BYTES:-4] != _MARK:
        return False
    if _checksum(name, memoryview(blob)[:-_END_BYTES]) != int.from_bytes(blob[-4:], "little"):
        raise damaged(name, "does not agree with its checksum")
    return True


def _checksum(name: str, content: bytes | pa.Buffer | memoryview) -> int:
    return crc32c.crc32c(name.encode(), crc32c.crc32c(content))


def _stream(table: pa.Table, compression: str | None) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return out.getvalue()
