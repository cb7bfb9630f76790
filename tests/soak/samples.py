"""What a soak samples every few seconds: memory, processes, files of the checkpoints, delay of the copy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.driver import python_of_spark
from tests.support.standalone import command_of, of_session

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. at_s: seconds since the stream began. life: the number of the driver that runs."""

    at_s: float
    life: int
    java_mib: float
    python_mib: float
    python_processes: int
    checkpoint_files: int
    checkpoint_mib: float
    offsets_bytes: int
    copy_delay_ms: float


def memory_mib(pids: Iterable[int]) -> float:
    """Return the memory of processes, shared pages divided among them (PSS); one that has ended counts nothing."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) * 1_024 for line in lines if line.startswith("Pss:")), 0)
    return total / MIB


def processes_of(session: int) -> tuple[list[int], list[int]]:
    """Return the process ids of a driver's session: Java's, and Spark's Python processes."""
    pids = of_session(session)
    java = [pid for pid in pids if command_of(pid).split("\0")[0].endswith("java")]
    return java, python_of_spark(pids)


def files_of(*directories: Path) -> tuple[int, int]:
    """Return the number and the bytes of all files below directories; files may vanish meanwhile."""
    count = size = 0
    for directory in directories:
        for where, _, names in os.walk(directory):
            for name in names:
                try:
                    size += Path(where, name).stat().st_size
                except FileNotFoundError:
                    continue
                count += 1
    return count, size


def sample(at_s: float, life: int, session: int, directory: Path, copy_delay_ms: float) -> Sample:
    """Look once."""
    java, python = processes_of(session)
    checkpoints = [directory / "windows.checkpoint", directory / "copy.checkpoint", directory / "ledger"]
    count, size = files_of(*checkpoints)
    _, offsets = files_of(*(one / "offsets" for one in checkpoints))
    memory = memory_mib(java), memory_mib(python)
    return Sample(at_s, life, *memory, len(python), count, size / MIB, offsets, copy_delay_ms)
