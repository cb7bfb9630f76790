"""Bytes before a page that may not be read: a loop that reads beyond a value ends the process."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


class Cage:
    """Bytes at the end of a page behind which nothing can be read."""

    def __init__(self) -> None:
        self._page = mmap.PAGESIZE
        self._memory = mmap.mmap(-1, 4 * self._page)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert libc.mprotect(self._address + 3 * self._page, self._page, 0) == 0
        self._free = lambda: libc.mprotect(self._address + 3 * self._page, self._page, 3)

    def array(self, value: bytes) -> pa.Array:
        begin = 3 * self._page - len(value)
        self._memory[begin : 3 * self._page] = value
        data = pa.foreign_buffer(self._address + begin, len(value), self._memory)
        return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, len(value))), data])

    def open(self) -> None:
        self._free()


@contextmanager
def caged() -> Iterator[Cage]:
    one = Cage()
    try:
        yield one
    finally:
        one.open()
