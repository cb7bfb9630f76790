"""Further parents of Python workers, forked from the first one of a JVM, which has loaded everything.

Rule: Spark starts a parent for each set of environment variables, and the tasks of one query have up to three: reading,
functions, state. The first parent loads and leaves a process that forks (the host); a later one hands its own standard
streams and variables to the host, which forks a process that serves in its place. The host fits a process whose
variables differ in such alone as PySpark reads when it needs them. It ends with the pipe from Spark to the first
parent; the process that serves ends with the pipe to its own. Where anything of this fails, a parent loads for itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from keyedwm.runtime import private_dirs

_STREAMS = (0, 1, 2)
_YES, _NO = b"y", b"n"
_LONGEST_WAIT_S = 30.0
# PySpark looks these up where it needs them, and not where it is imported; the path is compared as Python has read it.
_READ_LATE = ("SPARK_", "PYTHON_", "PYTHONPATH")


def serve(load: Callable[[], None], manage: Callable[[], None]) -> None:
    """Load, or let a process that has loaded do it; then manage workers for Spark as `pyspark.daemon` does."""
    place = _place()
    if place is None:
        load()
        manage()
        return
    with place.with_suffix(".lock").open("w") as lock:
        # One that starts meanwhile waits: it has nothing to load then.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _taken_over(place):
            lock.close()
            _stay_until_left()
        load()
        door = _door(place)
    if door is not None:
        _leave_host(door, place, manage)
    manage()


def fits(variables: Mapping[str, str], path: list[str]) -> bool:
    """Whether a process of these variables and this path could have been this one."""

    def fixed(of: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in of.items() if not name.startswith(_READ_LATE)}

    return fixed(variables) == fixed(os.environ) and list(dict.fromkeys(path)) == list(dict.fromkeys(sys.path))


def _place() -> Path | None:
    """The socket of this JVM's host, in a directory of this user alone: what is sent there is run."""
    for directory in private_dirs.places(os.environ, "parents"):
        if private_dirs.unsafe(directory) is None:
            # Hosts and containers that share a home have JVMs with the same number.
            return directory / f"{socket.gethostname()}-{os.getppid()}.sock"
    return None


def _taken_over(place: Path) -> bool:
    """Hand this process's streams to the host; False where there is none, or one that does not fit."""
    given = json.dumps({"variables": dict(os.environ), "path": sys.path, "arguments": sys.argv}).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
            host.settimeout(_LONGEST_WAIT_S)
            host.connect(str(place))
            socket.send_fds(host, [_YES], _STREAMS)
            host.sendall(given)
            host.shutdown(socket.SHUT_WR)
            return host.recv(1) == _YES
    except OSError:
        return False


def _stay_until_left() -> NoReturn:
    """Wait as the process that Spark knows, until Spark closes the pipe to it."""
    _await_hangup(select.poll())
    os._exit(0)


def _await_hangup(poller: select.poll, door: int | None = None) -> bool:
    """Wait for Spark to leave (False), or for somebody at the door (True)."""
    poller.register(0, 0)  # a hang-up is told unasked; what Spark writes is for the process that serves
    if door is not None:
        poller.register(door, select.POLLIN)
    return all(fd != 0 for fd, _ in poller.poll())


def _door(place: Path) -> socket.socket | None:
    """Listen at a place, that of an earlier host as well; None where the system does not let us."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        place.unlink(missing_ok=True)
        door.bind(str(place))
        door.listen()
    except OSError:  # a path too long for a socket, a full disk
        door.close()
        return None
    return door


def _leave_host(door: socket.socket, place: Path, manage: Callable[[], None]) -> None:
    """Fork the host; the calling process goes on as the first parent."""
    if os.fork():
        door.close()
        return
    os.setpgid(0, 0)  # a signal to the parent's group, or from a terminal, is not for the host
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while _await_hangup(select.poll(), door.fileno()):
        guest, _ = door.accept()
        if os.fork() == 0:
            door.close()
            _serve_in_place_of(guest, manage)
        guest.close()
    for path in (place, place.with_suffix(".lock")):
        with suppress(OSError):
            path.unlink(missing_ok=True)
    os._exit(0)


def _serve_in_place_of(guest: socket.socket, manage: Callable[[], None]) -> NoReturn:
    """Become what the guest was started for, if this process fits it."""
    guest.settimeout(_LONGEST_WAIT_S)
    with guest:
        _, streams, _, _ = socket.recv_fds(guest, 1, len(_STREAMS))
        with guest.makefile("rb") as sent:
            given: dict[str, Any] = json.load(sent)
        if not fits(given["variables"], given["path"]):
            guest.sendall(_NO)
            os._exit(0)
        for stream, own in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, own)
            os.close(stream)
        os.environ.clear()
        os.environ.update(given["variables"])
        sys.path[:], sys.argv[:] = given["path"], given["arguments"]
        guest.sendall(_YES)
    manage()
    os._exit(0)
