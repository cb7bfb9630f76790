"""The versions that are supported, tried: an environment of its own for each cell, and the contract tests in it.

Run: make matrix [CELLS="pyspark-4.2 lowest"], or python -m tests.matrix [CELL ...]
Every cell installs the locked versions, but for what it is about; `lowest` installs the lower bound of every
dependency, `newest` the newest version of each within its bounds. What a cell needs and this machine lacks (a Python,
a Java) is said, and the cell is left out. Prints a table at the end, that of docs/reference/versions.md. Environments
stay in build/matrix. Exits 1 if a cell failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import kafka_versions

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "matrix"
LOCKED, LOWEST, NEWEST = "locked", "lowest", "newest"
# Without a broker or Spark: the algebra, the codec, the formats, every vector. With both: reading, windows, joins, both
# sinks, state of earlier versions, and what a real broker answers.
QUICK = ("tests/core", "tests/arrow", "tests/kafka", "tests/operators", "tests/conformance", "tests/vectors")
STARTED = (
    "tests/system/world/test_contract.py", "tests/spark/test_load.py", "tests/spark/test_aggregate.py",
    "tests/spark/test_join.py", "tests/sink/test_kafka_stream.py", "tests/sink/test_delta_stream.py",
    "tests/compat/test_continues.py", "tests/kafka/test_versions.py", "tests/kafka/test_transactions.py",
    "tests/kafka/test_cluster.py",
)  # fmt: skip
LISTED_PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "pandas", "deltalake", "pyiceberg")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One set of versions. python: its feature release; pins: requirements beside the locked ones; java: the name of
    the variable with its home, None for the one that is found. kafka: the version of the broker, None for the usual.
    """

    python: str = "3.11"
    pins: tuple[str, ...] = ()
    resolution: str = LOCKED
    java_home: str | None = None
    kafka: str | None = None


CELLS: Mapping[str, Cell] = {
    "usual": Cell(),
    "python-3.10": Cell(python="3.10"),
    "python-3.12": Cell(python="3.12"),
    "python-3.13": Cell(python="3.13"),
    "python-3.14": Cell(python="3.14", resolution=NEWEST),
    "pyspark-4.2": Cell(pins=("pyspark==4.2.1",)),
    "lowest": Cell(python="3.10", resolution=LOWEST),
    "newest": Cell(resolution=NEWEST),
    "java-21": Cell(java_home="JAVA_21_HOME"),
    "java-25": Cell(java_home="JAVA_25_HOME"),
    "kafka-2.8": Cell(kafka="2.8.2"),
    "kafka-3.9": Cell(kafka="3.9.1"),
    "kafka-4.4": Cell(kafka="4.4.0"),
}


def main() -> int:
    """Try the cells, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)}; all unless some are named")
    names = parser.parse_args().cells or list(CELLS)
    unknown = sorted(set(names) - set(CELLS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: no such cell; there are {', '.join(CELLS)}")
    uv = _uv()
    rows = {name: _try_cell(uv, name, CELLS[name]) for name in names}
    print("\n| cell | Python | " + " | ".join(LISTED_PACKAGES) + " | tests |\n|" + "---|" * (len(LISTED_PACKAGES) + 3))
    for name, (row, _) in rows.items():
        print(f"| {name} | {row}")
    return 0 if all(good for _, good in rows.values()) else 1


def _try_cell(uv: Path, name: str, cell: Cell) -> tuple[str, bool]:
    """The rest of a cell's row, and whether nothing failed."""
    blank = " | " * len(LISTED_PACKAGES)
    if cell.java_home and not os.environ.get(cell.java_home):
        return f"{cell.python} {blank} | not run: {cell.java_home} names no Java |", True
    if _run(uv, "python", "find", cell.python).returncode:
        return f"{cell.python} {blank} | not run: no Python {cell.python} |", True
    began = time.monotonic()
    print(f"{name}: installing", flush=True)
    python = _environment(uv, name, cell)
    listed = json.loads(_must(uv, "pip", "list", "--format", "json", "--python", python))
    versions = {one["name"]: one["version"] for one in listed}
    print(f"{name}: testing with {', '.join(f'{one} {versions[one]}' for one in LISTED_PACKAGES)}", flush=True)
    quick = [] if cell.kafka else [_tests(python, cell, "--quick", *QUICK)]  # which need no broker
    counts = [*quick, _tests(python, cell, *STARTED)]
    summary = ", ".join(f"{sum(one.get(outcome, 0) for one in counts):,} {outcome}" for outcome in _outcomes(counts))
    took = f"{(time.monotonic() - began) / 60:.0f} min"
    version_cells = " | ".join(versions[one] for one in LISTED_PACKAGES)
    print(f"{name}: {summary}, {took}", flush=True)
    release = _must(python, "-c", "import platform; print(platform.python_version())").strip()
    good = not any(one.get("failed", 0) or one.get("error", 0) or not one for one in counts)
    return f"{release} | {version_cells} | {summary}, {took} |", good


def _environment(uv: Path, name: str, cell: Cell) -> Path:
    """The Python of the cell's environment, made anew."""
    home = HOME / name
    python = home / "bin" / "python"
    _must(uv, "venv", "--quiet", "--clear", "--python", cell.python, home)
    install = (uv, "pip", "install", "--quiet", "--python", python)
    if cell.resolution == LOCKED:
        _must(*install, "--require-hashes", "-r", ROOT / "requirements.lock")
        _must(*install, "--no-deps", "--no-build-isolation", "-e", ROOT)
        if cell.pins:
            _must(*install, *cell.pins)
    elif cell.resolution == NEWEST:
        _must(*install, "--upgrade", "-e", f"{ROOT}[test,demo,iceberg,prometheus,otel]", *cell.pins)
    else:  # the tools that test are the usual ones: what is tried are the dependencies of those who use the package
        _must(*install, "--resolution", "lowest-direct", "-e", f"{ROOT}[iceberg]")
        bounds = _must(uv, "pip", "freeze", "--python", python, "--exclude-editable")
        (HOME / f"{name}.txt").write_text(bounds, encoding="utf-8")
        _must(*install, "-e", f"{ROOT}[test,demo]", "--constraint", HOME / f"{name}.txt")
    return python


def _tests(python: Path, cell: Cell, *arguments: str) -> dict[str, int]:
    """Run tests; returns how many passed, failed and so on, nothing if they could not be run."""
    own = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": str(ROOT)}
    own |= {"JAVA_HOME": os.environ[cell.java_home]} if cell.java_home else {}
    own |= {kafka_versions.VARIABLE: cell.kafka} if cell.kafka else {}
    command = (python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", *arguments)
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env={**os.environ, **own}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    last = [line for line in done.stdout.splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", line)]
    if done.returncode or not last:
        print(done.stdout[-20_000:], flush=True)
    counts = re.findall(r"(\d+) ([a-z]+)", last[-1]) if last else []
    return {outcome.rstrip("s"): int(count) for count, outcome in counts}


def _outcomes(runs: Sequence[Mapping[str, int]]) -> list[str]:
    return [one for one in ("passed", "failed", "error", "skipped") if any(counts.get(one) for counts in runs)]


def _uv() -> Path:
    """The installer that `make lock` uses."""
    home = HOME / "uv"
    if not (home / "bin" / "uv").exists():
        _must(sys.executable, "-m", "venv", home)
        _must(home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", os.environ["UV_PACKAGE"])
    return home / "bin" / "uv"


def _must(*command: str | Path) -> str:
    """Run a command; returns what it printed, or ends the program with what it said."""
    done = _run(*command)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
