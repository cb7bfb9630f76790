"""Spark's Python processes, forked from the first parent of workers of a JVM, which has loaded everything.

Rule: Spark starts a parent of workers for each set of environment variables. The tasks of one query have up to three:
reading, functions, state. For each query Spark starts a process that plans its reads, and one that names its state. It
also starts parents of the processes that make its source and cut its batches.

The first parent of workers loads, and leaves a process that forks (the host), where none was started before
(`early_host`). Another process hands its own standard streams and variables to the host, which forks a process that
serves in its place, and waits. The host fits a process whose variables differ only in those that PySpark reads on
demand. The host ends with the pipe from Spark to the first parent; a host that was started early ends with the JVM. A
forked process ends with its own pipe or socket. Where anything of this fails, a process loads for itself.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from keyedwm.runtime import private_dirs

_STREAMS = (0, 1, 2)
_YES, _NO = b"y", b"n"
_LONGEST_WAIT_S = 30.0
_LONGEST_LOAD_S = 180.0
_PATH = "PYTHONPATH"
# PySpark looks these up where it needs them, and not where it is imported; the path is compared by what it leads to.
_READ_LATE = ("SPARK_", "PYTHON_", _PATH)
# Spark sets it for tasks only: a process that plans needs as many threads as a task.
OF_TASKS = "OMP_NUM_THREADS"
_NAMES_STATE = "pyspark.sql.streaming.transform_with_state_driver_worker"
_FIRST_BYTE_S = 1.0


class Asks(Enum):
    """What a process hands its streams to the host for, by the first byte that it sends."""

    PARENT = b"w"  # to be a parent of workers
    PROGRAM = b"p"
    OPERATOR = b"o"  # the program of a query that has an operator, whose tasks come soon


def serve(load: Callable[[], Iterable[None]], manage: Callable[[], None]) -> None:
    """Load, or let a process that has loaded do it; then manage workers for Spark as `pyspark.daemon` does."""
    place = place_of(os.getppid())
    if place is None:
        deque(load(), maxlen=0)
        manage()
        return
    with place.with_suffix(".lock").open("w") as lock:
        # One that starts meanwhile waits: it has nothing to load then.
        fcntl.flock(lock, fcntl.LOCK_EX)
        host = _taken_over(place, None)
        if host is not None:
            lock.close()
            _end_with(host)
        deque(load(), maxlen=0)
        door = listen(place)
    if door is not None:
        _leave_host(door, place, manage)
    manage()


def run_where_loaded(module: str, *arguments: str) -> None:
    """Let the host of this JVM run a module in this process's place, and end with it; return where there is no host."""
    place = place_of(os.getppid())
    host = _taken_over(place, [module, *arguments]) if place is not None and place.exists() else None
    if host is not None:
        _end_with(host)


def fits(guest: Mapping[str, str]) -> bool:
    """Whether a process with these variables could have been this one."""

    def fixed(of: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in of.items() if not name.startswith(_READ_LATE)}

    def path(of: Mapping[str, str]) -> list[str]:
        return list(dict.fromkeys(of.get(_PATH, "").split(os.pathsep)))

    own = {name: value for name, value in os.environ.items() if name != OF_TASKS or name in guest}
    return fixed(guest) == fixed(own) and path(guest) == path(own)


def place_of(jvm: int) -> Path | None:
    """Return the socket of a JVM's host, in a directory of this user alone: what is sent there is run."""
    for directory in private_dirs.places(os.environ, "parents"):
        if private_dirs.unsafe(directory) is None:
            # Hosts and containers that share a home have JVMs with the same number.
            return directory / f"{socket.gethostname()}-{jvm}.sock"
    return None


def _taken_over(place: Path, program: Sequence[str] | None) -> socket.socket | None:
    """Hand this process's streams to the host; None if no host takes them. `program`: a module and its arguments."""
    request = json.dumps(
        {"variables": dict(os.environ), "python": sys.executable, "program": program, "argv": sys.argv}
    )
    host = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    host.settimeout(_LONGEST_LOAD_S if program is None else _LONGEST_WAIT_S)  # a parent waits until all is loaded
    try:
        host.connect(str(place))
        socket.send_fds(host, [_asks(program).value], _STREAMS)
        host.sendall(request.encode())
        host.shutdown(socket.SHUT_WR)
        if host.recv(1) == _YES:
            return host
    except OSError:  # there is none, or it has ended
        pass
    host.close()
    return None


def _asks(program: Sequence[str] | None) -> Asks:
    if program is None:
        return Asks.PARENT
    return Asks.OPERATOR if program[0] == _NAMES_STATE else Asks.PROGRAM


def _end_with(host: socket.socket) -> NoReturn:
    """Wait until the one that serves has ended, which closes its end; that one sees when Spark closes its pipe.

    Where there is a `cat` it waits in this process's place, for as long as the query runs, without a Python's memory.
    """
    for cat in (f"{directory}/cat" for directory in os.defpath.split(os.pathsep) if directory):
        if os.access(cat, os.X_OK):
            host.settimeout(None)
            os.dup2(host.fileno(), 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            with suppress(OSError):
                os.execv(cat, [cat])  # noqa: S606 - no shell is wanted
    _await(host.fileno())
    os._exit(0)


def _await(*ends: int) -> set[int]:
    """Wait for a hang-up of standard input, whose content is for another, or anything at the other ends."""
    poller = select.poll()
    for end in ends:
        poller.register(end, select.POLLIN if end else 0)
    return {end for end, _ in poller.poll()}


def listen(place: Path) -> socket.socket | None:
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
    """Fork the host; the calling process continues as the first parent."""
    if os.fork():
        door.close()
        return
    os.setpgid(0, 0)  # a signal to the parent's group, or from a terminal, is not for the host
    fork_until(0, door, place, manage)


def fork_until(
    end: int,
    door: socket.socket,
    place: Path,
    manage: Callable[[], None],
    on_operator: Callable[[], None] | None = None,
) -> NoReturn:
    """Fork what is asked for at the door, until there is a hang-up at `end` or it can be read.

    on_operator: called when a query has one, before its tasks come.
    """
    sweep(place)
    while end not in _await(end, door.fileno()):
        guest, asks = accept(door)
        fork_for(guest, manage, door)
        if asks is Asks.OPERATOR and on_operator is not None:
            on_operator()
    for path in (place, place.with_suffix(".lock")):
        with suppress(OSError):
            path.unlink(missing_ok=True)
    os._exit(0)


def accept(door: socket.socket) -> tuple[socket.socket, Asks | None]:
    """Let the next one in, and look at what it asks for; None if it has left."""
    guest, _ = door.accept()
    guest.settimeout(_FIRST_BYTE_S)
    try:
        return guest, Asks(guest.recv(1, socket.MSG_PEEK))
    except (OSError, ValueError):
        return guest, None


def fork_for(guest: socket.socket, manage: Callable[[], None], *others: socket.socket) -> None:
    """Fork what serves in the place of a guest; others: the sockets that are not for it."""
    signal.signal(signal.SIGCHLD, _reap)
    if os.fork() == 0:
        for one in others:
            one.close()
        _serve_in_place_of(guest, manage)
    guest.close()


def _reap(*_signal: object) -> None:
    """Take leave of the forked that have ended: their processor time is the host's from then on, and not forgotten."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def sweep(place: Path) -> None:
    """Remove the sockets and locks that hosts of this machine have left which were killed, once their JVM has ended."""
    machine = place.stem.rpartition("-")[0]
    for left in place.parent.glob(f"{glob.escape(machine)}-*"):
        jvm = left.stem.removeprefix(f"{machine}-")
        if left.suffix in {".lock", ".sock"} and jvm.isdecimal() and not _is_alive(int(jvm)):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's, or no number of a process
        return True
    return True


def _serve_in_place_of(guest: socket.socket, manage: Callable[[], None]) -> NoReturn:
    """Become what the guest was started for, if this process fits it; the guest's socket closes at the end."""
    guest.settimeout(_LONGEST_WAIT_S)
    _, streams, _, _ = socket.recv_fds(guest, 1, len(_STREAMS))
    with guest.makefile("rb") as request_file:
        request: dict[str, Any] = json.load(request_file)
    if request["python"] != sys.executable or not fits(request["variables"]):
        guest.sendall(_NO)
        os._exit(0)
    for stream, own in zip(streams, _STREAMS, strict=True):
        os.dup2(stream, own)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["variables"])
    sys.argv[:] = request["argv"]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    guest.sendall(_YES)
    _end_when_left(guest)
    if request["program"] is None:
        manage()
        os._exit(0)
    _run(*request["program"])


def _end_when_left(guest: socket.socket) -> None:
    """Let the system send SIGTERM to this process when its guest has ended: Spark sends it to the guest alone.

    What runs here may wait for something else and never look. A thread that looks would be in the way of a fork.
    """
    if not hasattr(fcntl, "F_SETSIG"):  # not Linux
        return
    fcntl.fcntl(guest, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(guest, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(guest, fcntl.F_SETFL, fcntl.fcntl(guest, fcntl.F_GETFL) | os.O_ASYNC)
    poller = select.poll()
    poller.register(guest, 0)
    if poller.poll(0):  # it had ended before
        os._exit(0)


def _run(module: str, *arguments: str) -> NoReturn:
    """Run a module as Python does when it is named by -m, and end."""
    sys.argv[:] = [module, *arguments]
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  as the interpreter ends a program: told on standard error
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)
