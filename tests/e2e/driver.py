"""The pipeline's process as the campaign sees it: start, kill, its Python workers, and what it tells."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.e2e.pipeline import Wanted
from tests.support.standalone import command_of, of_session
from tests.tools import wait_until

ROOT = Path(__file__).parents[2]
DUMP_S = 3.0
_IS_PYTHON = re.compile("pyspark|keyedwm[.]daemon")


class Told(NamedTuple):
    """One line of `told.jsonl`."""

    who: str
    what: str
    name: str
    error: str


class Driver:
    """One pipeline at a time, on one directory; `who` counts its lives."""

    def __init__(self, directory: Path, wanted: Wanted) -> None:
        self.directory, self.wanted = directory, wanted
        self.lives = 0
        self._process: subprocess.Popen | None = None
        self._sessions: set[int] = set()
        wanted.write(directory)

    def start(self, who: str | None = None) -> subprocess.Popen:
        """Start a process; without `who` it is the driver's next life."""
        with (self.directory / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.e2e.pipeline", self.directory, who or str(self.lives)],
                cwd=ROOT, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._sessions.add(process.pid)
        if who is None:
            self.lives += 1
            self._process = process
        return process

    def kill(self, process: subprocess.Popen | None = None) -> None:
        """SIGKILL for the driver and its JVM at once; Spark's Python workers are zombies for a moment."""
        process = process or self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """Kill what is left of all lives."""
        self.kill()
        for session in self._sessions:
            for pid in of_session(session):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def tree(self) -> list[int]:
        """The JVM and all processes that it started; the host of its Python workers has no parent but the system."""
        return sorted(set(of_session(self._process.pid)) - {self._process.pid}) if self._process else []

    def workers(self) -> list[int]:
        """Spark's Python processes: the daemon, planners, tasks, commits."""
        return python_of_spark(self.tree())

    def dump(self, limit_s: float = DUMP_S) -> None:
        """Make every process write into the log where its threads stand; Spark's Python processes end by it."""
        log = self.directory / "log"
        python = set(self.workers())
        for pid in self.tree():
            before = log.stat().st_size
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT if pid in python else signal.SIGQUIT)
            sleep_until(lambda: log.stat().st_size > before, limit_s)  # noqa: B023 - called at once

    def opens(self, path: Path) -> bool:
        """Whether one of its processes has this file open."""
        return any(str(path) in _open_files(pid) for pid in self.tree())

    def told(self) -> list[Told]:
        path = self.directory / "told.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Told(**json.loads(line)) for line in lines]

    def want(self, **changes: object) -> None:
        """Change what is wanted."""
        self.wanted = replace(self.wanted, number=self.wanted.number + 1, **changes)
        self.wanted.write(self.directory)

    def hold(self) -> None:
        """Stop the queries, or those that are about to start, and wait until they are."""
        self.want(held=True)
        resting = (str(self.lives - 1), "resting", str(self.wanted.number))
        wait_until(lambda: resting in {told[:3] for told in self.told()}, "the queries stop")


def python_of_spark(pids: Iterable[int]) -> list[int]:
    """Those of Spark's Python processes among them."""
    commands = {pid: command_of(pid) for pid in pids}
    return [pid for pid, command in commands.items() if _IS_PYTHON.search(command) and "java" not in command]


def _open_files(pid: int) -> set[str]:
    paths = set()
    with suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                paths.add(str(handle.readlink()))
    return paths


def sleep_until(condition, limit_s: float) -> bool:
    """Look very often, for a moment that is over soon; whether it came."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.0005)
    return True
