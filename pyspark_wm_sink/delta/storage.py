"""The directory of a table as a file system, local or wherever deltalake can write.

Rule: the handler of deltalake writes and removes staged files. So an address and its `storage.*` settings mean the same
for files and for the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler

from keyedwm.core.errors import OptionError
from pyspark_wm_sink.places.paths import local_directory


def files_of(path: str, storage: Mapping[str, str]) -> pafs.FileSystem:
    """Return the file system rooted at the table; a local directory is created if it is missing."""
    if "://" not in path:
        Path(path).mkdir(parents=True, exist_ok=True)
    return pafs.PyFileSystem(DeltaStorageHandler(path, dict(storage)))


def check_may_write(path: str) -> None:
    """Raise OptionError for a local path that this user may not create; creates nothing."""
    local = local_directory(path)
    if local is None:
        return
    there = next(one for one in (local, *local.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise OptionError(f"option path: {path} cannot be written, because this user may not write to {there}")


def discard(path: str, storage: Mapping[str, str], names: Iterable[str]) -> None:
    """Remove files that no commit names; one that is already gone is fine.

    The caller must know that no commit names them, now or later: removing a file that a commit names is data loss.
    """
    doomed = list(names)
    if not doomed:
        return
    files = files_of(path, storage)
    for name in doomed:
        with suppress(FileNotFoundError):
            files.delete_file(name)
