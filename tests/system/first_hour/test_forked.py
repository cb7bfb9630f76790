"""Of Spark's Python processes in one JVM the first parent of workers loads; others are forked from what it has loaded.

This process stands for the JVM: it starts each of them with pipes, and leaves by closing these.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from tests.installed import PATIENCE_S
from tests.tools import wait_until

PARENT = """
import json, os, sys
from pathlib import Path
from keyedwm.runtime.forked import serve

def load():
    with Path(sys.argv[1]).open("a") as loads:
        loads.write("loaded\\n")
    yield

def manage():
    told = {"pid": os.getpid(), "own": os.environ["SPARK_OWN"], "argument": sys.argv[-1]}
    print(json.dumps(told), flush=True)
    sys.stdin.read()
    print("left", flush=True)

serve(load, manage)
"""


class Parent:
    """One that was started as Spark does it, and has said who serves."""

    def __init__(self, home: Path, own: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(home / "loads"), f"argument of {own}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=variables_of(home, own, **variables),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())
        assert (self.told["own"], self.told["argument"]) == (own, f"argument of {own}")

    def leave(self) -> None:
        """As Spark does; the one that serves sees it, and the process that Spark started ends."""
        said, _ = self.process.communicate()
        assert said == "left\n"
        wait_until(lambda: not alive(self.told["pid"]), "the end of the one that served")


def variables_of(home: Path, own: str, **variables: str) -> dict[str, str]:
    return os.environ | {"XDG_CACHE_HOME": str(home), "SPARK_OWN": own, **variables}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Parent]]:
    started = []

    def parent(own: str, **variables: str) -> Parent:
        started.append(Parent(tmp_path, own, **variables))
        return started[-1]

    yield parent
    for one in started:
        if one.process.poll() is None:
            one.process.communicate()
    wait_until(lambda: not list((tmp_path / "keyedwm" / "parents").glob("*.sock")), "the end of the host")


@pytest.fixture
def loads(tmp_path: Path) -> Callable[[], int]:
    return lambda: len((tmp_path / "loads").read_text().splitlines())


def test_later_parents_serve_with_their_own_variables_and_load_nothing(start, loads):
    first, second, third = start("a"), start("b"), start("c", PYTHON_OWN="1")
    assert loads() == 1
    assert first.told["pid"] == first.process.pid
    assert len({one.told["pid"] for one in (first, second, third)}) == 3
    for one in (second, first, third):
        one.leave()


def test_a_parent_whose_variables_count_when_a_library_is_loaded_loads_for_itself(start, loads):
    start("a")
    other = start("b", OMP_NUM_THREADS="7")
    assert other.told["pid"] == other.process.pid
    assert loads() == 2


def test_what_was_forked_serves_on_when_the_first_parent_has_been_left(start, loads, tmp_path):
    first, second = start("a"), start("b")
    first.leave()
    wait_until(lambda: not list((tmp_path / "keyedwm" / "parents").iterdir()), "the end of the host")
    assert second.process.poll() is None
    start("c")
    assert loads() == 2
    second.leave()


def test_a_socket_that_a_killed_host_left_behind_is_taken_over(start, loads, tmp_path):
    place = tmp_path / "keyedwm" / "parents" / f"{socket.gethostname()}-{os.getpid()}.sock"
    place.parent.mkdir(mode=0o700, parents=True)
    place.touch()
    start("a")
    start("b")
    assert loads() == 1


def test_a_process_that_serves_ends_with_the_one_that_spark_knows(start):
    start("a")
    second = start("b")
    second.process.send_signal(signal.SIGKILL)
    second.process.stdin.close()
    second.process.wait()
    second.process.stdout.close()
    wait_until(lambda: not alive(second.told["pid"]), "the end of the one that served")


def test_no_python_waits_beside_the_one_that_serves(start):
    start("a")
    second = start("b")
    program, python = Path(f"/proc/{second.process.pid}/exe"), Path(sys.executable).resolve()
    wait_until(lambda: program.readlink() != python, "another program in the place of the one that waits")
    second.leave()
    assert second.process.returncode == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_parent_that_serves_ends_with_the_process_that_spark_knows_while_its_input_is_open(start, sent):
    start("a")
    second = start("b")
    second.process.send_signal(sent)
    wait_until(lambda: not alive(second.told["pid"]), "the end of the one that served")
    second.process.communicate()


PLANNER = """
import os, subprocess, sys
print(__name__, os.environ["SPARK_OWN"], sys.stdin.read(), subprocess.call(["false"]), os.getppid(), flush=True)
sys.exit("told on standard error")
"""
GUEST = "from keyedwm.runtime.forked import run_where_loaded as run; run('planner'); print('no host')"


def test_a_process_for_one_query_is_run_where_everything_is_loaded(start, tmp_path):
    (tmp_path / "planner.py").write_text(PLANNER)
    path = {"PYTHONPATH": str(tmp_path)}

    def guest() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", GUEST], input="asked", capture_output=True, text=True, check=True,
            timeout=PATIENCE_S, env=variables_of(tmp_path, "b", **path),
        )  # fmt: skip

    assert guest().stdout == "no host\n"
    first = start("a", OMP_NUM_THREADS="1", **path)
    ran = guest()
    *told, parent = ran.stdout.split()
    assert told == ["__main__", "b", "asked", "1"]
    assert int(parent) not in {os.getpid(), first.told["pid"]}
    assert ran.stderr == "told on standard error\n"


STUCK = """
import os, time
print(os.getpid(), flush=True)
time.sleep(3_600)
"""


def test_a_program_that_waits_for_something_else_ends_with_the_process_that_spark_knows(start, tmp_path):
    """Spark ends the planner of a query so, whose code may be in the middle of anything."""
    (tmp_path / "planner.py").write_text(STUCK)
    path = {"PYTHONPATH": str(tmp_path)}
    start("a", OMP_NUM_THREADS="1", **path)
    with subprocess.Popen(
        [sys.executable, "-c", GUEST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=variables_of(tmp_path, "b", **path),
    ) as guest:  # fmt: skip
        pid = int(guest.stdout.readline())
        assert pid != guest.pid
        guest.terminate()
        wait_until(lambda: not alive(pid), "the end of the program")


def test_a_program_is_run_once_where_the_system_refuses_the_one_that_waits(start, tmp_path):
    (tmp_path / "planner.py").write_text(PLANNER)
    path = {"PYTHONPATH": str(tmp_path)}
    start("a", OMP_NUM_THREADS="1", **path)
    refuses = "import os\ndef refuse(*_): raise PermissionError(13, 'no')\nos.execv = refuse\n"
    ran = subprocess.run(
        [sys.executable, "-c", refuses + GUEST], input="asked", capture_output=True, text=True, check=True,
        timeout=PATIENCE_S, env=variables_of(tmp_path, "b", **path),
    )  # fmt: skip
    assert ran.stdout.split()[:-1] == ["__main__", "b", "asked", "1"]
    assert ran.stderr == "told on standard error\n"


@pytest.mark.parametrize(
    ("program", "forked"),
    [
        (["pyspark.sql.streaming.python_streaming_source_runner"], True),
        (["pyspark.sql.streaming.transform_with_state_driver_worker"], True),
        (["pyspark.daemon", "pyspark.sql.worker.create_data_source"], True),
        (["pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"], True),
        (["pyspark.daemon", "pyspark.sql.worker.write_into_data_source"], True),
        (["pyspark.daemon", "pyspark.sql.worker.python_streaming_sink_runner"], True),
        (["pyspark.daemon", "pyspark.sql.worker.commit_data_source_write"], True),
        (["pyspark.daemon", "pyspark.sql.worker.analyze_udtf"], False),
        (["pyspark.daemon"], False),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_spark_itself_starts_what_is_forked(start, tmp_path, program, forked):
    zipped = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    path = {"PYTHONPATH": f"{zipped}{os.pathsep}{Path.cwd()}"}
    start("a", **path)
    # No variable leads to a Spark: what is run ends with a traceback, a parent of the host's with the end of its input.
    ran = subprocess.Popen(
        [sys.executable, "-m", *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=variables_of(tmp_path, "b", PYTHON_UNIX_DOMAIN_ENABLED="true", **path),
    )  # fmt: skip
    said, told = ran.communicate(timeout=PATIENCE_S)
    if forked and program[0] == "pyspark.daemon":
        assert (json.loads(said.splitlines()[0])["argument"], said.splitlines()[1:], told) == (program[1], ["left"], "")
        return
    assert "Traceback" in told
    assert ("runtime/forked.py" in told) is forked
