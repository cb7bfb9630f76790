"""A server of franz-go's kfake: a second implementation of Kafka's protocol, which starts in a fifth of a second.

It is a program in Go (`tests/support/kfake`), built once into `build`: `python tests/support/kfake_server.py`. Its
tests skip where Go is missing, or its modules cannot be downloaded.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("kfake")
PROGRAM = Path(__file__).parents[2] / "build" / "kfake"
_BUILD_LIMIT_S = 600


class NoKfakeError(Exception):
    """This machine cannot build the program; the reason is its text."""


def build() -> Path:
    """Build the program if it is older than its source, one process at a time; gives its path.

    Raises NoKfakeError without Go or its modules, CalledProcessError for a source that does not compile.
    """
    PROGRAM.parent.mkdir(exist_ok=True)
    with PROGRAM.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_built():
            return PROGRAM
        if shutil.which("go") is None:
            raise NoKfakeError("kfake is built with Go, which is not installed")
        if _go("mod", "download").returncode:
            raise NoKfakeError("kfake cannot be built: the modules of tests/support/kfake/go.mod cannot be downloaded")
        _go("build", "-trimpath", "-o", str(PROGRAM), ".").check_returncode()
    return PROGRAM


def _go(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *arguments], cwd=SOURCE, text=True, timeout=_BUILD_LIMIT_S, check=False)


def _is_built() -> bool:
    newest = max(path.stat().st_mtime for path in SOURCE.iterdir())
    return PROGRAM.exists() and PROGRAM.stat().st_mtime >= newest


@contextmanager
def kfake(*, brokers: int = 1, version: str = "", sasl: str = "") -> Iterator[str]:
    """A running server; gives its addresses, or skips the test where it cannot be built.

    version: of Kafka, as `v2.8`; sasl: MECHANISM:USER:PASSWORD.
    """
    import pytest  # the program is built without

    try:
        program = build()
    except NoKfakeError as missing:
        pytest.skip(str(missing))
    command = [str(program), f"-brokers={brokers}", f"-version={version}", f"-sasl={sasl}"]
    # It ends when its input does: also when this process is killed.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        addresses = process.stdout.readline().strip()
        assert addresses, f"kfake did not start: {process.wait()}"
        try:
            yield addresses
        finally:
            process.stdin.close()


if __name__ == "__main__":
    try:
        build()
    except NoKfakeError as missing:
        sys.exit(str(missing))
