"""The host of Spark's Python processes starts with the first of them, where the JVM's command line asks for it.

A process of Python stands for the JVM: it has the command line, and starts the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from keyedwm.runtime.early_host import options_of
from tests.tools import wait_until

JVM = """
import subprocess, sys
for line in sys.stdin:
    program = [sys.executable, "-c", line.removeprefix("&")]
    started = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    print("" if line[0] == "&" else started.communicate()[0].hex(), flush=True)
"""
OURS = ("--conf", "spark.python.daemon.module=keyedwm.daemon")
LOCAL = ("--master", "local[2]")
START = "from keyedwm.runtime import early_host as early; early.start()"
SOURCE = "from keyedwm.runtime import early_host as early; early.start_for_source()"
FORKED = """
import os, sys
if os.fork() == 0:
    exec(sys.argv[2])
    os._exit(0)
os.wait()
"""
# A daemon of Spark forks the worker that asks for the source.
OF_DAEMON = f"import os, sys; os.execv(e := sys.executable, [e, '-c', {FORKED!r}, 'pyspark.daemon', {SOURCE!r}])"
SUBMIT = ("org.apache.spark.deploy.SparkSubmit", "pyspark-shell")
GUEST = "from keyedwm.runtime.forked import run_where_loaded as run; run('planner', 'an argument'); print('no host')"
# It could not load. The host's manager tells Spark four bytes, the port where it waits, and ends with its input.
PARENT = "from keyedwm.runtime.forked import serve; serve(None, None)"
# Spark's own.
WORKERS = "from keyedwm.runtime.forked import run_where_loaded as run; run('pyspark.daemon', 'pyspark.worker')"
PLANNER = """
import os, sys
print(sys.argv[1], "numba" in sys.modules, os.environ.get("OMP_NUM_THREADS"))
"""
OPERATOR = GUEST.replace("planner", "pyspark.sql.streaming.transform_with_state_driver_worker")
BUCKETS = "import sys; print('keyedwm.spark.hosting.bucket' in sys.modules)"
SLOW_HOST = """
import os, time
from pathlib import Path
from keyedwm.runtime import early_host, forked

def load():
    while not Path(__file__).with_name("loaded").exists():
        time.sleep(0.02)
        yield

early_host.serve(forked.place_of(os.getppid()), os.pidfd_open(os.getppid()), load, load, None)
"""
STAYS = """
import sys, time
from pathlib import Path
began = Path(sys.argv[1], "began")
began.touch()
while began.exists():
    time.sleep(0.05)
"""


class Jvm:
    """What stands for a JVM with a command line; its processes keep their sockets in `home`."""

    def __init__(self, home: Path, command: Sequence[str]) -> None:
        home.chmod(0o700)
        (home / "planner.py").write_text(PLANNER)
        own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.parents = home / "keyedwm" / "parents"
        self.process = subprocess.Popen(
            [sys.executable, "-c", JVM, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=own | {
                "XDG_CACHE_HOME": str(home), "PYTHONPATH": f"{home}{os.pathsep}{Path.cwd()}", "SPARK_HOME": str(home),
            },
        )  # fmt: skip

    def run(self, program: str) -> bytes:
        """Start a process that runs a program, and return what it said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{program}\n")
        self.process.stdin.flush()
        return bytes.fromhex(self.process.stdout.readline())

    def left(self) -> list[str]:
        return sorted(path.suffix for path in self.parents.glob("*"))

    def has_host(self) -> bool:
        """Whether a process has a place in `home` on its command line; it is there before its socket."""
        ran = subprocess.run(["pgrep", "-f", f"keyedwm.daemon {self.parents}"], capture_output=True, check=False)
        return bool(ran.stdout)


def ended_s(pid: int) -> float:
    """Processor seconds of the children of a process that have ended."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return sum(map(int, text[text.rindex(")") + 2 :].split()[13:15])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def jvm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jvm]:
    one = Jvm(tmp_path, request.param)
    yield one
    one.process.communicate()
    wait_until(lambda: not one.left(), "the end of the host with its JVM")


@pytest.mark.parametrize("jvm", [(*OURS, *LOCAL)], indirect=True)
def test_what_starts_before_any_worker_is_forked_from_the_host_and_there_is_one(jvm):
    assert jvm.run(START) == b""
    wait_until(lambda: ".sock" in jvm.left(), "a host")
    assert jvm.run(START) == b""
    wait_until(lambda: jvm.run(GUEST) == b"an argument True None\n", "a host that has loaded")
    assert jvm.left() == [".lock", ".sock"]


@pytest.mark.parametrize("program", [SOURCE, OF_DAEMON], ids=["of the JVM", "of a daemon"])
@pytest.mark.parametrize("jvm", [LOCAL, SUBMIT], ids=["a local master", "Spark's default"], indirect=True)
def test_without_our_daemon_module_the_source_starts_the_host(jvm, program):
    assert jvm.run(START) == b""
    assert not jvm.has_host()
    assert jvm.run(program) == b""
    wait_until(lambda: ".sock" in jvm.left(), "a host")
    assert len(jvm.run(WORKERS)) == len("port")
    assert jvm.run(GUEST) == b"an argument True None\n"


@pytest.mark.parametrize(
    "jvm",
    [
        (*LOCAL, "--conf", "spark.python.daemon.module=mine"),
        (*LOCAL, "--conf", "spark.python.daemon.module=pyspark.daemon"), ("--master", "yarn", *SUBMIT),
        ("--properties-file", "of.mine", *SUBMIT), (),
    ],
    ids=["another daemon", "Spark's daemon by name", "a cluster", "a file of settings", "no JVM"],
    indirect=True,
)  # fmt: skip
def test_the_source_starts_no_host_where_tasks_may_run_elsewhere_or_the_session_names_a_daemon(jvm):
    assert jvm.run(SOURCE) == b""
    assert not jvm.has_host()


@pytest.mark.parametrize("jvm", [SUBMIT], indirect=True)
def test_the_source_starts_no_host_where_a_file_may_name_a_cluster(jvm, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert jvm.run(SOURCE) == b""
    assert not jvm.has_host()
    (tmp_path / "conf" / "spark-defaults.conf").unlink()
    assert jvm.run(SOURCE) == b""
    assert jvm.has_host()


@pytest.mark.parametrize("jvm", [(*OURS, *LOCAL)], indirect=True)
def test_what_operators_need_is_loaded_once_a_query_has_one(jvm, tmp_path):
    (tmp_path / "buckets.py").write_text(BUCKETS)
    buckets = GUEST.replace("planner", "buckets")
    assert jvm.run(START) == b""
    wait_until(lambda: jvm.run(GUEST) == b"an argument True None\n", "a host that has loaded")
    assert jvm.run(buckets) == b"False\n"
    jvm.run(OPERATOR)  # which ends at once: no JVM calls it
    assert len(jvm.run(PARENT)) == len("port")  # a parent waits until that is loaded
    assert jvm.run(buckets) == b"True\n"


@pytest.mark.parametrize("jvm", [(*OURS, *LOCAL)], indirect=True)
def test_what_operators_need_is_loaded_behind_the_rest_if_one_is_asked_for_meanwhile(jvm, tmp_path):
    (tmp_path / "buckets.py").write_text(BUCKETS)
    assert jvm.run(START) == b""
    wait_until(lambda: ".sock" in jvm.left(), "a host")
    jvm.run(OPERATOR)
    assert len(jvm.run(PARENT)) == len("port")
    wait_until(lambda: jvm.run(GUEST.replace("planner", "buckets")) == b"True\n", "a host that has loaded both")


@pytest.mark.parametrize("jvm", [(*OURS, *LOCAL)], indirect=True)
def test_the_processor_time_of_what_was_forked_and_has_ended_is_the_hosts(jvm, tmp_path):
    (tmp_path / "works.py").write_text("import time\nwhile time.process_time() < 1: pass\nprint('done')")
    (tmp_path / "host.py").write_text("import os; print(os.getppid())")
    assert jvm.run(START) == b""
    wait_until(lambda: jvm.run(GUEST) == b"an argument True None\n", "a host that has loaded")
    host = int(jvm.run(GUEST.replace("planner", "host")))
    before = ended_s(host)
    assert jvm.run(GUEST.replace("planner", "works")) == b"done\n"
    wait_until(lambda: ended_s(host) >= before + 0.9, "the processor time of the one that has ended")


@pytest.mark.parametrize("jvm", [()], indirect=True)
def test_what_starts_while_the_host_loads_does_not_wait(jvm, tmp_path):
    (tmp_path / "slow_host.py").write_text(SLOW_HOST)
    jvm.run("&import slow_host")
    wait_until(lambda: ".sock" in jvm.left(), "a host")
    assert jvm.run(GUEST) == b"an argument False None\n"
    (tmp_path / "loaded").touch()


@pytest.mark.parametrize("parent", [PARENT, WORKERS], ids=["our daemon", "Spark's daemon"])
@pytest.mark.parametrize("jvm", [(*OURS, *LOCAL)], indirect=True)
def test_a_parent_of_workers_waits_for_a_host_that_loads_and_not_for_what_was_forked_meanwhile(jvm, tmp_path, parent):
    (tmp_path / "stays.py").write_text(STAYS)
    assert jvm.run(START) == b""
    wait_until(lambda: ".sock" in jvm.left(), "a host")
    jvm.run(f"&{GUEST.replace('planner', 'stays').replace('an argument', str(tmp_path))}")
    wait_until((tmp_path / "began").exists, "the one that stays")
    assert len(jvm.run(parent)) == len("port")
    (tmp_path / "began").unlink()


@pytest.mark.parametrize(
    "jvm",
    [
        LOCAL, OURS, (*OURS, "--master", "spark://host:7077"), (*LOCAL, *OURS, "--conf", "spark.master=yarn"),
        ("--conf", "spark.python.daemon.module=mine", *LOCAL),
    ],
    ids=["no daemon", "no master", "a cluster", "a cluster by its setting", "another daemon"],
    indirect=True,
)  # fmt: skip
def test_no_host_is_started_where_the_command_line_does_not_ask_for_it(jvm):
    assert jvm.run(START) == b""
    assert not jvm.has_host()
    assert jvm.run(GUEST) == b"no host\n"


def test_the_last_of_a_setting_counts_and_what_is_none_is_passed_over():
    command = [
        "java",
        "Main",
        "--conf",
        "a=1",
        "--master",
        "local",
        "--conf",
        "a=2=3",
        "--conf",
        "none",
        "script",
        "--conf",
    ]
    assert options_of(command) == {"a": "2=3", "spark.master": "local"}
