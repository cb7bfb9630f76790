"""Paths in options: directories of the local file system, and URIs of other file systems."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_directory(path: str) -> Path | None:
    """Return a local directory's absolute path (workers may have another working directory), None for a URI.

    `file:` may precede a local path. Any other scheme makes a URI, also without slashes as in `hdfs:/x`: as a path it
    would become a directory of that name in the driver's working directory.
    """
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if _SCHEME.match(path) else Path(path).absolute()


def file_in_the_way(directory: Path) -> Path | None:
    """Return the file that occupies the path of a directory or of one of its parents, None if we see none."""
    for path in (directory, *directory.parents):
        with suppress(PermissionError):
            if path.exists():
                return None if path.is_dir() else path
    return None
