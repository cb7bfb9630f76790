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
for program in sys.stdin:
    ran = subprocess.run([sys.executable, "-c", program], input="asked", stdout=subprocess.PIPE, text=True)
    print(ran.stdout.strip(), flush=True)
"""
OURS = ("--conf", "spark.python.daemon.module=keyedwm.daemon")
LOCAL = ("--master", "local[2]")
START = "from keyedwm.runtime import early_host as early; early.start()"
GUEST = "from keyedwm.runtime.forked import run_where_loaded as run; run('planner', 'an argument'); print('no host')"
PLANNER = """
import os, sys
print(sys.argv[1], "numba" in sys.modules, sys.stdin.read(), os.environ.get("OMP_NUM_THREADS"))
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
            env=own | {"XDG_CACHE_HOME": str(home), "PYTHONPATH": f"{home}{os.pathsep}{Path.cwd()}"},
        )  # fmt: skip

    def run(self, program: str) -> str:
        """Start a process that runs a program, and return what it said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{program}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def left(self) -> list[str]:
        return sorted(path.suffix for path in self.parents.glob("*"))


@pytest.fixture
def jvm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jvm]:
    one = Jvm(tmp_path, request.param)
    yield one
    one.process.communicate()
    wait_until(lambda: not one.left(), "the end of the host with its JVM")


@pytest.mark.parametrize("jvm", [(*OURS, *LOCAL)], indirect=True)
def test_what_starts_before_any_worker_is_forked_from_a_host_that_is_waited_for(jvm):
    assert jvm.run(START) == ""
    wait_until(jvm.left, "a host that loads")
    assert jvm.run(GUEST) == "an argument True asked None"
    assert jvm.run(START) == ""
    assert jvm.run(GUEST) == "an argument True asked None"
    assert jvm.left() == [".lock", ".sock"]


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
    assert jvm.run(START) == ""
    assert jvm.run(GUEST) == "no host"
    assert jvm.left() == []


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
