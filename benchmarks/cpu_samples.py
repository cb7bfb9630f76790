"""CPU time of the broker, of Java's threads and of each Python process, every few milliseconds. Linux only.

Run by `benchmarks.timeline` in a process of its own: python -m benchmarks.cpu_samples ROOT FILE. It samples all
processes below ROOT until its standard input ends, and writes a line for each sample: milliseconds, and the CPU
nanoseconds of each lane so far.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.004
_NEW_EVERY_S = 0.1
BROKER, JVM = "broker", "Java, other threads"
# Threads of Spark's JVM with a lane of their own, by how their names begin (the system keeps 15 characters).
THREADS = {
    "C1 ": "Java's compilers", "C2 ": "Java's compilers", "GC ": "Java's collector", "G1 ": "Java's collector",
    "VM ": "Java's collector", "Executor task": "Java, tasks", "stdout writer": "Java, tasks",
    "stream executio": "Java, query thread",
}  # fmt: skip


class Sampler:
    """The processes below a process, and the threads of Spark's JVM."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._clocks: dict[int, str] = {}
        self._threads: dict[int, tuple[str, int]] = {}
        self._last_ns: dict[tuple[str, int], int] = {}
        self._jvms: set[int] = set()

    def refresh(self) -> None:
        """Look for new processes and threads."""
        parents, commands = {}, {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                stat = (place / "stat").read_text(errors="replace")
                pid = int(place.name)
                parents[pid] = int(stat[stat.rindex(")") + 2 :].split()[1])
                commands[pid] = (place / "cmdline").read_bytes()
        for pid, command in commands.items():
            if pid in self._clocks or not _is_below(pid, self._root, parents):
                continue
            if b"kafka.Kafka" in command:
                self._clocks[pid] = BROKER
            elif b"java" in command.split(b"\0", 1)[0]:
                self._clocks[pid] = JVM
                self._jvms.add(pid)
            elif pid not in {self._root, os.getpid()}:
                self._clocks[pid] = f"Python {pid}"
        for jvm in self._jvms:
            for place in Path(f"/proc/{jvm}/task").glob("[0-9]*"):
                self._open(int(place.name), place)

    def _open(self, thread: int, place: Path) -> None:
        if thread in self._threads:
            return
        with suppress(OSError):
            name = (place / "comm").read_text().strip()
            lane = next((lane for start, lane in THREADS.items() if name.startswith(start)), None)
            if lane is not None:
                self._threads[thread] = lane, os.open(place / "schedstat", os.O_RDONLY)

    def sample(self) -> dict[str, int]:
        """Return the CPU nanoseconds of each lane so far, also of what has ended."""
        for thread, (lane, descriptor) in self._threads.items():
            with suppress(OSError):  # it has ended meanwhile
                self._last_ns[lane, thread] = int(os.pread(descriptor, 40, 0).split()[0])
        for pid, lane in self._clocks.items():
            with suppress(OSError):  # it has ended meanwhile
                self._last_ns[lane, pid] = time.clock_gettime_ns((~pid << 3) | 2)
        totals: dict[str, int] = {}
        for (lane, _), used_ns in self._last_ns.items():
            totals[lane] = totals.get(lane, 0) + used_ns
        own_lanes = set(THREADS.values())
        totals[JVM] = totals.get(JVM, 0) - sum(used for lane, used in totals.items() if lane in own_lanes)
        return totals


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid]
    return pid == root


def samples(root: int) -> Iterator[tuple[float, dict[str, int]]]:
    """Yield the milliseconds since 1970 and the CPU time of each lane, until the standard input ends."""
    sampler, new_at = Sampler(root), 0.0
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        if time.monotonic() >= new_at:
            sampler.refresh()
            new_at = time.monotonic() + _NEW_EVERY_S
        yield time.time() * 1_000, sampler.sample()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps([at_ms, lanes]) + "\n" for at_ms, lanes in samples(int(sys.argv[1])))
