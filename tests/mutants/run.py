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

sys.path.insert(0, str(Path(__file__).parent))

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
TESTS = (
    "test_coalescer",
    "test_sources",
    "test_alignment",
    "test_windows",
    "test_encoding",
    "test_laws",
    "test_vectors",
)
PYTEST = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--no-header", "--tb=no"]


def main() -> int:
    """Run every mutant, one line each."""
    words = sys.argv[1:]
    wanted = [one for one in MUTANTS if not words or any(word in one.path + one.breaks for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as home_dir:
        home = Path(home_dir)
        for name in ("keyedwm", "tests"):
            ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
            shutil.copytree(ROOT / name, home / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", home)
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


def _try(home: Path, mutant: Mutant) -> str:
    path = home / "keyedwm" / mutant.path
    text = path.read_text()
    if text.count(mutant.before) != 1:
        return "NO MATCH"
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        return "SURVIVED" if _passes(home, mutant) else "caught"
    finally:
        path.write_text(text)


def _passes(home: Path, mutant: Mutant | None) -> bool:
    files = [str(home / "tests" / "core" / f"{name}.py") for name in TESTS]
    arrow = str(home / "tests" / "arrow" / "test_axis.py")
    first = mutant is not None and mutant.path.startswith("arrow")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *PYTEST, *([arrow] if first else [*files, arrow])]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
