"""The directory of a table as a file system, local or wherever deltalake can write.

Rule: the same handler that deltalake uses writes and removes staged files, so an address and its `storage.*` settings
mean the same for files and for the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler


def files_of(path: str, storage: Mapping[str, str]) -> pafs.FileSystem:
    """Return the file system rooted at the table; a local directory is made if it is missing."""
    if "://" not in path:
        Path(path).mkdir(parents=True, exist_ok=True)
    return pafs.PyFileSystem(DeltaStorageHandler(path, dict(storage)))


def discard(path: str, storage: Mapping[str, str], names: Iterable[str]) -> None:
    """Remove files that no commit names; one that is already gone is fine.

    The caller must know that no commit names them, now or later: a file removed behind a commit's back is lost data.
    """
    wanted = list(names)
    if not wanted:
        return
    files = files_of(path, storage)
    for name in wanted:
        with suppress(FileNotFoundError):
            files.delete_file(name)
