"""A PostgreSQL server of the tests' own: Debian's package, in a directory and at a socket of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 120


def programs() -> Path | None:
    """The directory of the server's programs: that of `initdb` on the path, else the newest of Debian's packages."""
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return versions[-1].parent if versions else None


class Postgres:
    """A running server."""

    def __init__(self, directory: Path, bin_directory: Path) -> None:
        self._data, self._programs, self._socket = directory / "data", bin_directory, directory
        self.address = f"postgresql:///shop?host={directory}&user=postgres"

    def start(self) -> None:
        settings = f"-c listen_addresses='' -k {self._socket}"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._socket / "log", "-o", settings, "start")

    def crash(self) -> None:
        """Stop as a crash does: nothing is finished or written that was not before."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def initialise(self) -> None:
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "--no-sync")

    def make_database(self) -> None:
        self._run("createdb", "-h", self._socket, "-U", "postgres", "shop")

    def _run(self, program: str, *arguments: str | Path) -> None:
        # The server refuses to run as root.
        by_another = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*by_another, str(self._programs / program), *map(str, arguments)]
        subprocess.run(
            command, cwd=self._socket, check=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


@contextmanager
def running(bin_directory: Path) -> Iterator[Postgres]:
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))  # short: the path of a socket has 107 bytes at most
    try:
        if os.geteuid() == 0:
            shutil.chown(directory, "postgres")
        server = Postgres(directory, bin_directory)
        server.initialise()
        server.start()
        try:
            server.make_database()
            yield server
        finally:
            server.crash()
    finally:
        shutil.rmtree(directory)
