"""Programs of their own that a test kills, with all their processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 720.0


@contextmanager
def program(module: str, *arguments: object) -> Iterator[subprocess.Popen]:
    """The module, run as a program; killed with SIGKILL and all its processes at the end of the `with`."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ms(moment) -> int:
    """A time as ms since 1970."""
    return round(moment.timestamp() * 1_000)
