"""Places that a user names: directories of this machine, and addresses that only another file system understands."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_directory(place: str) -> Path | None:
    """Return a local directory's absolute path (workers may run elsewhere), None for an address.

    `file:` may stand before a local one. Any other scheme makes an address, also without slashes as in `hdfs:/x`: taken
    for a path it would become a directory of that name beside the driver.
    """
    if place.startswith("file:"):
        return Path("/" + place.removeprefix("file:").lstrip("/"))
    return None if _SCHEME.match(place) else Path(place).absolute()


def file_in_the_way(directory: Path) -> Path | None:
    """Return what stands where a directory or one of its parents is wanted and is none, as far as we may look."""
    for place in (directory, *directory.parents):
        with suppress(PermissionError):
            if place.exists():
                return None if place.is_dir() else place
    return None
