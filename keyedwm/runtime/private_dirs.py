"""Directories of one user alone, in places that several users share.

Rule: a directory is safe if no other user can write in it or replace it, so each ancestor is checked, too.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_MODE = 0o700
NO_PLACE = "there is neither a home nor a temporary directory"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def places(variables: Mapping[str, str], purpose: str) -> list[Path]:
    """Return the directories to try for a purpose, in order: in the user's cache, then in the temporary directory.

    A container with an arbitrary user id has no home. One with a read-only file system has no temporary directory.
    """
    paths = []
    with suppress(RuntimeError):  # neither HOME nor a user with this id
        home = variables.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        paths.append(Path(home, "keyedwm", purpose))
    with suppress(FileNotFoundError):
        paths.append(Path(tempfile.gettempdir(), f"keyedwm-{purpose}-{os.geteuid()}"))
    known = []
    for path in paths:
        with suppress(OSError, RuntimeError):  # links in a circle, or a relative path while there is no directory
            known.append(without_links(path))
    return known


def without_links(place: Path) -> Path:
    """Return the path of a place without links in its ancestors, so that `unsafe` checks the path that is opened."""
    place = place.absolute()
    return place.parent.resolve() / place.name


def unsafe(place: Path) -> str | None:
    """Create a directory for this user alone if there is none. Return why it is unsafe, None if it is safe."""
    line = [*reversed(place.parents), place]
    try:
        for path in line:
            if not path.exists():
                path.mkdir(mode=_MODE, exist_ok=True)
        statuses = [path.lstat() for path in line]
    except OSError as error:
        return f"cannot be made ({error.strerror})"
    for path, of in zip(line[:-1], statuses[:-1], strict=True):
        if (why := _exchangeable(of)) is not None:
            return f"lies under {path}, which {why}"
    why = _foreign(statuses[-1], {os.geteuid()}) or _written_by_others(statuses[-1])
    if why is not None:
        return why
    return None if os.access(place, os.W_OK | os.X_OK) else "is not writable"


def _exchangeable(ancestor: os.stat_result) -> str | None:
    """Return why others could replace a directory in this ancestor; None if they cannot, as in root's sticky /tmp."""
    sticky = ancestor.st_mode & stat.S_ISVTX
    return _foreign(ancestor, {os.geteuid(), 0}) or (None if sticky else _written_by_others(ancestor))


def _foreign(status: os.stat_result, owners: set[int]) -> str | None:
    if not stat.S_ISDIR(status.st_mode):
        return "is no directory, or a link"
    return None if status.st_uid in owners else f"belongs to the user with the id {status.st_uid}"


def _written_by_others(status: os.stat_result) -> str | None:
    return (
        f"may be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
        if status.st_mode & _OTHERS_WRITE
        else None
    )
