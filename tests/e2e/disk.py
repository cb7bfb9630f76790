"""A disk that really runs full: a file system of its own, else a limit on what the pipeline's processes may write."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Disk:
    """A directory; `fill` and `free`. The first error of a full one is ENOSPC where `mounted`, else EFBIG."""

    def __init__(self, path: Path, *, mounted: bool) -> None:
        self.path, self.mounted = path, mounted

    def fill(self, writers: Callable[[], Iterable[int]]) -> None:
        """From now on no byte fits on it; without a mount that holds for the processes `writers` and their children."""
        if not self.mounted:
            _limit(writers(), 0)
        while self.mounted and not _remounted(self.path, self._used()):
            pass  # more was written between the two steps

    def free(self, writers: Callable[[], Iterable[int]]) -> None:
        if self.mounted:
            assert _remounted(self.path, 1 << 30), f"{self.path} cannot be made larger"
        else:
            _limit(writers(), resource.RLIM_INFINITY)

    def _used(self) -> int:
        state = os.statvfs(self.path)
        return (state.f_blocks - state.f_bfree) * state.f_frsize


@contextmanager
def disk(path: Path) -> Iterator[Disk]:
    """A tmpfs where this machine lets us mount one."""
    path.mkdir()
    mounted = _done("mount", "-t", "tmpfs", "-o", f"size={1 << 30}", "tmpfs", path)
    try:
        yield Disk(path, mounted=mounted)
    finally:
        if mounted:
            assert _done("umount", "--lazy", path), f"{path} stays mounted"


def keep(path: Path) -> None:
    """Copy what is on the disk beside it, for who looks into a failure after it is gone."""
    subprocess.run(["cp", "-a", path, f"{path}.kept"], check=True)


def _remounted(path: Path, size: int) -> bool:
    return _done("mount", "-o", f"remount,size={max(size, 4096)}", path)


def _done(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _limit(pids: Iterable[int], size: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size == resource.RLIM_INFINITY else size, hard))
