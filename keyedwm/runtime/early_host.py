"""The host of a JVM's Python processes, started beside the first of them: it loads while Spark reads the plan.

Rule: without this host the first parent of workers loads our modules while the first task waits, and the processes
before it start one after another. The modules of operators are loaded once a query has an operator: Spark asks for its
state variables before the first task. The host is started only if the tasks run in the JVM. If the JVM's command
line has `keyedwm.daemon` as the daemon module, the JVM's first Python process starts the host. Without that
setting the source starts it, so a session that reads no topic with keyedwm has none. The host ends with the JVM. If
there is no host, the first parent loads; without our daemon module each worker does.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from keyedwm.runtime.forked import OF_TASKS, Asks, accept, fork_for, fork_until, listen, place_of

DAEMON = "keyedwm.daemon"
_SPARKS_DAEMON = "pyspark.daemon"
_DAEMON_OPTION = "spark.python.daemon.module"
_MASTER_OPTION = "spark.master"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_PROPERTIES = "--properties-file"
# Spark sets a task's number of threads by the first of these, or else to the task's cores.
_THREADS_OPTIONS = ("spark.executorEnv.OMP_NUM_THREADS", "spark.task.cpus")


def start() -> None:
    """Start the host of the JVM that started this process, unless the JVM has a host or another daemon module."""
    _start(os.getppid(), {DAEMON})


def start_for_source() -> None:
    """Start the host of the JVM that asked this process for the source, unless the JVM has a host.

    A session that names another daemon module, also Spark's own, has none. This process is a worker that Spark's daemon
    forked, or one that the JVM started itself.
    """
    parent = os.getppid()
    is_forked = _SPARKS_DAEMON in _command(parent)
    _start(_parent_of(parent) if is_forked else parent, {DAEMON, None})


def _start(jvm: int, daemons: Set[str | None]) -> None:
    """Start the host of a JVM whose command line has one of these daemon modules; None: it has no such setting."""
    command = _command(jvm)
    options = options_of(command)
    threads = next((options[name] for name in _THREADS_OPTIONS if name in options), "1")
    if options.get(_DAEMON_OPTION) not in daemons or not hasattr(os, "pidfd_open"):
        return
    with suppress(OSError):  # a directory cannot be read, the JVM has ended, or the system forbids it
        place = place_of(jvm) if _is_local(command, options) else None
        if place is None or place.exists():
            return
        end = os.pidfd_open(jvm)
        os.set_inheritable(end, True)  # noqa: FBT003 - as the system has it
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
        os.posix_spawn(
            sys.executable, [sys.executable, "-m", DAEMON, str(place), str(end)], {OF_TASKS: threads, **os.environ},
            file_actions=null, setpgroup=0,  # a signal to Spark's group, or from a terminal, is not for the host
        )  # fmt: skip
        os.close(end)


def serve(
    place: Path,
    end: int,
    load: Callable[[], Iterable[None]],
    load_operators: Callable[[], Iterable[None]],
    manage: Callable[[], None],
) -> None:
    """Load, and be the host at a place until the JVM has ended. end: a descriptor of the JVM's process.

    While modules are loaded, parents of workers wait; other processes are forked between two steps of the loading.
    """
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        door = None if place.exists() else listen(place)  # a parent of workers may have come first
    if door is None:
        return
    left, waiting = [load, load_operators], []

    def has_operator(steps: Iterable[None]) -> bool:
        """Load, and return whether a query with an operator asked for a process meanwhile."""
        is_operator = False
        for _ in steps:
            while select.select([door], [], [], 0)[0]:
                guest, asks = accept(door)
                is_operator |= asks is Asks.OPERATOR
                if asks is Asks.PARENT:
                    waiting.append(guest)
                else:
                    fork_for(guest, manage, door, *waiting)
        return is_operator

    def load_next() -> None:
        while left and has_operator(left.pop(0)()):
            pass
        while waiting:
            fork_for(waiting.pop(), manage, door, *waiting)

    load_next()
    fork_until(end, door, place, manage, load_next)


def options_of(command: Sequence[str]) -> dict[str, str]:
    """Return Spark's settings on a JVM's command line, the last value of each; `--master` is a setting, too."""
    options = {}
    for name, value in pairwise(command):
        if name == "--conf" and "=" in value:
            option, _, setting = value.partition("=")
            options[option] = setting
        elif name == "--master":
            options[_MASTER_OPTION] = value
    return options


def _is_local(command: Sequence[str], options: Mapping[str, str]) -> bool:
    """Return whether the tasks run in this JVM. A master in a file of Spark's configuration is not read."""
    master = options.get(_MASTER_OPTION) or os.environ.get("MASTER")
    if master is None and _SUBMIT in command and _PROPERTIES not in command:
        home = os.environ.get("SPARK_HOME", "")
        defaults = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
        return bool(home) and not defaults.exists()  # Spark's own default is local[*]
    return (master or "").startswith("local")


def _parent_of(pid: int) -> int:
    """Return the id of a process's parent; 0 if the system does not show it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])  # behind the name, which may have blanks, and the state


def _command(pid: int) -> list[str]:
    """Return a process's command line; empty if the system does not show it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return []
