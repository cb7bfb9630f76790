"""A server of another maker as a process of its own, which a trial kills and starts again."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from keyedwm.testing.guard import Guard
from tests.tools import wait_until

_LIMIT_S = 180.0


class ForeignServer:
    """A process in `home`, for the time of a `with`; ready: whether it answers."""

    def __init__(
        self, name: str, command: Sequence[str | Path], home: Path, ready: Callable[[], bool],
        variables: Mapping[str, str] | None = None, log: Path | None = None,
    ) -> None:  # fmt: skip
        self.name, self.command, self.home, self.ready = name, command, home, ready
        self._log = log or home / f"{name}.log"
        self.variables = dict(variables or {})
        self._process: subprocess.Popen | None = None
        self._guard: Guard | None = None

    def __enter__(self) -> ForeignServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process and wait until it answers."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self.command, cwd=self.home, env=os.environ | self.variables, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process = self._process
        self._guard = Guard("process", str(process.pid), str(self.home / "nothing"))
        try:
            wait_until(lambda: process.poll() is not None or self.ready(), self.name, _LIMIT_S)
            assert process.poll() is None, f"{self.name} ended: {self.log()}"
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None

    def kill_and_start(self) -> None:
        """Kill the process and start it again on the same data."""
        self.kill()
        self.start()

    def log(self) -> str:
        """Return the end of what the process printed."""
        return self._log.read_text(errors="replace")[-3000:]


def listens(port: int) -> bool:
    """Whether something accepts connections at a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
