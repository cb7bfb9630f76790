"""Forks Spark's Python processes from one process of a JVM, the host, which has loaded our modules.

Rule: Spark starts a parent of workers for each set of environment variables; the tasks of one query have up to three
sets: for reading, functions and state. For each query Spark also starts several programs of PySpark, which plan its
batches, name its state variables, create its source and commit its writes.

If no host was started before (`early_host`), the first parent of workers loads the modules and forks the host. Every
later process sends its standard streams and variables to the host, and waits. The host forks a process that serves in
its place, if their variables differ only in those that PySpark reads on demand. The host ends with the pipe from Spark
to the first parent; a host that was started early ends with the JVM. A forked process ends with its own pipe or socket.
If any step fails, the process loads the modules itself.
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
# PySpark reads variables with these prefixes on demand, not at its import. The path is compared by its entries.
_READ_LATE = ("SPARK_", "PYTHON_", _PATH)
# Spark sets it for tasks only; a planner without it can run with the number of threads that a task has.
OF_TASKS = "OMP_NUM_THREADS"
# Spark's daemon: it forks workers. Spark starts it also for each kind of question about a data source, and for commits.
_PARENT = "pyspark.daemon"
# The parent of the workers of tasks, in a session without our daemon module.
_PARENT_OF_WORKERS = [_PARENT, "pyspark.worker"]
_NAMES_STATE = "pyspark.sql.streaming.transform_with_state_driver_worker"
_FIRST_BYTE_S = 1.0


class Asks(Enum):
    """The request of a process to the host, by the first byte that it sends."""

    PARENT = b"w"  # be a parent of workers
    PROGRAM = b"p"  # run a program
    OPERATOR = b"o"  # run the program of a query that has an operator, whose tasks start soon


def serve(load: Callable[[], Iterable[None]], manage: Callable[[], None]) -> None:
    """Be a parent of workers: let the host serve in this process's place, or load, fork a host and run `manage`."""
    place = place_of(os.getppid())
    if place is None:
        deque(load(), maxlen=0)
        manage()
        return
    with place.with_suffix(".lock").open("w") as lock:
        # A parent that starts meanwhile waits here, and then lets the host serve.
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
    """Let the host of this JVM run a module in this process's place, and end with it; return if there is no host."""
    place = place_of(os.getppid())
    host = _taken_over(place, [module, *arguments]) if place is not None and place.exists() else None
    if host is not None:
        _end_with(host)


def fits(guest: Mapping[str, str]) -> bool:
    """Whether this process can serve in place of a process with these variables."""

    def fixed(of: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in of.items() if not name.startswith(_READ_LATE)}

    def path(of: Mapping[str, str]) -> list[str]:
        return list(dict.fromkeys(of.get(_PATH, "").split(os.pathsep)))

    own = {name: value for name, value in os.environ.items() if name != OF_TASKS or name in guest}
    return fixed(guest) == fixed(own) and path(guest) == path(own)


def place_of(jvm: int) -> Path | None:
    """Return the path of the socket of a JVM's host; None without a directory of this user alone.

    The directory must be private: the host runs the module that a process sends.
    """
    for directory in private_dirs.places(os.environ, "parents"):
        if private_dirs.unsafe(directory) is None:
            # Machines and containers that share a home may have JVMs with the same process id.
            return directory / f"{socket.gethostname()}-{jvm}.sock"
    return None


def _taken_over(place: Path, program: Sequence[str] | None) -> socket.socket | None:
    """Send this process's streams and variables to the host; return the connection, None if no host serves.

    program: a module and its arguments, None for a parent of workers.
    """
    request = json.dumps(
        {"variables": dict(os.environ), "python": sys.executable, "program": program, "argv": sys.argv}
    )
    host = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    asks = _asks(program)
    host.settimeout(_LONGEST_LOAD_S if asks is Asks.PARENT else _LONGEST_WAIT_S)  # a parent waits until all is loaded
    try:
        host.connect(str(place))
        socket.send_fds(host, [asks.value], _STREAMS)
        host.sendall(request.encode())
        host.shutdown(socket.SHUT_WR)
        if host.recv(1) == _YES:
            return host
    except OSError:  # there is no host, or the host has ended
        pass
    host.close()
    return None


def _asks(program: Sequence[str] | None) -> Asks:
    if program is None or program == _PARENT_OF_WORKERS:
        return Asks.PARENT
    return Asks.OPERATOR if program[0] == _NAMES_STATE else Asks.PROGRAM


def _end_with(host: socket.socket) -> NoReturn:
    """Wait until the fork has ended, which closes its connection, and exit. The fork sees when Spark closes the pipe.

    If there is a `cat`, this process becomes one: it waits as long as the query runs, with less memory than Python.
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
    """Wait for a hang-up or data, and return the descriptors that have them. Data of standard input does not count."""
    poller = select.poll()
    for end in ends:
        poller.register(end, select.POLLIN if end else 0)
    return {end for end, _ in poller.poll()}


def listen(place: Path) -> socket.socket | None:
    """Listen at a place, even if an earlier host left its socket there; None if the system does not allow it."""
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
    """Fork a process for each request at the door, until the descriptor `end` has a hang-up or can be read.

    on_operator: called when a query with an operator starts, before its tasks.
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
    """Accept the next guest (a process that asks the host) and read its request, None if the guest has left."""
    guest, _ = door.accept()
    guest.settimeout(_FIRST_BYTE_S)
    try:
        return guest, Asks(guest.recv(1, socket.MSG_PEEK))
    except (OSError, ValueError):
        return guest, None


def fork_for(guest: socket.socket, manage: Callable[[], None], *others: socket.socket) -> None:
    """Fork a process that serves in the place of a guest. others: the sockets that the fork closes."""
    signal.signal(signal.SIGCHLD, _reap)
    if os.fork() == 0:
        for one in others:
            one.close()
        _serve_in_place_of(guest, manage)
    guest.close()


def _reap(*_signal: object) -> None:
    """Reap the forks that have ended: the system then adds their processor time to the host's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def sweep(place: Path) -> None:
    """Remove the sockets and locks of hosts of this machine whose JVM has ended: a killed host leaves them."""
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
    except (PermissionError, OverflowError):  # another user's process, or no process id
        return True
    return True


def _serve_in_place_of(guest: socket.socket, manage: Callable[[], None]) -> NoReturn:
    """Do the guest's work, if this process fits the guest; the guest's socket closes when this process ends."""
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
    match request["program"]:
        case None:
            manage()
        case [str(module), *_] as program if module == _PARENT:
            sys.argv[:] = program
            manage()
        case program:
            _run(*program)
    os._exit(0)


def _end_when_left(guest: socket.socket) -> None:
    """Make the system send SIGTERM to this process when its guest has ended: Spark sends a signal to the guest alone.

    The program of this process may wait for other input. A thread that waits for the guest would make forks unsafe.
    """
    if not hasattr(fcntl, "F_SETSIG"):  # not Linux
        return
    fcntl.fcntl(guest, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(guest, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(guest, fcntl.F_SETFL, fcntl.fcntl(guest, fcntl.F_GETFL) | os.O_ASYNC)
    poller = select.poll()
    poller.register(guest, 0)
    if poller.poll(0):  # the guest had ended before
        os._exit(0)


def _run(module: str, *arguments: str) -> NoReturn:
    """Run a module as `python -m` does, and exit."""
    sys.argv[:] = [module, *arguments]
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  as the interpreter does: with a traceback on standard error
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)
