"""A Spark standalone cluster on this machine, from PySpark's own jars: a master, and workers that share nothing.

Rule: each worker has its own loopback address (127.0.0.2, 127.0.0.3, ...: Spark takes them for hosts), work directory,
HOME, TMPDIR and caches. When the context ends, all processes that they started and all directories are gone. Linux
only: other systems have 127.0.0.1 alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from keyedwm.core.errors import OptionError, OutOfTurnError, UnavailableError
from keyedwm.testing.guard import Guard
from keyedwm.testing.java import complaint, find_java
from keyedwm.testing.local import free_ports
from tests.shared_classes import java_options

MASTER_HOST = "127.0.0.1"
# A JVM starts in seconds; a loaded machine takes many times that.
START_LIMIT_S = 180.0
_END_LIMIT_S = 30.0
_MOST_WORKERS = 254  # each has an address of 127.0.0.0/24, after the master's
_LEAST_MB = 450  # Spark refuses an executor below 471,859,200 bytes
_ANSWER_LIMIT_S = 10.0
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java_options()}
# What a worker must not inherit: it would share it with the driver and with other workers.
_OWN = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "SPARK_LOCAL_DIRS", "SPARK_WORKER_DIR", "SPARK_LOCAL_IP")


class _Daemon:
    """One of Spark's own processes, with a directory and a session of its own; what it starts stays in that session."""

    def __init__(self, home: Path, variables: Mapping[str, str]) -> None:
        self.home = home
        self._variables = variables
        self._process: subprocess.Popen | None = None
        self._guard: Guard | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None while it does not run."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> str:
        """All that it logged so far, over all its starts."""
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def launch(self, main_class: str, *arguments: str) -> None:
        """Start it; it may not serve yet."""
        if self._process:
            raise OutOfTurnError(f"{self.home.name} runs already")
        self.home.mkdir(parents=True, exist_ok=True)
        spark = spark_home()
        java = Path(find_java())
        variables = {name: value for name, value in os.environ.items() if name not in _OWN}
        variables |= {"SPARK_HOME": str(spark), **_DAEMON, **self._variables}
        if java.parent.name == "bin":
            variables["JAVA_HOME"] = str(java.resolve().parent.parent)
        with (self.home / "log").open("a") as out:
            self._process = subprocess.Popen(
                [spark / "bin" / "spark-class", f"org.apache.spark.deploy.{main_class}", *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=self.home, env=variables,
                start_new_session=True,
            )  # fmt: skip
        self._guard = Guard("process", str(self._process.pid), str(self.home))

    def check(self) -> None:
        """Raise UnavailableError if it has ended by itself."""
        if self._process and self._process.poll() is not None:
            raise UnavailableError(f"Spark's {self.home.name} ended by itself: {complaint(self.log)}")

    def kill(self) -> None:
        """SIGKILL for it and for everything that it started."""
        if not self._process:
            return
        limit = time.monotonic() + _END_LIMIT_S
        while left := of_session(self._process.pid):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()  # or it would stay as a zombie
            if time.monotonic() > limit:
                raise UnavailableError(f"processes of Spark's {self.home.name} do not end: {left}")
            time.sleep(0.02)
        self._process.wait()
        self._process = None
        if self._guard:
            self._guard.dismiss()
            self._guard = None


class Worker(_Daemon):
    """A worker and its executors; `kill` is a crash of its host, `lose` takes the disk too, `start` brings it back."""

    def __init__(self, number: int, home: Path, master: str, cores: int, memory_mb: int) -> None:
        self.address = f"127.0.0.{number + 1}"
        self._master, self._cores, self._memory_mb = master, cores, memory_mb
        own = {"HOME": home / "home", "TMPDIR": home / "tmp", "SPARK_LOCAL_DIRS": home / "local"}
        super().__init__(home, {name: str(path) for name, path in own.items()} | {"SPARK_LOCAL_IP": self.address})

    def start(self) -> None:
        """Start the process; `Standalone.wait_for` waits until the master knows it."""
        for name in ("home", "tmp", "local", "work"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        self.launch(
            "worker.Worker", "--host", self.address, "--webui-port", "0", "--work-dir", str(self.home / "work"),
            "--cores", str(self._cores), "--memory", f"{self._memory_mb}m", self._master,
        )  # fmt: skip

    def lose(self) -> None:
        """Kill it, and remove all that it had on disk."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def executors(self) -> list[int]:
        """Process ids of its executors."""
        if self.pid is None:
            return []
        return [pid for pid in of_session(self.pid) if "CoarseGrainedExecutorBackend" in command_of(pid)]


class Standalone:
    """A running cluster: `url` is what a session's `master` takes."""

    def __init__(self, home: Path, workers: int, cores: int, memory_mb: int) -> None:
        port, self._ui_port = free_ports(2)
        self.url = f"spark://{MASTER_HOST}:{port}"
        self._port = port
        self.master = _Daemon(home / "master", {"SPARK_LOCAL_IP": MASTER_HOST})
        self.workers = [
            Worker(number, home / f"worker-{number}", self.url, cores, memory_mb) for number in range(1, workers + 1)
        ]

    def start(self) -> None:
        """Start all, and return when the master knows every worker."""
        ports = ("--port", str(self._port), "--webui-port", str(self._ui_port))
        self.master.launch("master.Master", "--host", MASTER_HOST, *ports)
        for worker in self.workers:
            worker.start()
        self.wait_for(len(self.workers))

    def wait_for(self, alive: int) -> None:
        """Return when so many workers are alive for the master; UnavailableError says which process has failed."""
        running = [self.master, *self.workers]
        limit = time.monotonic() + START_LIMIT_S
        while self.alive() != alive:
            for one in running:
                one.check()
            if time.monotonic() > limit:
                complaints = "; ".join(f"{one.home.name}: {complaint(one.log)}" for one in running)
                raise UnavailableError(f"{self.url} has not {alive} workers after {START_LIMIT_S:g} s: {complaints}")
            time.sleep(0.1)

    def alive(self) -> int | None:
        """How many workers are alive, None if the master does not answer."""
        try:
            with urlopen(f"http://{MASTER_HOST}:{self._ui_port}/json/", timeout=_ANSWER_LIMIT_S) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):
            return None

    def kill(self) -> None:
        """End everything."""
        for one in (*self.workers, self.master):
            one.kill()

    def describe(self) -> str:
        """One line for people."""
        addresses = ", ".join(worker.address for worker in self.workers)
        return (
            f"Spark's standalone cluster at {self.url} (http://{MASTER_HOST}:{self._ui_port}), workers at {addresses}"
        )


@contextmanager
def standalone(workers: int = 3, *, cores: int = 1, memory_mb: int = 1_024) -> Iterator[Standalone]:
    """A running cluster for the time of the `with`; cores, memory_mb: what each worker offers to executors.

    Raises OptionError without PySpark or for a wrong number, UnavailableError if the cluster does not come up.
    """
    for name, value, least, most in (
        ("workers", workers, 1, _MOST_WORKERS), ("cores", cores, 1, None), ("memory_mb", memory_mb, _LEAST_MB, None)
    ):  # fmt: skip
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            to = "" if most is None else f" to {most}"
            raise OptionError(f"standalone({name}={value!r}): a whole number from {least}{to} is expected")
    home = Path(tempfile.mkdtemp(prefix="keyedwm-spark-"))
    cluster = Standalone(home, workers, cores, memory_mb)
    try:
        cluster.start()
        yield cluster
    finally:
        try:
            cluster.kill()
        finally:
            shutil.rmtree(home, ignore_errors=True)


def spark_home() -> Path:
    """Where PySpark is installed, with its jars."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise OptionError("PySpark is not installed in this environment: pip install pyspark")
    return Path(spec.origin).parent


def of_session(session: int) -> list[int]:
    """Process ids of a session but those that have ended and wait for their parent."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state not in "ZX":
                    pids.append(int(entry.name))
    return pids


def command_of(pid: int) -> str:
    """The command line of a process, its parts separated by NUL; nothing of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
