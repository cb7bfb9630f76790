"""Where CPU seconds are spent."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks import cpu
from benchmarks.cpu import Part, Process, Spent, cpu_seconds, lost_s, processes, spending
from tests.installed import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is read in /proc")

LEAST_S = 0.3
# A process with the name of Java's, one thread with that of a compiler; it waits for the test at its end.
JAVA = f"""
import subprocess, sys, threading, time
from pathlib import Path

burned, ended = threading.Barrier(3), threading.Event()

def burn(name):
    Path(f"/proc/self/task/{{threading.get_native_id()}}/comm").write_text(name)
    while time.thread_time() < {LEAST_S}:
        pass
    burned.wait()
    ended.wait()

for name in ("C2 CompilerThre", "files-client-5-"):
    threading.Thread(target=burn, args=[name]).start()
burned.wait()
if sys.argv[1:]:
    burning = "import time\\nwhile time.process_time() < {LEAST_S}: pass"
    subprocess.run([sys.argv[1], "-c", burning], check=True)
print("ready", flush=True)
sys.stdin.read()
ended.set()
"""


def spent_by(link: Path, *arguments: str) -> Spent:
    """Let a process burn that is started by this name, and return what was spent until then."""
    link.symlink_to(sys.executable)
    with subprocess.Popen(
        [link, "-c", JAVA, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as made:
        assert made.stdin is not None
        assert made.stdout is not None
        try:
            with spending() as spent:
                assert made.stdout.readline() == "ready\n"
        finally:
            made.stdin.close()
            made.wait(PATIENCE_S)
    return spent


def test_threads_of_java_are_told_apart_by_their_names(tmp_path):
    spent = spent_by(tmp_path / "java")
    assert spent.parts_s[Part.COMPILERS.text] >= LEAST_S - 0.1
    assert spent.parts_s[Part.REST.text] >= LEAST_S - 0.1
    assert spent.parts_s[Part.TASKS.text] == 0
    assert spent.whole_s == pytest.approx(sum(spent.parts_s.values()))


def test_what_java_started_and_has_ended_is_counted_apart(tmp_path):
    spent = spent_by(tmp_path / "java", sys.executable)
    assert spent.parts_s[Part.ENDED.text] >= LEAST_S - 0.1


def test_a_process_that_is_not_java_is_python(tmp_path):
    spent = spent_by(tmp_path / "other", sys.executable)
    assert spent.parts_s[Part.PYTHON.text] >= 3 * LEAST_S - 0.3
    assert spent.parts_s[Part.COMPILERS.text] == 0
    assert spent.parts_s[Part.ENDED.text] < 0.1  # a reading between two ticks of the clock counts some hundredths


def test_a_process_apart_is_left_out_with_all_below_it():
    ran = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)', *sys.argv[1:]]); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", ran], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        made.stdout.readline()
        assert cpu_seconds({made.pid}) < cpu_seconds()
        made.kill()


@pytest.mark.parametrize(
    ("taken_over_s", "lost"), [(0.0, 5.0), (2.0, 3.0), (5.0, 0.0)], ids=["left alone", "in part", "taken over"]
)
def test_what_a_process_used_that_nothing_waited_for_is_not_lost(taken_over_s, lost):
    """PySpark's daemon ignores SIGCHLD, and kills workers that are idle."""
    before = {1: Process(0, "python", 1.0, 7.0), 2: Process(1, "python", 4.0, 1.0)}
    assert lost_s(before, {1: Process(0, "python", 1.5, 7.0 + taken_over_s)}) == lost
    assert lost_s(before, before) == 0


def test_what_was_handed_up_by_one_that_ended_too_counts_once():
    before = {1: Process(0, "python", 1.0, 7.0), 2: Process(1, "bash", 0.0, 0.0), 3: Process(2, "python", 4.0, 1.0)}
    assert lost_s(before, {1: Process(0, "python", 1.5, 12.0)}) == 0
    assert lost_s(before, {1: Process(0, "python", 1.5, 7.0)}) == 5.0


def test_a_name_that_the_system_cut_within_a_letter_is_read(tmp_path):
    link = tmp_path / ("x" * 14 + "é")
    link.symlink_to(sys.executable)
    with subprocess.Popen([link, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1) as made:
        assert made.stdout is not None
        made.stdout.readline()
        assert made.pid in processes()
        made.kill()


def test_a_look_that_fails_gives_no_figure(monkeypatch):
    """One alone, which the last look at the end does not show."""
    failed = threading.Event()

    def fail_once(*apart):
        if not failed.is_set():
            failed.set()
            raise ValueError("no look")
        return processes(*apart)

    def measure():
        with spending():
            monkeypatch.setattr(cpu, "processes", fail_once)
            assert failed.wait(PATIENCE_S)

    with pytest.raises(ValueError, match="no look"):
        measure()
