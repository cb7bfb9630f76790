"""Tables as blobs: Arrow IPC streams."""

from __future__ import annotations

import pyarrow as pa


def packed(table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as an Arrow IPC stream; compression: None, `lz4` or `zstd`, which a reader finds out itself."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def unpacked(blob: bytes) -> pa.Table:
    """Return the table of a blob (the inverse of `packed`)."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
