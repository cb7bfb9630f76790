"""Breaks every rule on purpose and tells which mutants the suite did not notice: `make mutants`.

Works on a copy, so the tree is never touched. Exit code 1 if a mutant survives or no longer applies.
`python tests/mutants/run.py WORD...` runs only mutants with one of the words in their path or rule.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
# Quick ones first. Those that import the mutated module run before all others; the last two replay every vector.
FILES = (
    "operators/test_lateness", "core/test_coalescer", "core/test_barriers", "core/test_retention",
    "core/test_alignment", "core/test_encoding",
    "core/test_control_row", "core/test_sources", "core/test_windows", "core/test_laws", "arrow/test_axis",
    "core/test_vectors", "core/test_oracle_vectors",
)  # fmt: skip
PYTEST = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--no-header", "--tb=no"]


def main() -> int:
    """Run every mutant, one line each."""
    words = sys.argv[1:]
    wanted = [one for one in MUTANTS if not words or any(word in one.path + one.breaks for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as home_dir:
        home = Path(home_dir).resolve()
        for name in ("keyedwm", "pyspark_wm_source", "pyspark_wm_sink", "conformance", "benchmarks", "tests"):
            ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(ROOT / name, home / name, ignore=ignored)
        shutil.copytree(ROOT / "docs", home / "docs")
        shutil.copy(ROOT / "pyproject.toml", home)
        if (found := _imported(home)) != home / "keyedwm":
            print(f"the tests would import {found}, not the copy in {home}")
            return 1
        if not _passes(home, None):
            print("the suite fails without a mutant: mend that first")
            return 1
        for number, mutant in enumerate(wanted, start=1):
            started = time.monotonic()
            told = _try(home, mutant)
            print(
                f"{number:3} {told:9} {time.monotonic() - started:5.1f} s  {mutant.path}: {mutant.breaks}", flush=True
            )
            if told != "caught":
                survivors.append(mutant)
    print(f"{len(wanted)} mutants tried, {len(wanted) - len(survivors)} caught, {len(survivors)} not")
    return 1 if survivors else 0


def file_of(home: Path, path: str) -> Path:
    """Where a mutant's file stands: its path is one under keyedwm, or under conformance."""
    return home / (path if path.startswith("conformance/") else f"keyedwm/{path}")


def _try(home: Path, mutant: Mutant) -> str:
    path = file_of(home, mutant.path)
    text = path.read_text()
    if text.count(mutant.before) != 1:
        return "NO MATCH"
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        return "SURVIVED" if _passes(home, mutant) else "caught"
    finally:
        path.write_text(text)


def _passes(home: Path, mutant: Mutant | None) -> bool:
    files = [home / "tests" / f"{name}.py" for name in FILES]
    module = "" if mutant is None else _module_of(mutant.path)
    near = [path for path in files if module and f"from {module} import" in path.read_text()]
    others = [path for path in files if path not in near]
    return (not near or _run(home, near)) and _run(home, others)


def _module_of(path: str) -> str:
    return file_of(Path(), path).with_suffix("").as_posix().replace("/", ".")


def _run(home: Path, files: list[Path]) -> bool:
    return _python(home, *PYTEST, *map(str, files)).returncode == 0


def _imported(home: Path) -> Path:
    """The directory of the package that tests in the copy import."""
    return Path(_python(home, "-c", "import keyedwm; print(keyedwm.__file__)").stdout.strip()).parent


def _python(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(home), "KEYEDWM_SEEDS": "4"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
