"""CPU seconds of this process and all below it: whole, and by where they were spent. Linux only.

Rule: brokers and processes with APART in their command line are left out.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

# An option of Java for an engine that runs beside ours: it counts its own CPU time.
APART = "-Dkeyedwm.apart=true"
_LEFT_OUT = (b"kafka.Kafka", APART.encode())
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# A thread that ends takes at most so long of its time along; Java's compilers wait longer before they end.
_EVERY_S = 0.5


class Part(Enum):
    """Where CPU seconds are spent; the first three by how the names of Java's threads begin (the system keeps 15)."""

    COMPILERS = ("Java's compilers", ("C1 Compiler", "C2 Compiler"))
    COLLECTOR = ("Java's collector", ("GC Thread", "G1 ", "VM Thread"))
    TASKS = ("Java's tasks", ("Executor task", "stdout writer", "rocksdb:"))
    REST = ("the rest of Java", ())
    PYTHON = ("Python", ())
    ENDED = ("processes that Java started and that ended", ())

    @property
    def text(self) -> str:
        """Its name."""
        return self.value[0]


@dataclass(frozen=True, slots=True)
class Process:
    """What a process has used: seconds of its own and, beside them, of what it started and that has ended."""

    parent: int
    name: str
    own_s: float
    ended_s: float


def processes(apart: Container[int] = ()) -> dict[int, Process]:
    """This process and all below it, by id; apart: ids that are left out with all below them."""
    found_processes: dict[int, Process] = {}
    for place in _below(Path("/proc")):
        try:
            name, fields = _stat(place)
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if not any(one in command for one in _LEFT_OUT) and int(place.name) not in apart:
            own, ended = (sum(map(int, fields[first : first + 2])) / _TICKS_PER_S for first in (11, 13))
            found_processes[int(place.name)] = Process(int(fields[1]), name, own, ended)
    parents = {pid: one.parent for pid, one in found_processes.items()}
    return {pid: one for pid, one in found_processes.items() if is_below(pid, parents)}


def cpu_seconds(apart: Container[int] = ()) -> float:
    """CPU seconds so far of this process and all below it; apart: ids that are left out with all below them."""
    return sum(one.own_s + one.ended_s for one in processes(apart).values())


def is_below(pid: int, parents: Mapping[int, int]) -> bool:
    """Whether a process is this one or comes from it; parents: of every process."""
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


@dataclass(slots=True)
class Spent:
    """CPU seconds between two looks, whole and by part."""

    whole_s: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)


@contextmanager
def spending() -> Iterator[Spent]:
    """Count what is spent meanwhile; the figures are there at the end."""
    spent, watch = Spent(), _Watch()
    over = threading.Event()

    def look_again() -> None:
        while not over.wait(_EVERY_S):
            watch.look()

    with ThreadPoolExecutor(1) as watcher:
        looking = watcher.submit(look_again)
        try:
            yield spent
        finally:
            over.set()
        looking.result()  # raises what ended it: there is no figure then
    watch.look()
    spent.parts_s = {part.text: seconds for part, seconds in watch.spent().items()}
    spent.whole_s = sum(spent.parts_s.values())


class _Watch:
    """What all processes have used since the first look, and Java's threads also where they have ended."""

    def __init__(self) -> None:
        self._processes = processes()
        self._before = _by_part(self._processes)
        self._lost_s = 0.0
        self._threads: dict[tuple[int, int], tuple[Part, float]] = {}
        self._note_threads()
        self._first = dict(self._threads)

    def look(self) -> None:
        """Note what each has used so far."""
        before, self._processes = self._processes, processes()
        self._lost_s += lost_s(before, self._processes)
        self._note_threads()

    def spent(self) -> dict[Part, float]:
        """Seconds from the first look to the last, by part."""
        used_s = _by_part(self._processes)
        spent = {part: used_s[part] - self._before[part] for part in Part}
        spent[Part.PYTHON] += self._lost_s
        for thread, (part, seconds) in self._threads.items():
            in_thread = seconds - self._first.get(thread, (part, 0.0))[1]
            spent[part] += in_thread
            spent[Part.REST] -= in_thread
        return spent

    def _note_threads(self) -> None:
        for pid in [pid for pid, one in self._processes.items() if one.name == "java"]:
            for place in _below(Path(f"/proc/{pid}/task")):
                with suppress(OSError):  # it has ended meanwhile
                    name, fields = _stat(place)
                    part = next((part for part in Part if name.startswith(part.value[1] or "\0")), None)
                    if part is not None:
                        self._threads[pid, int(place.name)] = part, sum(map(int, fields[11:13])) / _TICKS_PER_S


def _by_part(processes: Mapping[int, Process]) -> dict[Part, float]:
    """CPU seconds so far; those of Java's own threads as its rest."""
    used_s = dict.fromkeys(Part, 0.0)
    for one in processes.values():
        is_java = one.name == "java"
        used_s[Part.REST if is_java else Part.PYTHON] += one.own_s
        used_s[Part.ENDED if is_java else Part.PYTHON] += one.ended_s
    return used_s


def lost_s(before: Mapping[int, Process], after: Mapping[int, Process]) -> float:
    """Seconds of processes that ended between two looks and that nothing has: a parent of PySpark's workers takes no
    leave of those that it kills as idle, so the system forgets what they used.
    """
    # By the nearest process above that goes on: it may have taken over what its child had taken over.
    gone_s: dict[int, float] = {}
    for pid, one in before.items():
        if pid not in after:
            above = one.parent
            while above in before and above not in after:
                above = before[above].parent
            gone_s[above] = gone_s.get(above, 0.0) + one.own_s + one.ended_s
    lost_s = 0.0
    for above, seconds in gone_s.items():
        taken_over = after[above].ended_s - before[above].ended_s if above in after and above in before else 0.0
        lost_s += max(0.0, seconds - taken_over)
    return lost_s


def _below(place: Path) -> list[Path]:
    """The processes, or threads of one, that are there now."""
    with suppress(OSError):  # it has ended meanwhile
        return list(place.glob("[0-9]*"))
    return []


def _stat(place: Path) -> tuple[str, list[str]]:
    """Name and fields of a process or thread, the fields from its state on (proc(5))."""
    text = (place / "stat").read_text(errors="replace")  # a name is cut at 15 bytes, be it within a letter
    return text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
