"""A server as a process: started, awaited, stopped, and killed if this process ends first.

Rule: the server and its log have one temporary directory. A guard kills the server if this process cannot.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from keyedwm.core.errors import OutOfTurnError, UnavailableError
from keyedwm.testing.guard import Guard
from keyedwm.testing.java import complaint

START_LIMIT_S = 180.0
STOP_LIMIT_S = 120.0


class ServerProcess:
    """One server; `stop` and `kill` keep its directory, and `start` starts it there again."""

    def __init__(self, home: Path, name: str, command: Sequence[str | Path]) -> None:
        self._home, self._name, self._command = home, name, command
        self._process: subprocess.Popen | None = None
        self._guard: Guard | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None while stopped."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> str:
        """The server's whole log, over all its starts."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self._home / "log"

    def start(self, serves: Callable[[str], bool]) -> None:
        """Start the server; return when `serves`, called with the log since the start, returns True.

        Raises UnavailableError, with the cause, if the server ends before that or START_LIMIT_S passes.
        """
        if self._process:
            raise OutOfTurnError(f"{self._name} runs already")
        log_size = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("a") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=self._home, start_new_session=True,
            )  # fmt: skip
        self._guard = Guard("process", str(self._process.pid), str(self._home))
        limit = time.monotonic() + START_LIMIT_S
        while not serves(self.log[log_size:]):
            if self._process.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise UnavailableError(f"{self._name} did not start: {complaint(self.log[log_size:])}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Send SIGTERM and wait; kill the server if it does not end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, which has the effect of a crash."""
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if not self._process:
            return
        self._process.send_signal(with_signal)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        if self._guard:
            self._guard.dismiss()
            self._guard = None
