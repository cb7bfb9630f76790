"""File systems that show a file before it is complete, over a local directory, in which a process dies at any step."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pyarrow.fs


class Crash(BaseException):
    """The process ends here."""


class _Early:
    """It ends at its `last` step."""

    type_name: ClassVar[str]

    def __init__(self, last: int) -> None:
        self._files = pyarrow.fs.LocalFileSystem()
        self.left = last

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[_Early]:
        self._step()
        with Path(path).open("wb") as self._stream:
            yield self

    def write(self, text: bytes) -> None:
        self._stream.write(text[: len(text) // 2])
        self._stream.flush()
        self._step()
        self._stream.write(text[len(text) // 2 :])

    def delete_file(self, path: str) -> None:
        if not Path(path).exists():
            raise OSError(errno.EIO, "delete failed")  # libhdfs gives no other reason
        self._step()
        self._files.delete_file(path)


class Hdfs(_Early):
    """As HDFS: a file grows while it is written, none is moved over another, a missing one is no FileNotFoundError when
    it is deleted.
    """

    type_name = "hdfs"

    def move(self, path: str, to: str) -> None:
        assert not Path(to).exists()
        self._step()
        self._files.move(path, to)


class Azure(_Early):
    """As a flat store of Azure: a file is empty until it is closed, and none can be moved."""

    type_name = "abfs"

    def write(self, text: bytes) -> None:
        self._step()
        self._stream.write(text)

    def copy_file(self, path: str, to: str) -> None:
        self._step()
        Path(to).write_bytes(Path(path).read_bytes())

    def move(self, path: str, to: str) -> None:
        raise NotImplementedError(path, to)
