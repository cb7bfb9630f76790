"""A small process (the guard) that cleans up after a process that was killed and could not do so itself.

Rule: the guard waits on a pipe whose other end only the guarded process has. A byte means "no longer needed". The end
of the pipe without a byte means that the process is gone: the guard then removes the things that its command line
names. The guard runs in a session of its own, so Ctrl-C does not reach it. It has few imports, so it starts fast.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

START_LIMIT_S = 180


class Guard:
    """A guard that kills a process and removes its directory, or removes a container, once this process is gone."""

    def __init__(self, kind: str, *names: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", Path(__file__), kind, *names],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismiss()

    def dismiss(self) -> None:
        """End the guard: its process or container has been removed."""
        with suppress(BrokenPipeError):
            self._process.communicate(b".", timeout=START_LIMIT_S)


def _remove_process(pid: str, directory: str) -> None:
    for kill in (os.killpg, os.kill):  # a group, if the process leads one
        with suppress(ProcessLookupError):
            kill(int(pid), signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


def _remove_container(name: str) -> None:
    import docker

    with suppress(docker.errors.NotFound):
        docker.from_env().containers.get(name).remove(force=True, v=True)


def main(kind: str, *names: str) -> None:
    """Wait for the byte, or for the end of the pipe and then remove the named things."""
    if sys.stdin.buffer.read(1):
        return
    if kind == "process":
        _remove_process(*names)
    else:
        _remove_container(*names)


if __name__ == "__main__":
    main(*sys.argv[1:])
